"""Errors of reading metrics. None of these errors stops the scheduler: the known measurements only get older."""


class SourceError(Exception):
    """Raised if metrics couldn't be read.

    The message is safe to log: it is short, and contains neither credentials nor a whole answer.
    """


class TooLongError(SourceError):
    """Raised for an answer with more bytes than the limit."""
