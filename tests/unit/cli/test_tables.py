"""Tests that what commands print holds no control characters of others, and that narrow terminals lose no characters silently."""

import sys

import pytest
from click.testing import CliRunner
from rich.text import Text

from allaboard.cli import tables
from allaboard.cli.inputs import BadInputError
from allaboard.cli.main import cli
from allaboard.cli.tables import is_too_wide, print_aligned, print_notice, print_tables, print_with_details, print_wrapped, table_of

HOSTILE = "a\x1b[2J\x07\x9b5m\x7f\u202e\u2066\r\nb\ud800"
SHOWN = r"a\x1b[2J\x07\x9b5m\x7f\u202e\u2066\r\nb\ud800"


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def narrow(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(tables, "line_width", lambda: width)


def test_unprintable_characters_of_a_table_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of("NAME", HOSTILE, "MESSAGE")
    table.add_row(HOSTILE, Text("a\x1b[2J", "green"), HOSTILE)
    print_tables(table)
    assert [line.split() for line in lines_of(capsys)] == [["NAME", SHOWN, "MESSAGE"], [SHOWN, r"a\x1b[2J", SHOWN]]


def test_unprintable_characters_of_an_aligned_table_are_escaped_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of("NAME", "MESSAGE")
    table.add_row(HOSTILE, "x")
    table.add_row("b", "y")
    print_aligned(table)
    assert lines_of(capsys) == [f"NAME{' ' * (len(SHOWN) - 1)}MESSAGE", f"{SHOWN}   x", f"b{' ' * (len(SHOWN) + 2)}y"]


def test_escaped_characters_count_for_the_width_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, len(SHOWN))
    table = table_of("A", "B")
    table.add_row(HOSTILE, "x")
    assert is_too_wide(table)


def test_unprintable_characters_of_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of("NAME")
    table.add_row(HOSTILE)
    print_with_details(table, [[HOSTILE]])
    print_wrapped(HOSTILE)
    print_notice(HOSTILE)
    found = capsys.readouterr()
    assert found.out.splitlines() == ["NAME", SHOWN, f"  {SHOWN}", SHOWN]
    assert found.err == f"{SHOWN}\n"


def test_unprintable_characters_of_an_error_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    BadInputError(HOSTILE).show()
    assert capsys.readouterr().err == f"Error: {SHOWN}\n"


def test_colours_of_a_table_are_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = table_of("USE")
    table.add_row(Text("ab", "green"))
    print_tables(table)
    assert "\x1b[32mab" in capsys.readouterr().out


def test_a_table_keeps_all_characters_where_lines_are_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    narrow(monkeypatch, 40)
    table = table_of("NODE", "GPUS", "FREE", "STRANDED", "USE", "GANGS", wrapped="GANGS")
    table.add_row("node-1", "8", "2", "2.25", Text("aaaaaa.."), "a team/bert, b team/" + "x" * 30)
    print_tables(table)
    header, *rows = lines_of(capsys)
    assert header.split() == ["NODE", "GPUS", "FREE", "STRANDED", "USE", "GANGS"]
    assert rows[0].split()[:5] == ["node-1", "8", "2", "2.25", "aaaaaa.."]
    assert "".join("".join(rows).split()).endswith("ateam/bert,bteam/" + "x" * 30)


def test_a_cut_cell_ends_with_an_ellipsis_and_numbers_are_never_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow(monkeypatch, 40)
    table = table_of("#", "GANG", "PRIO", "MEMBERS", "GPUS", "WAITED", "START")
    cells = ["1", "1000000000", "0/2", "0.25", "20d23h", "2026-03-06 13:07"]
    table.add_row(cells[0], "namespace/name-of-a-gang", *cells[1:])
    print_with_details(table, [[]])
    header, row = lines_of(capsys)
    assert header.split() == ["#", "GANG", "PRIO", "MEMBERS", "GPUS", "WAITED", "START"]
    assert row.split() == ["1", "namespa\u2026", "1000000000", "0/2", "0.25", "20d23h", "2026-03-06", "13:07"]


@pytest.mark.parametrize("command", ["plan", "queue", "top", "explain", "history", "ui", "snapshot", "gpus"])
def test_help_says_in_which_namespace_the_operator_is_trusted(command: str) -> None:
    assert "ALLABOARD_OPERATOR_NAMESPACE" in CliRunner().invoke(cli, [command, "--help"]).stdout
