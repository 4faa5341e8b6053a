"""Plays random schedules, and plays one of them again by its seed."""

import binascii
import itertools
import random
import re

import hypothesis
from hypothesis import Verbosity, settings
from hypothesis.errors import DidNotReproduce, InvalidArgument
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from . import variations
from .scenes import Scenes
from .schedules import options
from .stops import SchedulesWithLeaders, SchedulesWithRestarts, SchedulesWithWebhooks

MACHINES: dict[str, type[RuleBasedStateMachine]] = {
    "plain": Scenes,
    "restarts": SchedulesWithRestarts,
    "leaders": SchedulesWithLeaders,
    "webhooks": SchedulesWithWebhooks,
}
SHARES = {"plain": 0.42, "restarts": 0.42, "leaders": 0.16, "webhooks": 0.16, variations.VARIED: 0.1}
"""The number of schedules of each kind, as a part of ``SCHEDULES`` or ``SAMPLE``.

Schedules with leaders are few, since they take four times as long.
"""
BLOB = re.compile(r"\n?You can reproduce this test case by temporarily adding @reproduce_failure\('[^']+', b'([^']+)'\).*")
"""Hypothesis's message on how to play a failing schedule again."""


class ScheduleError(AssertionError):
    """Raised when a schedule broke a guarantee; ``seed`` plays that schedule again."""

    def __init__(self, problem: str, seed: str, story: str) -> None:
        super().__init__(f"{problem}\n{story}\nto play exactly this schedule again: make faults SEED={seed}")
        self.seed = seed


def play(name: str, schedules: int, *, is_fixed: bool = False) -> None:
    """Play ``schedules`` schedules of one machine, with ``is_fixed`` the same each time.

    Raises ``ScheduleError`` for a schedule that broke a guarantee. Without ``is_fixed`` it is the shortest one that hypothesis finds.
    """
    if name == variations.VARIED:
        _play_variations(schedules, is_fixed=is_fixed)
        return
    try:
        run_state_machine_as_test(MACHINES[name], settings=options(schedules, shrinks=not is_fixed, is_fixed=is_fixed))
    except Exception as error:
        raise ScheduleError(str(error), seed_of(name, error) or "none", BLOB.sub("", _notes(error))) from error


def _play_variations(number: int, *, is_fixed: bool) -> None:
    for schedule, seed in itertools.islice(variations.draw(0 if is_fixed else random.SystemRandom().getrandbits(32)), number):
        try:
            variations.play(schedule, seed)
        except Exception as error:
            raise ScheduleError(str(error), variations.seed_of(schedule, seed), f"a variation of {schedule}") from error


def seed_of(name: str, error: Exception) -> str:
    """Return the seed that plays the schedule of ``error`` again; empty if hypothesis gives none."""
    found = BLOB.search(_notes(error))
    return f"{name}:{found[1]}" if found else ""


def _notes(error: Exception) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def play_again(seed: str) -> bool:
    """Play the schedule of ``seed``; return False if it ended early. Raises what it raised before, and ``ValueError`` for no seed.

    It may end early because each act is drawn from those that are possible, and that depends on the scheduler.
    """
    name, _, blob = seed.partition(":")
    problem = ValueError(
        f"{seed[:80]} is no seed: copy all of the seed that `make faults` prints for a failed schedule; it begins with plain:,"
        " restarts:, leaders: or varied:"
    )
    if name == variations.VARIED:
        variations.play_again(seed)
        return True
    if name not in MACHINES or not blob:
        raise problem
    again = type(MACHINES[name].__name__, (MACHINES[name],), {})
    try:
        hypothesis.reproduce_failure(hypothesis.__version__, blob.encode())(again)
        run_state_machine_as_test(again, settings=settings(options(1, shrinks=False), verbosity=Verbosity.quiet))
    except (binascii.Error, InvalidArgument) as error:
        raise problem from error
    except DidNotReproduce as error:
        return "completed" in str(error)
    return True
