"""Print tables: wrapped to the width of a terminal, and unwrapped into a pipe or file."""

import sys
import textwrap
from collections.abc import Sequence

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

_WIDE_ENOUGH = 10_000
_INDENT = "  "


def line_width() -> int:
    """Return how many characters a line of output may have."""
    return Console().width if sys.stdout.isatty() else _WIDE_ENOUGH


def print_tables(*tables: Table) -> None:
    """Print the tables with an empty line between them.

    Raises ``OSError`` if the output can't be written; rich would end the process in this case.
    """
    _echo("\n".join("".join(f"{line}\n" for line in _lines(table)) for table in tables))


def print_with_details(table: Table, details: Sequence[Sequence[str]]) -> None:
    """Print a table whose rows take one line each, and below each row its ``details``, wrapped.

    Raises ``OSError`` if the output can't be written.
    """
    header, *rows = _lines(table)
    shown = [header]
    for row, texts in zip(rows, details, strict=True):
        shown.append(row)
        for text in texts:
            shown += textwrap.wrap(text, line_width(), initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
    _echo("".join(f"{line}\n" for line in shown))


def print_wrapped(text: str) -> None:
    """Print a text, wrapped to the width of a line. Raises ``OSError`` if the output can't be written."""
    _echo("".join(f"{line}\n" for line in textwrap.wrap(text, line_width(), break_on_hyphens=False)))


def print_aligned(table: Table, gap: int) -> None:
    """Print a table that isn't too wide, without rich, which takes a second for a thousand rows.

    Raises ``OSError`` if the output can't be written.
    """
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    if not all(cell.isprintable() for column in columns for cell in column):
        print_tables(table)
        return
    widths = [max(map(cell_len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    lines = ["".join(cell + " " * (width - cell_len(cell) + gap) for cell, width in zip(row, widths, strict=True)) for row in rows]
    _echo("".join(f"{line.rstrip()}\n" for line in lines))


def is_too_wide(table: Table, gap: int) -> bool:
    """Return whether a row of ``table`` is longer than a line may be, with ``gap`` spaces between its columns."""
    widths = [max(map(cell_len, (str(column.header), *map(str, column.cells)))) for column in table.columns]
    return sum(widths) + gap * (len(widths) - 1) > line_width()


def _lines(table: Table) -> list[str]:
    console = Console(width=line_width(), markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().split("\n")[:-1]]  # rich pads the last column with spaces


def _echo(text: str) -> None:
    # A name in a JSON manifest may contain half of a surrogate pair, which can't be encoded.
    click.echo(text.encode(errors="replace").decode(), nl=False)
