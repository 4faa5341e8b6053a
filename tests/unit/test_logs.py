"""Tests that text from outside can't forge log records."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from allaboard.cli.run import _JsonLines
from allaboard.logs import RecordFormatter, keep_records_apart
from allaboard.model.errors import one_line

FORGED = "2026-11-28 12:00:00,000 CRITICAL this replica no longer leads"
LINE_ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A separate logger, and its output."""
    logger, written = logging.Logger("test"), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(RecordFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")))
    logger.addHandler(handler)
    yield logger, written
    handler.close()


@pytest.mark.parametrize("end", LINE_ENDS)
def test_a_log_message_with_line_ends_stays_on_one_line(log: tuple[logging.Logger, io.StringIO], end: str) -> None:
    logger, written = log
    logger.warning("%s was not written: %s", "condition of pod p", f"denied: no{end}{FORGED}")
    (line,) = written.getvalue().splitlines()
    assert line.endswith(f"no{one_line(end)}{FORGED}")


@pytest.mark.parametrize("end", LINE_ENDS)
def test_no_line_of_a_traceback_begins_like_a_log_record(log: tuple[logging.Logger, io.StringIO], end: str) -> None:
    logger, written = log
    try:
        raise ValueError(f"denied{end}{FORGED}")
    except ValueError:
        logger.exception("it failed")
    first, *others = written.getvalue().splitlines()
    assert first.endswith("it failed")
    assert others
    assert all(line.startswith("  | ") for line in others)


def test_terminal_escape_sequences_and_reversed_text_are_escaped(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.warning("\x1b[2J\u202eevil")
    assert written.getvalue().rstrip("\n").isprintable()


def test_log_record_in_json_is_one_object() -> None:
    record = logging.LogRecord("test", logging.WARNING, "", 1, "denied\n%s", (FORGED,), None)
    text = RecordFormatter(_JsonLines()).format(record)
    assert json.loads(text)["message"] == f"denied\\n{FORGED}"


def test_formatter_of_each_root_handler_is_wrapped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, formatted = logging.NullHandler(), logging.NullHandler()
    formatted.setFormatter(inner := logging.Formatter("%(message)s"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [plain, formatted])
    keep_records_apart()
    first = [handler.formatter for handler in (plain, formatted)]
    keep_records_apart()
    assert [handler.formatter for handler in (plain, formatted)] == first
    assert isinstance(formatted.formatter, RecordFormatter)
    assert formatted.formatter._inner is inner


@pytest.mark.parametrize("text", ["", "plain", "日本 é", "a\\nb"])
def test_printable_text_is_not_changed(text: str) -> None:
    assert one_line(text) == text


def test_lone_surrogate_character_is_escaped() -> None:
    assert one_line("\ud800").encode() == b"\\ud800"
