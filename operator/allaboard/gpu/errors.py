"""What can go wrong where metrics are read. Nothing of it stops anything: what is known gets older."""


class SourceError(Exception):
    """Metrics couldn't be read. The message is fit for a log: it is short, and has neither credentials nor what was answered in full."""


class TooLongError(SourceError):
    """An answer has more bytes than are taken."""
