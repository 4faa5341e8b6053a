"""Variations of the directed schedules: the same things happen, with other latencies and pauses a little shorter or longer.

A rule that is about many things in a row is met by chance too seldom. Variations are to random schedules what a corpus is to a fuzzer.
"""

import random
from collections.abc import Iterator

from . import schedules
from .directed import SCHEDULES
from .simulation import varied

VARIED = "varied"


def draw(seed: int) -> Iterator[tuple[str, int]]:
    """Variations without end, each a schedule's name and a number; every schedule comes before the first comes again."""
    chance = random.Random(seed)
    while True:
        for name in chance.sample(list(SCHEDULES), len(SCHEDULES)):
            yield name, chance.getrandbits(32)


def play(name: str, number: int) -> None:
    """Play one. Raises what it raises: ``ViolationError``, or whatever breaks the simulation."""
    schedules.TALLY.begun += 1
    with varied(number):
        SCHEDULES[name]()
    schedules.TALLY.schedules += 1


def seed_of(name: str, number: int) -> str:
    """What plays it again."""
    return f"{VARIED}:{name}/{number}"


def play_again(seed: str) -> None:
    """Play the variation that ``seed`` stands for. Raises ``ValueError`` if there is no such schedule."""
    name, _, number = seed.partition(":")[2].partition("/")
    if name not in SCHEDULES or not number.isdecimal():
        raise ValueError(f"{seed[:80]} is no seed: there is no such directed schedule")
    play(name, int(number))
