"""``make faults``: measures every guarantee of "all or none, under every fault", and prints whether it holds.

Each row states the procedure, the bar, the measured value, and whether the bar is met. The exit status is 0 if all are.
"""

import asyncio
import itertools
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from allaboard_sandbox import Sandbox

from . import kills, leaders, mutants, preemptions, schedules, spread, standoff
from .kills import Point, Relay, Toll
from .leaders import Replicas, Terms
from .mutants import Mutant
from .replay import SHARES, ScheduleError, play, play_again
from .schedules import SCHEDULES
from .simulation import quiet
from .soak import Soak

PARTIAL_SECONDS = 0.25
TAKEOVER_SECONDS = 1.0
TAKEOVERS = {leaders.SHORT: 5, leaders.SHIPPED: 2}
SOAK_ROUNDS, SOAK_MINUTES = 10, 10.0
STANDOFFS = 20
SCHEDULES_AT_ONCE = SCHEDULES // 10

Advance = Callable[[int, int], None]
"""A function that shows progress, given the number of steps done and the number of all steps."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A measured value, and whether it meets the bar. ``evidence`` helps to find the cause; ``details`` are shown at the end."""

    measured: str
    is_held: bool
    evidence: str = ""
    details: Table | None = None


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One row of the printed table: what is done, the bar, and the function that measures the outcome."""

    what: str
    bar: str
    measure: Callable[[Path, Advance], Coroutine[None, None, Outcome]]


async def killed_at_every_call(folder: Path, advance: Advance) -> Outcome:
    toll = Toll()
    async with Sandbox() as cluster:
        kills.furnish(cluster)
        kubeconfig = _kubeconfig(cluster, folder)
        async with Relay(cluster, kubeconfig, folder) as relay:
            counted = len(await kills.count_calls(cluster))
            names = (f"gang-{number}" for number in itertools.count())
            for call in itertools.count(1):
                points = [Point(call, False), Point(call, True), Point(call, call % 2 == 0, "bare")]
                for point in points:
                    await kills.kill_at(point, cluster, relay, toll, next(names))
                advance(call, max(counted + 1, call))
                # Messages may be sent together or apart, so commits differ by a call or two: the end is the first call that never comes.
                if all(point in toll.missed for point in points):
                    break
    return Outcome(str(toll), toll.is_clean, toll.complaints())


async def killed_at_every_call_of_a_preemption(folder: Path, advance: Advance) -> Outcome:
    toll = preemptions.PreemptionToll()
    async with Sandbox() as cluster:
        preemptions.furnish(cluster)
        async with Relay(cluster, _kubeconfig(cluster, folder), folder) as relay:
            await preemptions.settle(cluster)
            await preemptions.kill_at_every_call(cluster, relay, toll, lambda call: advance(call, max(45, call + 1)))
    return Outcome(str(toll), not toll.complaints, "; ".join(toll.complaints))


async def stopped_at_every_call(folder: Path, advance: Advance) -> Outcome:
    terms = Terms()
    async with Sandbox() as cluster:
        kills.furnish(cluster)
        async with Replicas(cluster, _kubeconfig(cluster, folder), folder) as replicas:
            call = 1
            while await leaders.stop_at(call, cluster, replicas, terms, f"gang-{call}"):
                advance(call, max(24, call + 1))
                call += 1
    return Outcome(str(terms), terms.is_clean, terms.complaints())


async def killed_under_load(folder: Path, advance: Advance) -> Outcome:
    text, longest, done = [], 0.0, 0
    for times, count in TAKEOVERS.items():
        here = folder / str(times.duration)
        here.mkdir()
        async with Sandbox() as cluster:
            kills.furnish(cluster)
            async with Replicas(cluster, _kubeconfig(cluster, here), here, times) as replicas:
                delays = []
                for number in range(count):
                    delays.append(await leaders.take_over(cluster, replicas, f"load-{number}"))
                    done += 1
                    advance(done, sum(TAKEOVERS.values()))
        longest = max(longest, *delays)
        lease = f"{times.duration:g}/{times.renew_deadline:g}/{times.retry:g}"
        text.append(f"{max(delays):.2f} s at most in {count} take-overs at {lease} s")
    return Outcome(", ".join(text), longest <= TAKEOVER_SECONDS)


async def played(folder: Path, advance: Advance) -> Outcome:
    return await asyncio.to_thread(_played, advance)


def _played(advance: Advance) -> Outcome:
    quiet()
    tally = schedules.TALLY = schedules.Tally()
    rounds = SCHEDULES // SCHEDULES_AT_ONCE + 1
    for number in range(rounds):
        for name, share in SHARES.items():
            try:
                play(name, math.ceil(share * SCHEDULES_AT_ONCE))
            except ScheduleError as error:
                return Outcome(f"{tally}; one failed: make faults SEED={error.seed}", False, str(error))
        advance(number + 1, rounds)
    return Outcome(str(tally), tally.schedules >= SCHEDULES)


async def hunted(hunt: Sequence[Mutant], folder: Path, advance: Advance) -> Outcome:
    """Measure whether the judge finds each mutant in random schedules."""
    done = itertools.count(1)
    seed = random.SystemRandom().randrange(1000)
    verdicts = await mutants.hunt_all(hunt, lambda _: advance(next(done), len(hunt)), seed=seed)
    table = Table("mutant", "found after", "by the rule", title=f"Schedulers that break one guarantee each (hunt {seed})")
    for verdict in verdicts:
        table.add_row(verdict.mutant.name, str(verdict.played) if verdict.rule else "-", verdict.rule or "[red]not found")
    found = [verdict.played for verdict in verdicts if verdict.rule]
    missed = [verdict.mutant.name for verdict in verdicts if not verdict.rule]
    unsound = sorted({seed for verdict in verdicts for seed in verdict.unsound})
    text = f"{len(found)} of {len(verdicts)} found, the last after {max(found, default=0)} schedules"
    evidence = [f"not found: {', '.join(missed)}"] if missed else []
    evidence += [f"the unchanged scheduler is accused, too: make faults SEED={seed}" for seed in unsound]
    return Outcome(text, not evidence, "\n".join(evidence), table)


async def measured_standoff(folder: Path, advance: Advance) -> Outcome:
    return await asyncio.to_thread(_measured_standoff)


def _measured_standoff() -> Outcome:
    waits, wrong = [], 0
    for seed in range(STANDOFFS):
        seconds, is_right = standoff.play(seed)
        waits.append(seconds if seconds is not None else float("inf"))
        wrong += not is_right
    text = f"the older whole after {max(waits):.0f} s at most of {2 * standoff.TIMEOUT_SECONDS} s, the younger partially bound in {wrong}"
    return Outcome(f"{text} of {STANDOFFS} runs", max(waits) <= 2 * standoff.TIMEOUT_SECONDS and not wrong)


def soaked(minutes: float) -> Callable[[Path, Advance], Coroutine[None, None, Outcome]]:
    async def soak(folder: Path, advance: Advance) -> Outcome:
        rounds = iter(range(1, SOAK_ROUNDS + 2))
        soak = Soak(folder, seed=1, on_gauge=lambda _: advance(next(rounds), SOAK_ROUNDS + 1))
        result = await soak.run(60 * minutes, SOAK_ROUNDS)
        problems = [*result.violations, *result.growth()]
        return Outcome(str(result), not problems, "; ".join(problems[:20]))

    return soak


async def partially_bound(folder: Path, advance: Advance) -> Outcome:
    spreads = await spread.partially_bound_seconds(folder, 100, lambda number: advance(number, 100))
    value = spread.p99(spreads)
    return Outcome(f"{1000 * value:.0f} ms", value <= PARTIAL_SECONDS)


def guarantees(minutes: float, hunt: Sequence[Mutant] = mutants.MUTANTS) -> Sequence[Guarantee]:
    """Return the rows, the most important first."""
    nothing = "every gang whole or absent; no capacity leaked; 0 pods lost"
    return [
        Guarantee(
            "killed (SIGKILL) at every API call of committing 8 members, before and after it, and restarted", nothing, killed_at_every_call
        ),
        Guarantee(
            "killed (SIGKILL) at every API call of a preemption, before and after it, and restarted",
            "the gang of high priority starts; only the pods that were chosen first are evicted",
            killed_at_every_call_of_a_preemption,
        ),
        Guarantee(
            "leader stopped (SIGSTOP) before each request of the commit, follower takes over, SIGCONT",
            "no attempt mixes two plans; no node over-committed",
            stopped_at_every_call,
        ),
        Guarantee(
            "leader killed under load", f"first decision of the other ≤ {TAKEOVER_SECONDS:g} s after lease expiry", killed_under_load
        ),
        Guarantee("random schedules of faults", f"≥ {SCHEDULES:,} schedules, 0 violations", played),
        Guarantee(
            f"{len(hunt)} schedulers that break one guarantee each, played random schedules",
            f"each convicted within {mutants.MOST} schedules",
            partial(hunted, hunt),
        ),
        Guarantee(
            "two partially bound gangs that need each other's capacity",
            "the older whole within two time-outs, the younger absent or whole later",
            measured_standoff,
        ),
        Guarantee(
            "64 members bound without a fault", f"partially bound for ≤ {1000 * PARTIAL_SECONDS:.0f} ms (p99 of 100)", partially_bound
        ),
        Guarantee(
            f"soak: {minutes:g} minutes of gangs with faults on", "0 violations; memory, tasks and handles don't grow", soaked(minutes)
        ),
    ]


def _rows() -> str:
    r"""Return the list of measurements for ``--help``; ``\\b`` makes click keep its line breaks."""
    rows = (f"  {guarantee.what}\n      bar: {guarantee.bar}" for guarantee in guarantees(SOAK_MINUTES))
    return "\b\nWhat is measured:\n" + "\n".join(rows)


@click.command(epilog=_rows())
@click.option("--seed", default="", help="Play only the random schedule of this seed.")
@click.option("--minutes", default=SOAK_MINUTES, show_default=True, help="How long to soak.")
@click.option("--only", multiple=True, metavar="TEXT", help="Measure only the rows whose name contains TEXT (repeatable).")
@click.option("--mutant", default="", metavar="TEXT", help="Hunt only the mutants whose name contains TEXT.")
def main(seed: str, minutes: float, only: Sequence[str], mutant: str) -> None:
    """Measure what holds under faults.

    The mutants, schedulers that break one guarantee each, are in tests/faults/mutants.
    """
    console = Console()
    if seed:
        _replay(console, seed)
        return
    hunt = [each for each in mutants.MUTANTS if mutant in each.name]
    if not hunt:
        raise click.UsageError(f"no mutant's name contains {mutant!r}: see tests/faults/mutants")
    if mutant:
        only = (*only, "break one guarantee")
    table = Table("", "bar", "measured", "held", title="All or none, under every fault", show_lines=True)
    wanted = [guarantee for guarantee in guarantees(minutes, hunt) if not only or any(text in guarantee.what for text in only)]
    if not wanted:
        rows = "\n".join(f"  {guarantee.what}" for guarantee in guarantees(minutes))
        raise click.UsageError(f"no row's name contains {' or '.join(map(repr, only))}; the rows are\n{rows}")
    is_held, evidence, details = True, [], []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, tempfile.TemporaryDirectory(prefix="allaboard-faults-") as folder:
        for number, guarantee in enumerate(wanted):
            task = progress.add_task(guarantee.what[:60], total=None)
            outcome = _measured(guarantee, Path(folder, str(number)), progress, task)
            table.add_row(guarantee.what, guarantee.bar, outcome.measured, "[green]yes" if outcome.is_held else "[red]NO")
            is_held &= outcome.is_held
            details += [outcome.details] if outcome.details else []
            if outcome.evidence:
                evidence.append(f"{guarantee.what}: {outcome.evidence}")
    for each in (*details, table):
        console.print(each)
    for text in evidence:
        console.print(text, markup=False, highlight=False, soft_wrap=True)  # seeds are copied
    sys.exit(0 if is_held else 1)


def _measured(guarantee: Guarantee, folder: Path, progress: Progress, task: TaskID) -> Outcome:
    """Return the outcome of one row; an error in measuring it counts as a bar that isn't met."""
    folder.mkdir()
    started = time.monotonic()
    try:
        outcome = asyncio.run(guarantee.measure(folder, lambda done, total: progress.update(task, completed=done, total=total)))
    except Exception as error:
        outcome = Outcome(f"failed: {type(error).__name__}", False, str(error))
    progress.update(task, total=1, completed=1)
    progress.console.print(
        f"{'held' if outcome.is_held else 'NOT HELD'} in {time.monotonic() - started:.0f} s: {guarantee.what}: {outcome.measured}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return outcome


def _replay(console: Console, seed: str) -> None:
    quiet()
    try:
        is_whole = play_again(seed)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except Exception as error:
        console.print("\n".join([str(error), *getattr(error, "__notes__", ())]), markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    cut = "" if is_whole else ", but ended early: the scheduler acts differently, or the schedules have changed"
    console.print(f"the schedule no longer breaks a guarantee{cut}", soft_wrap=True)


def _kubeconfig(cluster: Sandbox, folder: Path) -> Path:
    cluster.write_kubeconfig(folder / "kubeconfig")
    return folder / "kubeconfig"


if __name__ == "__main__":
    os.environ.pop("KUBECONFIG", None)
    main()
