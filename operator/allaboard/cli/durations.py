"""Words for times, as kubectl writes them. Any number can be given: a file or another program may state one that is no time."""

import time

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_LONGEST = 1e11  # seconds: three thousand years
_UNKNOWN = "<unknown>"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units, such as ``2h5m``; ``0s`` for less than a second."""
    if not abs(seconds) < _LONGEST:  # this is true for nan, too
        return _UNKNOWN
    left = max(0, int(seconds))
    for place, (size, unit) in enumerate(_UNITS):
        if left >= size:
            rest, *_ = (*_UNITS[place + 1 :], (0, ""))
            more = (left % size) // rest[0] if rest[0] else 0
            return f"{left // size}{unit}{f'{more}{rest[1]}' if more else ''}"
    return "0s"


def moment(seconds: float, now: float) -> str:
    """Return a moment in local time: the time of day, with the date if that isn't today's."""
    if not (abs(seconds) < _LONGEST and abs(now) < _LONGEST):
        return _UNKNOWN
    then, today = time.localtime(seconds), time.localtime(now)
    is_today = then[:3] == today[:3]
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", then)
