"""The common part of the commands that show a board: read it once or again and again, and print it in the format that was asked for."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import yaml

from allaboard.cli.boards import Shows, Wanted, open_board
from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import print_notes, print_notice
from allaboard.kube.client import ApiError, CredentialsError
from allaboard.settings.options import SettingsError
from allaboard.sight.remote import UnreadableError
from allaboard.sight.values import Value
from allaboard.whatif.documents import ManifestError

_Value = TypeVar("_Value", bound=Value)


def show(
    wanted: Wanted,
    read: Callable[[Shows], Awaitable[_Value]],
    print_table: Callable[[_Value], None],
    *,
    output: str,
    every: float | None = None,
) -> None:
    """Print what ``read`` returns of a board: as JSON, as YAML, or by ``print_table``; with ``every``, again after so many seconds.

    Raises ``BadInputError`` if the board can't be read.
    """
    try:
        asyncio.run(_show(wanted, read, print_table, output, every))
    except (ManifestError, SettingsError, ApiError, CredentialsError, UnreadableError) as error:
        raise BadInputError(str(error)) from error


async def _show(
    wanted: Wanted,
    read: Callable[[Shows], Awaitable[_Value]],
    print_table: Callable[[_Value], None],
    output: str,
    every: float | None,
) -> None:
    notes: list[str] = []
    async with open_board(wanted, notes) as board:
        print_notes(notes)
        while True:
            found = await read(board)
            if every is not None and sys.stdout.isatty():
                click.clear()
            if output == "json":
                # Not by pydantic, which refuses half of a surrogate pair, and escapes no control characters but those of ASCII.
                click.echo(json.dumps(found.model_dump(by_alias=True, mode="json"), indent=2).replace("\x7f", "\\u007f"))
            elif output == "yaml":
                click.echo(yaml.safe_dump(found.model_dump(by_alias=True, mode="json"), sort_keys=False), nl=False)
            else:
                print_table(found)
            if every is None:
                return
            await asyncio.sleep(every)


def without_title(namespace: str, name: str, message: str) -> str:
    """Return the message about a gang without the gang's name at its beginning, for lines that name the gang already."""
    return message.removeprefix(f"podgroup {namespace}/{name}: ")


def note_hidden(number: int, what: str) -> None:
    """Say how many gangs, or other things, of namespaces that the user may not read were left out; nothing if none were."""
    if number:
        print_notice(f"note: {number} {what} of namespaces that you may not read are left out")
