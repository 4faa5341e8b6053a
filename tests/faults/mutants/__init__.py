"""Schedulers that break one promise each: does the judge notice?

A mutant is a patch with a name: what stands in a module of the scheduler, and what takes its place in a copy of it. Each has a
directed schedule that convicts it at once, which CI plays; ``make faults`` plays random ones until one does.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.forks import Forks, forking

from . import commits, halves, late, leaders, releases, rules, runs, turns
from .mutant import Edit, Mutant, patched, plant

__all__ = ["MOST", "MUTANTS", "Edit", "Mutant", "Verdict", "hunt", "hunt_all", "plant"]

MOST = 300
"""Schedules within which each mutant must be found."""
MUTANTS = (
    *commits.MUTANTS,
    *releases.MUTANTS,
    *halves.MUTANTS,
    *leaders.MUTANTS,
    *turns.MUTANTS,
    *late.MUTANTS,
    *rules.MUTANTS,
    *runs.MUTANTS,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a hunt: ``rule`` is empty when nothing was found in as many schedules as were ``played``.

    ``seed`` plays a random schedule again that has found something; each of ``unsound`` one that accuses the scheduler as it is as well.
    """

    mutant: Mutant
    played: int
    rule: str
    found: str
    rules: tuple[str, ...] = ()
    seed: str = ""
    unsound: tuple[str, ...] = ()


async def hunt(forks: Forks, mutant: Mutant | None, *how: str) -> Verdict:
    """Play schedules with a mutant, or with the scheduler as it is: ``directed NAME``, ``random MOST SEED`` or ``again SEED``."""
    with tempfile.TemporaryDirectory(prefix="allaboard-mutant-") as folder:
        subject = mutant or Mutant("as it is", "", "", ())
        plant(subject, Path(folder))
        said = await forks.hunt(Path(folder), *how)
    try:
        answer = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError):
        return Verdict(subject, 0, "it doesn't start", said[-2000:])
    return Verdict(subject, answer["played"], answer["rule"], answer["found"], tuple(answer["rules"]), answer["seed"])


async def convict(forks: Forks, mutant: Mutant, most: int, seed: int) -> Verdict:
    """Hunt a mutant by random schedules. What convicts it must acquit the scheduler as it is, or it says nothing, and the hunt goes on."""
    played, unsound = 0, list[str]()
    while True:
        verdict = await hunt(forks, mutant, "random", str(most - played), str(seed + len(unsound)))
        played += verdict.played
        is_sound = not verdict.seed or not (await hunt(forks, None, "again", verdict.seed)).rule
        if not is_sound:
            unsound.append(verdict.seed)
            verdict = replace(verdict, rule="", found="", rules=(), seed="")
        if is_sound or played >= most:
            return replace(verdict, played=played, unsound=tuple(unsound))


async def hunt_all(
    mutants: Sequence[Mutant],
    on_verdict: Callable[[Verdict], None],
    *,
    most: int = MOST,
    seed: int = 1,
    at_once: int = 2,
) -> list[Verdict]:
    """Hunt each by random schedules, a few at once; ``on_verdict`` hears of each that has come to its end.

    Raises ``ValueError`` before the first when a patch doesn't fit the code any more.
    """
    for mutant in mutants:
        patched(mutant)
    turns_left = asyncio.Semaphore(at_once)

    with forking() as forks:

        async def one(mutant: Mutant) -> Verdict:
            async with turns_left:
                verdict = await convict(forks, mutant, most, seed)
                on_verdict(verdict)
                return verdict

        return list(await asyncio.gather(*map(one, mutants)))
