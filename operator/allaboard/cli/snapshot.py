"""``allaboard snapshot``: write the cluster and the operator's state into a file, for other commands and for reports of problems."""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from allaboard.cli.boards import Wanted, board_at, open_operator
from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import print_notes
from allaboard.kube.client import ApiError, ApiServer, CredentialsError
from allaboard.sight.remote import UnreadableError
from allaboard.whatif.anonymous import anonymized
from allaboard.whatif.collected import collected
from allaboard.whatif.snapshots import BOARD


def snapshot(output: str, is_anonymous: bool, api: str | None, kubeconfig: str | None) -> None:
    """Write the snapshot. Raises ``BadInputError`` if the cluster can't be read, or the file can't be written."""
    if kubeconfig:
        os.environ["KUBECONFIG"] = kubeconfig
    notes: list[str] = []
    try:
        items = asyncio.run(_items(Wanted(api=api or "", kubeconfig=kubeconfig or ""), notes, is_anonymous=is_anonymous))
    except (ApiError, CredentialsError) as error:
        raise BadInputError(str(error)) from error
    print_notes(notes)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
    if output == "-":
        click.echo(text)
        return
    try:
        Path(output).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{output}: can't be written: {error.strerror or error}") from error
    click.echo(f"{output}: {len(items)} objects, {len(text) / 1e6:.1f} MB", err=True)


async def _items(wanted: Wanted, notes: list[str], *, is_anonymous: bool) -> list[dict[str, Any]]:
    async with ApiServer.connect(kubeconfig=wanted.kubeconfig) as server:
        objects: list[dict[str, Any]] = []
        async for raw in collected(server, notes):
            objects.append(dict(raw))
            if len(objects) % 1000 == 0 and sys.stderr.isatty():
                click.echo(f"\r{len(objects)} objects ...", nl=False, err=True)
        if is_anonymous:
            return anonymized(objects)
        async with AsyncExitStack() as stack:
            try:
                remote, why = await open_operator(stack, server) if not wanted.url else (None, "")
                if wanted.url:
                    remote = await stack.enter_async_context(board_at(wanted.url))
                if remote is not None:
                    found = await remote.snapshot()
                    return [*objects, {"apiVersion": BOARD[0] + "/v1", "kind": BOARD[1], **found.model_dump(by_alias=True, mode="json")}]
            except UnreadableError as error:
                why = f"the operator can't be asked: {error}"
        notes.append(f"{why}; the snapshot has the objects of the cluster, without reservations and decisions")
        return objects
