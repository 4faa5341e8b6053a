"""Decides what may excuse a scheduler: injected faults, and actions of others, as recorded."""

from collections.abc import Iterator

from tests.faults.gangs import GangSpec

from .books import Books
from .entries import Request

_LATE_SECONDS = 25.0
"""Seconds after a late or broken watch in which a scheduler catches up."""


LONG_SEARCHES = "searches take long"
_SEARCH_SECONDS = 25.0
"""A gang is excused for this many seconds after the time in which long searches run, since the last search may still run then."""
_STALE_SECONDS = 10.0
"""Seconds in which a scheduler acts on old state after its watch was refused and not opened again."""


def causes(books: Books, since: float, until: float, gang: GangSpec | None = None, process: str = "") -> Iterator[str]:
    """Yield the faults and foreign actions from ``since`` to ``until`` that concern a gang and a process, the latest first."""
    concerned = None if gang is None else gang.key
    for deed in reversed(books.deeds):
        if deed.until >= since and deed.at <= until and deed.gang in (None, concerned) and deed.process in ("", process or deed.process):
            yield str(deed)
    for request in reversed(books.struck):
        lasts = _STALE_SECONDS if request.verb in ("watch", "list") else 0.0
        is_then = request.sent <= until and (request.answered or books.clock()) + lasts >= since
        if is_then and _concerns(request, gang):
            yield f"a fault that hit {request.verb} of {request.plural} {request.name} ({request.status or 'no answer'})"


def is_disturbed(books: Books, since: float, gang: GangSpec) -> bool:
    """Return whether anything but refused binds may keep a gang from being released, from ``since`` on.

    Changes of nodes and of other gangs don't count.
    """
    concerned = gang.key
    if any(
        deed.until >= since and deed.gang in (None, concerned)
        for deed in books.deeds
        if deed.gang is not None or deed.process or any(word in deed.what for word in ("watches", "history", "list", LONG_SEARCHES))
    ):
        return True
    return any((request.answered or books.clock()) >= since and not request.is_bind for request in books.struck if _concerns(request, gang))


def is_forged(books: Books, gang: GangSpec) -> bool:
    """Return whether a tenant has forged the gang's annotations: then the scheduler can't know the gang's history."""
    return books.was_done(gang, ("pods are annotated",))


def is_cut_off(books: Books, since: float, process: str) -> bool:
    """Return whether anything but a silent watch has kept a process from receiving events, from ``since`` on."""
    words = ("break", "come late", "history", "list")
    if was_still(books, process, since) or any(deed.until >= since and any(word in deed.what for word in words) for deed in books.deeds):
        return True
    return any(request.verb in ("watch", "list") and (request.answered or since) >= since for request in books.struck)


def is_searching_long(books: Books) -> bool:
    """Return whether a scheduler's searches are long, or were recently: a decision may rest on the state when its search began."""
    return any(deed.what == LONG_SEARCHES and deed.until > books.clock() - _SEARCH_SECONDS for deed in books.deeds)


def are_events_late(books: Books) -> bool:
    """Return whether watches were late recently, so that a scheduler may act on old state."""
    return any("watches" in deed.what and deed.until > books.clock() - _LATE_SECONDS for deed in books.deeds)


def was_still(books: Books, process: str, since: float) -> bool:
    """Return whether a process stood still or couldn't be reached since ``since``: its reports may rest on an older state."""
    return any(deed.process == process and deed.until >= since for deed in books.deeds)


def struck_since(books: Books, gang: GangSpec) -> float:
    """Return when a fault last hit a request about a gang."""
    now = books.clock()
    return max((request.answered or now for request in books.struck if _concerns(request, gang)), default=0.0)


def quiet_since(books: Books, gang: GangSpec | None = None, *, but_binds: bool = False) -> float:
    """Return when the last fault or foreign action that concerns a gang ended.

    ``but_binds``: binds that are refused at once don't count.
    """
    concerned = None if gang is None else gang.key
    now = books.clock()
    times = [min(deed.until, now) for deed in books.deeds if deed.gang in (None, concerned)]
    times += [
        request.answered if request.answered is not None else now
        for request in books.struck
        if _concerns(request, gang) and not (but_binds and _is_refused_at_once(request))
    ]
    return max(times, default=0.0)


def _concerns(request: Request, gang: GangSpec | None) -> bool:
    """Return whether a request is about a gang, or about all gangs."""
    if gang is None or request.plural not in ("pods", "podgroups", "jobs", "events") or not request.name:
        return request.plural not in ("events",) or gang is None
    if request.plural == "events":
        return False
    return request.namespace in ("", gang.namespace) and (request.name == gang.name or request.name.startswith(f"{gang.name}-"))


def _is_refused_at_once(request: Request) -> bool:
    return request.verb == "bind" and request.status > 0 and not request.is_slow
