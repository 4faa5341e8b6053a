"""Plays variations of the directed schedules: the same acts, with other latencies and with slightly changed pauses.

Random schedules rarely break a rule that takes several acts in a row. Variations are to them what a corpus is to a fuzzer.
"""

import random
from collections.abc import Iterator

from . import schedules
from .directed import SCHEDULES
from .simulation import varied

VARIED = "varied"


def draw(seed: int) -> Iterator[tuple[str, int]]:
    """Yield variations without end, each as a schedule's name and a number. Every schedule comes before the first comes again."""
    chance = random.Random(seed)
    while True:
        for name in chance.sample(list(SCHEDULES), len(SCHEDULES)):
            yield name, chance.getrandbits(32)


def play(name: str, number: int) -> None:
    """Play one variation. Raises ``ViolationError``, or any error of the simulation."""
    schedules.TALLY.begun += 1
    with varied(number):
        SCHEDULES[name]()
    schedules.TALLY.schedules += 1


def seed_of(name: str, number: int) -> str:
    """Return the seed that plays a variation again."""
    return f"{VARIED}:{name}/{number}"


def play_again(seed: str) -> None:
    """Play the variation of ``seed``. Raises ``ValueError`` if there is no such schedule."""
    name, _, number = seed.partition(":")[2].partition("/")
    if name not in SCHEDULES or not number.isdecimal():
        raise ValueError(f"{seed[:80]} is no seed: there is no such directed schedule")
    play(name, int(number))
