"""Refuses schedules of CronJobs that the API server refuses.

A schedule is read as the API server reads it (robfig/cron 3.0.1 parser.go, and kubernetes pkg/apis/batch/validation, 1.37). So ``+5``,
``*-x`` and empty items of a list are valid, however odd.
"""

import re

from allaboard.model.errors import MalformedError, shown

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (("minute", 0, 59, ()), ("hour", 0, 23, ()), ("day of month", 1, 31, ()), ("month", 1, 12, _MONTHS), ("day of week", 0, 6, _DAYS))
"""The fields of a schedule, in order: each with its name, its least and greatest number, and the words allowed for its numbers."""

_MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = re.compile(r"@every [-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")


def refuse_schedule(schedule: str, field: str) -> None:
    """Raise ``MalformedError`` for a schedule that the API server refuses; ``field`` is its path."""
    problem = _problem(schedule)
    if problem:
        raise MalformedError(field, problem)


def _problem(schedule: str) -> str:
    """Return the error in a schedule; empty if it is valid."""
    if not schedule:
        return "is missing"
    if "TZ" in schedule:
        return f"{shown(schedule)} states a time zone, which belongs in the field timeZone"
    if schedule.startswith("@"):
        is_known = schedule in _MACROS or _EVERY.fullmatch(schedule)
        return "" if is_known else f"{shown(schedule)} is not one of {', '.join(_MACROS)} and '@every 1h30m'"
    stated = schedule.split()
    if len(stated) != len(_FIELDS):
        return f"{shown(schedule)} has {len(stated)} fields instead of {len(_FIELDS)}: minute, hour, day of month, month, day of week"
    for text, (name, least, most, names) in zip(stated, _FIELDS, strict=True):
        for item in filter(None, text.split(",")):
            if not _is_range(item, least, most, names):
                values = f"{least} to {most}" + (f" or {names[0]} to {names[-1]}" if names else "")
                return f"{shown(item)} is not a valid {name}: {values}, or a range of these"
    return ""


def _is_range(item: str, least: int, most: int, names: tuple[str, ...]) -> bool:
    """Return whether an item is a number, a name, ``*`` or a range within the bounds, with or without a step."""
    bounds, *steps = item.split("/")
    first, *others = bounds.split("-")
    if len(steps) > 1 or (steps and not _number(steps[0])):  # a step of 0 is invalid
        return False
    if first in ("*", "?"):
        return True
    if len(others) > 1:
        return False
    start = _value(first, least, names)
    end = _value(others[0], least, names) if others else most if steps else start
    return start is not None and end is not None and least <= start <= end <= most


def _value(word: str, least: int, names: tuple[str, ...]) -> int | None:
    return names.index(word.lower()) + least if word.lower() in names else _number(word)


def _number(word: str) -> int | None:
    """Return the whole number that ``word`` states; None if ``word`` states a negative number or is no number."""
    return int(word) if re.fullmatch(r"\+?[0-9]{1,18}", word) else None
