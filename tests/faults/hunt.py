"""Plays schedules until one convicts, in a process whose scheduler has been tampered with: see ``mutants``.

Prints one line of JSON: how many schedules were played, and what was found, if anything was.
"""

import json
import sys
from collections.abc import Callable, Iterator
from itertools import cycle

import hypothesis
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from . import directed, schedules
from .judge import ViolationError
from .replay import MACHINES
from .schedules import options
from .simulation import quiet

_CHUNKS = (("plain", 25), ("restarts", 25), ("leaders", 10))


def directly(name: str) -> ViolationError | None:
    """What the directed schedule of that name finds."""
    try:
        getattr(directed, name)()
    except ViolationError as error:
        return error
    return None


def at_random(most: int, seed: int) -> tuple[int, Exception | None]:
    """How many random schedules were begun, and what was found; all kinds of them in turn."""
    before = schedules.TALLY.begun
    for number, (name, chunk) in enumerate(_endless(_CHUNKS)):
        left = most - (schedules.TALLY.begun - before)
        if left <= 0:
            return most, None
        machine = hypothesis.seed(seed * 1000 + number)(type(MACHINES[name].__name__, (MACHINES[name],), {}))
        played = settings(options(min(chunk, left)), phases=[Phase.generate])
        try:
            run_state_machine_as_test(machine, settings=played)  # type: ignore[no-untyped-call]  # it isn't typed
        except Exception as error:  # whatever breaks the simulation convicts as well
            return schedules.TALLY.begun - before, error
    return most, None


def _endless(chunks: tuple[tuple[str, int], ...]) -> Iterator[tuple[str, int]]:
    return cycle(chunks)


def main(say: Callable[[str], object] = print) -> None:
    """``hunt directed NAME`` or ``hunt random MOST SEED``."""
    quiet()
    how, *rest = sys.argv[1:]
    found: Exception | None
    played, found = (1, directly(rest[0])) if how == "directed" else at_random(int(rest[0]), int(rest[1]))
    rules = found.rules if isinstance(found, ViolationError) else []
    rule = (rules[0] if rules else type(found).__name__) if found else ""
    say(json.dumps({"played": played, "rule": rule, "found": str(found)[:2000] if found else ""}))


if __name__ == "__main__":
    main()
