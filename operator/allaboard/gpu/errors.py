"""Errors of reading metrics. None of them stops the scheduler: the known measurements only get older."""


class SourceError(Exception):
    """Metrics couldn't be read. The message is safe to log: it is short, and contains neither credentials nor a whole answer."""


class TooLongError(SourceError):
    """An answer has more bytes than the limit."""
