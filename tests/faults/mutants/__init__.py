"""Mutants: schedulers that break one guarantee each, to test whether the judge notices.

A mutant is a patch with a name: code of the scheduler, and its replacement in a copy of the module. Each has a directed schedule that
convicts it at once, which CI plays; ``make faults`` plays random schedules until one does.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.forks import Forks, forking

from . import commits, halves, late, leaders, policies, releases, rules, runs, turns, webhooks
from .mutant import Edit, Mutant, patched, plant

__all__ = ["MOST", "MUTANTS", "Edit", "Mutant", "Verdict", "hunt", "hunt_all", "plant"]

MOST = 300
"""Each mutant must be found by one of so many random schedules."""
MUTANTS = (
    *commits.MUTANTS,
    *releases.MUTANTS,
    *halves.MUTANTS,
    *leaders.MUTANTS,
    *turns.MUTANTS,
    *late.MUTANTS,
    *rules.MUTANTS,
    *runs.MUTANTS,
    *policies.MUTANTS,
    *webhooks.MUTANTS,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a hunt. ``rule`` is empty if nothing was found in the ``played`` schedules.

    ``seed`` plays the random schedule that found something. Each seed of ``unsound`` plays a schedule that accuses the unchanged scheduler
    too.
    """

    mutant: Mutant
    played: int
    rule: str
    found: str
    rules: tuple[str, ...] = ()
    seed: str = ""
    unsound: tuple[str, ...] = ()


async def hunt(forks: Forks, mutant: Mutant | None, *arguments: str) -> Verdict:
    """Play schedules with a mutant, or with the unchanged scheduler: ``directed NAME``, ``random MOST SEED`` or ``again SEED``."""
    with tempfile.TemporaryDirectory(prefix="allaboard-mutant-") as folder:
        subject = mutant or Mutant("unchanged", "", "", ())
        plant(subject, Path(folder))
        output = await forks.hunt(Path(folder), *arguments)
    try:
        answer = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        return Verdict(subject, 0, "the hunt doesn't start", output[-2000:])
    return Verdict(subject, answer["played"], answer["rule"], answer["found"], tuple(answer["rules"]), answer["seed"])


async def convict(forks: Forks, mutant: Mutant, most: int, seed: int) -> Verdict:
    """Hunt a mutant by random schedules, at most ``most``.

    A schedule that convicts the mutant must acquit the unchanged scheduler. Otherwise it doesn't count, and the hunt goes on.
    """
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
    """Hunt each mutant by random schedules, ``at_once`` at a time; ``on_verdict`` is called with each result.

    Raises ``ValueError`` before the first hunt if a patch doesn't fit the code.
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
