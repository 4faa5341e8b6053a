"""Plays schedules until one convicts, in a process whose scheduler is a mutant: see ``mutants``.

Prints one line of JSON: how many schedules were played, and what was found, if anything. ``survey MOST SEED`` doesn't stop at the first
accusation. It prints each, with the seed for ``make faults SEED=…``. On the unchanged scheduler, each is a fault of the scheduler or the
judge.
"""

import json
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, islice

import hypothesis
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from . import schedules, variations
from .directed import SCHEDULES
from .judge import ViolationError
from .replay import MACHINES, play_again, seed_of
from .schedules import options
from .simulation import quiet
from .variations import VARIED

_CHUNKS = (("plain", 20), ("restarts", 20), ("leaders", 10), (VARIED, 50))


def directly(name: str) -> ViolationError | None:
    """Return what the directed schedule of that name finds; None if nothing."""
    try:
        SCHEDULES[name]()
    except ViolationError as error:
        return error
    return None


def at_random(most: int, seed: int) -> tuple[int, Exception | None, str]:
    """Return how many random schedules were begun, what the first failing one found, and its seed; all kinds are played in turn."""
    return next(all_at_random(most, seed), (most, None, ""))


def again(seed: str) -> Exception | None:
    """Return what the schedule of ``seed`` raises; None if nothing."""
    try:
        play_again(seed)
    except Exception as error:
        return error
    return None


def all_at_random(most: int, seed: int) -> Iterator[tuple[int, Exception, str]]:
    """Yield for each finding how many schedules were begun, the error, and the seed."""
    before, scenes = schedules.TALLY.begun, variations.draw(seed)
    for number, (name, chunk) in enumerate(cycle(_CHUNKS)):
        left = most - (schedules.TALLY.begun - before)
        if left <= 0:
            return
        if name == VARIED:
            for variation in islice(scenes, min(chunk, left)):
                try:
                    variations.play(*variation)
                except Exception as error:  # any error of the simulation counts as well
                    yield schedules.TALLY.begun - before, error, variations.seed_of(*variation)
            continue
        machine = hypothesis.seed(seed * 1000 + number)(type(MACHINES[name].__name__, (MACHINES[name],), {}))
        played = settings(options(min(chunk, left)), phases=[Phase.generate])
        try:
            run_state_machine_as_test(machine, settings=played)
        except Exception as error:  # any error of the simulation convicts as well
            yield schedules.TALLY.begun - before, error, seed_of(name, error)


def survey(most: int, seed: int, say: Callable[[str], object]) -> None:
    """Play random schedules, and call ``say`` with a text about each accusation or error that is found."""
    for played, error, again_by in all_at_random(most, seed):
        say(f"{played}: {type(error).__name__} {str(error)[:500]}\n    SEED={again_by}")
    say(f"{most} schedules were played")


def main(say: Callable[[str], object] = print) -> None:
    """Hunt as the command line says: ``directed NAME``, ``random MOST SEED``, ``again SEED`` or ``survey MOST SEED``."""
    quiet()
    kind, *rest = sys.argv[1:]
    if kind == "survey":
        survey(int(rest[0]), int(rest[1]), say)
        return
    found: Exception | None
    played, seed = 1, ""
    if kind == "random":
        played, found, seed = at_random(int(rest[0]), int(rest[1]))
    else:
        found = directly(rest[0]) if kind == "directed" else again(rest[0])
    rules = found.rules if isinstance(found, ViolationError) else []
    rule = (rules[0] if rules else type(found).__name__) if found else ""
    say(json.dumps({"played": played, "rule": rule, "rules": rules, "found": str(found)[:2000] if found else "", "seed": seed}))


if __name__ == "__main__":
    main()
