"""Print tables and lines: wrapped to the width of a terminal, and unwrapped into a pipe or file.

Others wrote parts of what is printed: names, labels, messages. A terminal obeys control characters, so all of them are escaped here.
"""

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from allaboard.model.errors import one_line

_WIDE_ENOUGH = 10_000
_GAP = 3  # spaces between columns
_INDENT = "  "
# Cells that are never cut: numbers, parts such as 1/2, times, durations, and words for none of them.
_NUMBER = re.compile(r"[-+]?[0-9][-+0-9.:/ edhms]*|<[a-z]+>")
_SHORTEST_CUT = 8  # characters that are left of a cell that is cut
_LONGEST_WORD = 16  # characters; longer words may be broken between lines


def line_width() -> int:
    """Return how many characters a line of output may have."""
    return Console().width if sys.stdout.isatty() else _WIDE_ENOUGH


class PlainTable(Table):
    """A table without lines, with the ``options`` of rich. Unprintable characters are escaped; a cell that has such loses its colours."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"box": None, "pad_edge": False, "padding": (0, _GAP, 0, 0), "header_style": "", **options})

    def add_column(self, header: RenderableType = "", *arguments: Any, **options: Any) -> None:
        """Add a column, as rich does."""
        super().add_column(_escaped(header), *arguments, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row, as rich does."""
        super().add_row(*map(_escaped, cells), **options)

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each column: those of the header and of all cells."""
        return [[str(column.header), *map(str, column.cells)] for column in self.columns]


def table_of(*columns: str, wrapped: str = "MESSAGE") -> PlainTable:
    """Return an empty table. Only the cells of the column ``wrapped`` may be broken between words."""
    table = PlainTable()
    for column in columns:
        table.add_column(column, no_wrap=column != wrapped, overflow="fold")
    return table


def print_tables(*tables: PlainTable) -> None:
    """Print the tables with an empty line between them.

    Raises ``OSError`` if the output can't be written; rich would end the process in this case.
    """
    click.echo("\n".join("".join(f"{line}\n" for line in _lines(table)) for table in tables), nl=False)


def print_with_details(table: PlainTable, details: Sequence[Sequence[str]]) -> None:
    """Print a table with one line for each row, and below each row its ``details``, wrapped.

    If a line is too short, long cells are cut and end with an ellipsis. Cells of numbers are never cut: then a line stays too long.

    Raises ``OSError`` if the output can't be written.
    """
    _fit(table)
    header, *rows = _lines(table)
    shown = [header]
    for row, texts in zip(rows, details, strict=True):
        shown.append(row)
        for text in texts:
            shown += _wrapped(text, _INDENT)
    click.echo("".join(f"{line}\n" for line in shown), nl=False)


def print_wrapped(text: str) -> None:
    """Print a text, wrapped to the width of a line. Raises ``OSError`` if the output can't be written."""
    click.echo("".join(f"{line}\n" for line in _wrapped(text)), nl=False)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes for the user to stderr, each in one line."""
    for note in notes:
        print_notice(f"note: {note}")


def print_notice(text: str) -> None:
    """Print a text for the user, which is no part of the answer, to stderr in one line."""
    click.echo(one_line(text), err=True)


def print_aligned(table: PlainTable) -> None:
    """Print a table that isn't too wide, without rich, which takes a second for a thousand rows.

    Raises ``OSError`` if the output can't be written.
    """
    widths, rows = _widths(table), zip(*table.texts, strict=True)
    lines = ["".join(cell + " " * (width - cell_len(cell) + _GAP) for cell, width in zip(row, widths, strict=True)) for row in rows]
    click.echo("".join(f"{line.rstrip()}\n" for line in lines), nl=False)


def is_too_wide(table: PlainTable) -> bool:
    """Return whether a row of ``table`` is longer than a line may be."""
    widths = _widths(table)
    return sum(widths) + _GAP * (len(widths) - 1) > line_width()


def _escaped(cell: RenderableType | None) -> Text | str:
    if cell is None:
        return ""
    return cell if isinstance(cell, Text) and cell.plain.isprintable() else one_line(str(cell))


def _widths(table: PlainTable) -> list[int]:
    """Return how many characters each column needs."""
    return [max(map(cell_len, texts)) for texts in table.texts]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(one_line(text), line_width(), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _fit(table: PlainTable) -> None:
    """Make each row take one line: the widest columns are cut as far as the line is too short. rich would cut all of them."""
    widths = _widths(table)
    cut = [place for place, (_, *cells) in enumerate(table.texts) if not all(map(_NUMBER.fullmatch, cells))]
    for _ in range(sum(widths) + _GAP * (len(widths) - 1) - line_width()):
        widest = max(cut, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _SHORTEST_CUT:
            break
        widths[widest] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width, column.no_wrap = width, True


def _lines(table: PlainTable) -> list[str]:
    """Return the lines of ``table``. They are longer than a line may be if the table would lose characters otherwise."""
    for column, texts in zip(table.columns, table.texts, strict=True):
        # rich cuts cells without a word, and leaves out columns, if it may wrap nothing.
        column.overflow = "ellipsis" if column.no_wrap else "fold"
        if column.width is None:
            parts = texts if column.no_wrap else [word[:_LONGEST_WORD] for text in texts for word in text.split()]
            column.min_width = max(map(cell_len, parts), default=0)
    # Colours are for terminals only, and for none that NO_COLOR is set in.
    console = Console(width=_WIDE_ENOUGH, markup=False, highlight=False, emoji=False, force_terminal=sys.stdout.isatty())
    least = Measurement.get(console, console.options, table).minimum
    with console.capture() as capture:
        console.print(table, width=max(least, line_width()), crop=False)
    return [line.rstrip() for line in capture.get().split("\n")[:-1]]  # rich pads the last column with spaces
