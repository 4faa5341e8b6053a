"""How fast gangs are bound, by Allaboard and by the gang scheduling that kube-scheduler has of its own.

One thing to know before changing it: everything but the scheduler is the same for both contenders, and none of it may be what is
measured. So pods are created by a process of their own, and bound pods are heard of by one watch that sends little.
"""

import asyncio
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import aiohttp
import click
import numpy as np
from rich.console import Console
from rich.table import Table

from contenders import CONTENDERS, HOMES, Connection, Home, progress
from load import SCENARIOS, Binds, Load, Scenario, a_node, create, furnish, prepare, warm_up
from operator_process import children, cpu_seconds, memory_mib

_TABLE_WIDTH = 140
_QUIET_SHARE = 0.06  # of a processor: what an idle scheduler may use
_QUIET_SECONDS = (0.5, 20.0)  # how long it must be idle, and how long that is waited for


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of one scenario by one contender."""

    pods_per_second: float
    latency_p50: float
    latency_p99: float
    in_part: float
    scheduler_cpu_seconds: float
    scheduler_mib: float
    created_seconds: float
    servers_cpu_seconds: float
    load_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """Where figures come from."""

    scenario: str
    contender: str
    number: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same in every run."""

    nodes: int
    concurrency: int
    timeout: float


async def measure(home: Home, contender: str, scenario: Scenario, rules: Rules, generator: Executor, profile: Path | None) -> Figures:
    """One scenario by one contender, on a cluster that nobody has used."""
    connection = Connection.of(home.kubeconfig)
    async with connection.session() as session:
        await furnish(session, [a_node(number) for number in range(rules.nodes)])
        async with CONTENDERS[contender](home, profile) as pid:
            await warm_up(session, contender)
            return await _run(session, connection, home, pid, contender, scenario, rules, generator)


async def _run(
    session: aiohttp.ClientSession,
    connection: Connection,
    home: Home,
    pid: int,
    contender: str,
    scenario: Scenario,
    rules: Rules,
    generator: Executor,
) -> Figures:
    bodies = await prepare(session, contender, scenario)
    await _quiet(pid)
    binds = Binds(scenario)
    async with binds.listening(session) as listener:
        before, servers_before = _used([pid]), _used(home.servers)
        load = Load(connection, scenario.gangs, bodies, rules.concurrency)
        created = await asyncio.get_running_loop().run_in_executor(generator, create, load)
        await binds.all_bound(listener, rules.timeout, f"{contender}, {scenario}")
        servers_used = _used(home.servers) - servers_before
        await _quiet(pid)
        first = np.array(created.first)
        latency = binds.last - first
        return Figures(
            pods_per_second=scenario.pods / float(binds.last.max() - first.min()),
            latency_p50=float(np.percentile(latency, 50)),
            latency_p99=float(np.percentile(latency, 99)),
            in_part=float((binds.last - binds.first).max()),
            scheduler_cpu_seconds=_used([pid]) - before,
            scheduler_mib=sum(memory_mib(each)[1] for each in _family(pid)),
            created_seconds=created.ended - float(first.min()),
            servers_cpu_seconds=servers_used,
            load_cpu_seconds=created.cpu_seconds,
        )


async def _quiet(pid: int) -> None:
    """Wait until a scheduler has nothing to do: it writes events after the last bind, and they are its work as well."""
    window, longest = _QUIET_SECONDS
    deadline = time.monotonic() + longest
    used = _used([pid])
    while time.monotonic() < deadline:
        await asyncio.sleep(window)
        before, used = used, _used([pid])
        if used - before <= _QUIET_SHARE * window:
            return


def _family(pid: int) -> list[int]:
    return [pid, *(each for child in children(pid) for each in _family(child))]


def _used(pids: Sequence[int]) -> float:
    """Processor time of processes and of what they have started."""
    return sum(cpu_seconds(each) for pid in pids for each in _family(pid))


async def measure_all(
    home: str, scenarios: Sequence[Scenario], contenders: Sequence[str], runs: int, rules: Rules, profile: Path | None
) -> tuple[list[Run], str]:
    """Every scenario by every contender, turn by turn, each on a cluster of its own; and what the clusters were made of."""
    done: list[Run] = []
    description = ""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as generator:
        generator.submit(os.getpid).result()  # importing is no part of creating
        for number in range(1, runs + 1):
            for scenario in scenarios:
                # Whoever is second in one run is first in the next.
                for contender in contenders if number % 2 else contenders[::-1]:
                    label = f"run {number}/{runs}, {scenario}, {contender}"
                    target = _profile_of(profile, scenario, number, len(scenarios) * runs) if contender == "allaboard" else None
                    with progress.status(label), tempfile.TemporaryDirectory(prefix="allaboard-throughput-") as folder:
                        async with HOMES[home](Path(folder)) as cluster:
                            figures = await measure(cluster, contender, scenario, rules, generator, target)
                            description = max(description, cluster.describe(), key=len)  # the one with kube-scheduler
                    done.append(Run(str(scenario), contender, number, figures))
                    progress.print(f"{label}: {figures.pods_per_second:.0f} pods/s" + (f", profile in {target}" if target else ""))
    return done, description


def _profile_of(profile: Path | None, scenario: Scenario, number: int, files: int) -> Path | None:
    """Where the profile of one run goes: the file named, with the scenario and run in its name when there are several."""
    if profile is None or files == 1:
        return profile and profile.absolute()
    return profile.absolute().with_stem(f"{profile.stem}-{scenario}-{number}")


def medians(runs: Sequence[Run]) -> dict[tuple[str, str], Figures]:
    """The median of each figure by scenario and contender, in the order they were first run."""
    grouped: dict[tuple[str, str], list[Figures]] = {}
    for run in runs:
        grouped.setdefault((run.scenario, run.contender), []).append(run.figures)
    names = [field.name for field in fields(Figures)]
    return {key: Figures(*(statistics.median(getattr(each, name) for each in group) for name in names)) for key, group in grouped.items()}


def as_table(runs: Sequence[Run], title: str) -> Table:
    """One row a scenario and contender; with several runs, medians and the range of pods per second."""
    found = medians(runs)
    several = len({run.number for run in runs}) > 1
    table = Table(title=title)
    table.add_column("gangs×pods", no_wrap=True)
    table.add_column("contender", no_wrap=True)
    columns = (
        "pods/s",
        *(("range",) if several else ()),
        "ratio",
        "p50 s",
        "p99 s",
        "in part s",
        "CPU s",
        "MiB",
        "created s",
        "servers' CPU s",
    )
    for column in columns:
        table.add_column(column, justify="right")
    last = ""
    for (scenario, contender), figures in found.items():
        if last and scenario != last:
            table.add_section()
        other = found.get((scenario, "native"))
        speeds = [run.figures.pods_per_second for run in runs if (run.scenario, run.contender) == (scenario, contender)]
        table.add_row(
            scenario.replace("x", "×") if scenario != last else "",
            contender,
            f"{figures.pods_per_second:.0f}",
            *((f"{min(speeds):.0f}–{max(speeds):.0f}",) if several else ()),
            f"{figures.pods_per_second / other.pods_per_second:.2f}" if other and contender != "native" else "",
            f"{figures.latency_p50:.2f}",
            f"{figures.latency_p99:.2f}",
            f"{figures.in_part:.2f}",
            f"{figures.scheduler_cpu_seconds:.1f}",
            f"{figures.scheduler_mib:.0f}",
            f"{figures.created_seconds:.2f}",
            f"{figures.servers_cpu_seconds:.1f}",
        )
        last = scenario
    return table


def as_json(runs: Sequence[Run], description: str, rules: Rules) -> str:
    """All runs and their medians."""
    content = {
        "cluster": description,
        "machine": {"processors": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "rules": asdict(rules),
        "runs": [asdict(run) for run in runs],
        "medians": [
            {"scenario": scenario, "contender": contender, **asdict(figures)} for (scenario, contender), figures in medians(runs).items()
        ],
    }
    return json.dumps(content, indent=2)


_EPILOG = """
\b
How it counts, the same way for both contenders:
  pods/s         pods, divided by the seconds from sending the first create to hearing of the last bind
  p50, p99       of the gangs' latency: from sending a gang's first create to hearing of its last bind
  in part        the longest time that any gang had some members bound and others not
  CPU s          processor time of the scheduler with its workers, from the first create until it has nothing left to
                 say (events are written after the last bind); MiB is its resident memory at its highest
  created s      how long the creates took: no scheduler can be faster than its pods come
  servers' CPU s processor time of etcd, kube-apiserver, kube-controller-manager and kwok until the last bind
A bind counts when its event arrives at a watch of bound pods; the API's own times have a resolution of one second.

Each scenario of each contender has a cluster of its own, booted anew with the same flags, with 16 cpu, 64 GiB and 110
pods a node. Before the clock starts, the nodes are ready, the scheduler has bound one pod, and the native PodGroups
exist. A gang of one is a plain pod for both. kube-scheduler's client has qps 1000 and burst 2000, and runs for its own
turns only.

\b
Examples:
  python benchmarks/throughput.py                                             everything once, about three minutes
  python benchmarks/throughput.py --runs 5 -o json > figures.json             medians that can be compared
  python benchmarks/throughput.py --scenario 1x1000 --contender allaboard     one of each
  python benchmarks/throughput.py --contender allaboard --profile a.prof      where the operator's time goes
  python benchmarks/throughput.py --home sandbox                              nothing to build, Allaboard alone
"""


@click.command(help=(__doc__ or "").partition("\n")[0], epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    type=click.Choice([*HOMES]),
    default="controlplane",
    show_default=True,
    help="A real control plane, whose programs are built with Go when they are missing, or the sandbox, which knows no native gangs.",
)
@click.option("--scenario", "names", type=click.Choice([*SCENARIOS]), multiple=True, help="Gangs and their size; may be repeated [all].")
@click.option("--contender", "contenders", type=click.Choice([*CONTENDERS]), multiple=True, help="May be repeated [all the home has].")
@click.option("--nodes", type=click.IntRange(min=63), default=200, show_default=True, help="1,000 pods of 1 cpu need at least 63.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="How often; the table then shows medians.")
@click.option("--concurrency", type=click.IntRange(min=1), default=32, show_default=True, help="Creates in flight at once.")
@click.option("--timeout", type=click.FloatRange(min=1), default=300.0, show_default=True, help="Seconds for binding all pods.")
@click.option(
    "--profile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write a profile of the operator: by py-spy (speedscope) if it is installed, else by cProfile, which slows it down.",
)
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True, help="JSON has every run.")
def main(
    home: str,
    names: tuple[str, ...],
    contenders: tuple[str, ...],
    nodes: int,
    runs: int,
    concurrency: int,
    timeout: float,
    profile: Path | None,
    output: str,
) -> None:
    """Measure, and print."""
    rules = Rules(nodes, concurrency, timeout)
    if home == "sandbox" and "native" in contenders:
        raise click.UsageError("the sandbox has no kube-scheduler: leave --contender native out, or use --home controlplane")
    chosen = contenders or tuple(name for name in CONTENDERS if home != "sandbox" or name != "native")
    scenarios = [SCENARIOS[name] for name in names or SCENARIOS]
    try:
        done, description = asyncio.run(measure_all(home, scenarios, chosen, runs, rules, profile))
    except (RuntimeError, aiohttp.ClientError) as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(as_json(done, description, rules))
        return
    # A table that is cut says nothing; what isn't a terminal takes any width.
    console = Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)
    console.print(as_table(done, f"1,000 pods on {nodes} nodes"))
    console.print(description, style="dim", highlight=False)


if __name__ == "__main__":
    main()
