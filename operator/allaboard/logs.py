"""Keeps log records apart: what a tenant or a webhook has written can't begin a line of the log that looks like one of ours.

Every record passes one formatter, whoever logs it and whichever program started the operator, so no call has to escape anything.
"""

import copy
import logging

from allaboard.model.errors import one_line

_CONTINUED = "\n  | "


class RecordFormatter(logging.Formatter):
    """A formatter whose records can't be taken for several: it escapes the message and marks the further lines of a traceback.

    Example: the message "denied: no\\n2026-01-01 CRITICAL the lease is lost" stays on its own line, with a backslash and an n in it.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as the inner formatter has it, each further line of it with a mark in front."""
        safe = copy.copy(record)
        safe.msg, safe.args = one_line(record.getMessage()), ()
        return _CONTINUED.join(map(one_line, self._inner.format(safe).splitlines()))


def keep_records_apart() -> None:
    """Give each handler of the root logger a ``RecordFormatter`` around the formatter that it has."""
    for handler in logging.getLogger().handlers:
        if not isinstance(handler.formatter, RecordFormatter):
            handler.setFormatter(RecordFormatter(handler.formatter or logging.Formatter()))
