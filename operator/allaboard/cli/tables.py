"""Tables on standard output: wrapped for people, and for a pipe one line a row."""

import sys

import click
from rich.console import Console
from rich.table import Table

_WIDE_ENOUGH = 10_000


def room() -> int:
    """How many characters a line may have."""
    return Console().width if sys.stdout.isatty() else _WIDE_ENOUGH


def print_tables(*tables: Table) -> None:
    """The tables, an empty line between them. Raises ``OSError`` when nobody takes them, where rich would end the process itself."""
    console = Console(width=room(), markup=False, highlight=False, emoji=False)
    shown = []
    for table in tables:
        with console.capture() as capture:
            console.print(table)
        # The last column is filled up with blanks like the others.
        shown.append("".join(f"{line.rstrip()}\n" for line in capture.get().split("\n")[:-1]))
    # A manifest in JSON may have half of a surrogate pair in a name, which no terminal takes.
    click.echo("\n".join(shown).encode(errors="replace").decode(), nl=False)
