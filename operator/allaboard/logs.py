"""Escapes log messages, so that text from a tenant or webhook can't forge a log record by beginning a new line.

One formatter escapes all records, for each logger and each program that starts the operator. So no logging call has to escape anything.
"""

import copy
import logging

from allaboard.model.errors import one_line

_CONTINUED = "\n  | "


class RecordFormatter(logging.Formatter):
    """Formatter that keeps each record recognizable as one: it escapes line ends in the message and marks the lines of a traceback.

    Example: "denied: no", a line end, and "2026-01-01 CRITICAL the lease is lost" are written on one line, with an escaped line end.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as the inner formatter writes it, with a mark before each line but the first."""
        safe = copy.copy(record)
        safe.msg, safe.args = one_line(record.getMessage()), ()
        return _CONTINUED.join(map(one_line, self._inner.format(safe).splitlines()))


def keep_records_apart() -> None:
    """Wrap the formatter of each handler of the root logger in a ``RecordFormatter``."""
    for handler in logging.getLogger().handlers:
        if not isinstance(handler.formatter, RecordFormatter):
            handler.setFormatter(RecordFormatter(handler.formatter or logging.Formatter()))
