"""Print tables: wrapped to the width of a terminal, and unwrapped into a pipe or file."""

import sys
import textwrap
from collections.abc import Sequence

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

_WIDE_ENOUGH = 10_000
_GAP = 3  # spaces between columns
_INDENT = "  "


def line_width() -> int:
    """Return how many characters a line of output may have."""
    return Console().width if sys.stdout.isatty() else _WIDE_ENOUGH


def table_of(*columns: str, wrapped: str = "MESSAGE") -> Table:
    """Return an empty table without lines. Only the cells of the column ``wrapped`` may be broken between words."""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="")
    for column in columns:
        table.add_column(column, no_wrap=column != wrapped, overflow="fold")
    return table


def print_tables(*tables: Table) -> None:
    """Print the tables with an empty line between them.

    Raises ``OSError`` if the output can't be written; rich would end the process in this case.
    """
    _echo("\n".join("".join(f"{line}\n" for line in _lines(table)) for table in tables))


def print_with_details(table: Table, details: Sequence[Sequence[str]]) -> None:
    """Print a table with one line for each row, whose cells are cut if the line is too short, and below each row its ``details``, wrapped.

    Raises ``OSError`` if the output can't be written.
    """
    _fit(table)
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


def print_aligned(table: Table) -> None:
    """Print a table that isn't too wide, without rich, which takes a second for a thousand rows.

    Raises ``OSError`` if the output can't be written.
    """
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    if not all(cell.isprintable() for column in columns for cell in column):
        print_tables(table)
        return
    widths = _widths(table)
    rows = zip(*columns, strict=True)
    lines = ["".join(cell + " " * (width - cell_len(cell) + _GAP) for cell, width in zip(row, widths, strict=True)) for row in rows]
    _echo("".join(f"{line.rstrip()}\n" for line in lines))


def is_too_wide(table: Table) -> bool:
    """Return whether a row of ``table`` is longer than a line may be."""
    widths = _widths(table)
    return sum(widths) + _GAP * (len(widths) - 1) > line_width()


def _widths(table: Table) -> list[int]:
    """Return how many characters each column needs."""
    return [max(map(cell_len, (str(column.header), *map(str, column.cells)))) for column in table.columns]


def _fit(table: Table) -> None:
    """Make each row take one line: the widest columns are cut as far as the line is too short. rich would cut all of them."""
    widths = _widths(table)
    for _ in range(sum(widths) + _GAP * len(widths) - line_width()):
        widths[widths.index(max(widths))] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width, column.no_wrap, column.overflow = width, True, "ellipsis"


def _lines(table: Table) -> list[str]:
    # Colours are for terminals only, and for none that NO_COLOR is set in.
    console = Console(width=line_width(), markup=False, highlight=False, emoji=False, force_terminal=sys.stdout.isatty())
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().split("\n")[:-1]]  # rich pads the last column with spaces


def _echo(text: str) -> None:
    # A name in a JSON manifest may contain half of a surrogate pair, which can't be encoded.
    click.echo(text.encode(errors="replace").decode(), nl=False)
