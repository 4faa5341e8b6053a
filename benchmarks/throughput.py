"""Measure how fast gangs are bound by Allaboard and by kube-scheduler's own gang scheduling.

Only the scheduler differs between contenders, and nothing else may limit the result. Therefore a process of its own creates the pods, and a
single watch of metadata reports the bound pods.
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

from contenders import CONTENDERS, HOMES, NO_SCHEDULER, USUAL, Connection, Home, progress
from load import SCENARIOS, Binds, Load, Scenario, a_node, create, furnish, prepare, warm_up
from operator_process import children, cpu_seconds, memory_mib

_TABLE_WIDTH = 140
_IDLE_SHARE = 0.06  # of a processor; the most that an idle scheduler uses
_IDLE_SECONDS = (0.5, 20.0)  # how long the scheduler must be idle, and the longest wait for that


@dataclass(frozen=True, slots=True)
class Figures:
    """Results of one run of one scenario by one contender; the help text ``_EPILOG`` explains each of them."""

    pods_per_second: float
    latency_p50: float
    latency_p99: float
    in_part: float
    scheduler_cpu_seconds: float
    scheduler_mib: float
    created_seconds: float
    servers_cpu_seconds: float
    api_server_cpu_seconds: float
    etcd_cpu_seconds: float
    load_cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of a run, with its scenario, contender and number."""

    scenario: str
    contender: str
    number: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class Rules:
    """Options that are the same in every run; ``timeout`` is in seconds."""

    nodes: int
    concurrency: int
    timeout: float


async def measure(home: Home, contender: str, scenario: Scenario, rules: Rules, generator: Executor, profile: Path | None) -> Figures:
    """Run one scenario by one contender, on a fresh cluster."""
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
    await _wait_until_idle(pid)
    binds = Binds(scenario)
    async with binds.listening(session) as listener:
        before, servers_before = _used([pid]), {name: _used([each]) for name, each in home.servers.items()}
        load = Load(connection, scenario.gangs, bodies, rules.concurrency)
        created = await asyncio.get_running_loop().run_in_executor(generator, create, load)
        await binds.all_bound(listener, rules.timeout, f"{contender}, {scenario}")
        servers_used = {name: _used([each]) - servers_before[name] for name, each in home.servers.items()}
        await _wait_until_idle(pid)
        first = np.array(created.first)
        latency = binds.last - first
        return Figures(
            pods_per_second=scenario.pods / float(binds.last.max() - first.min()),
            latency_p50=float(np.percentile(latency, 50)),
            latency_p99=float(np.percentile(latency, 99)),
            in_part=float((binds.last - binds.first).max()),
            scheduler_cpu_seconds=_used([pid]) - before,
            scheduler_mib=sum(memory_mib(each)[1] for each in _with_descendants(pid)),
            created_seconds=created.ended - float(first.min()),
            servers_cpu_seconds=sum(servers_used.values()),
            api_server_cpu_seconds=servers_used["kube-apiserver"],
            etcd_cpu_seconds=servers_used.get("etcd", 0.0),
            load_cpu_seconds=created.cpu_seconds,
        )


async def _wait_until_idle(pid: int) -> None:
    """Wait until a scheduler is idle. It writes events after the last bind, and they count as its work."""
    window, longest = _IDLE_SECONDS
    deadline = time.monotonic() + longest
    used = _used([pid])
    while time.monotonic() < deadline:
        await asyncio.sleep(window)
        before, used = used, _used([pid])
        if used - before <= _IDLE_SHARE * window:
            return


def _with_descendants(pid: int) -> list[int]:
    return [pid, *(each for child in children(pid) for each in _with_descendants(child))]


def _used(pids: Sequence[int]) -> float:
    """Return the processor seconds of processes and of all their descendants."""
    return sum(cpu_seconds(each) for pid in pids for each in _with_descendants(pid))


async def measure_all(
    home: str, scenarios: Sequence[Scenario], contenders: Sequence[str], runs: int, rules: Rules, profile: Path | None
) -> tuple[list[Run], str]:
    """Run every scenario by every contender in turn, each on a cluster of its own; return the runs and a description of the clusters."""
    done: list[Run] = []
    description = ""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as generator:
        generator.submit(os.getpid).result()  # imports shouldn't be measured
        for number in range(1, runs + 1):
            for scenario in scenarios:
                # The order alternates, so that no contender is always first.
                for contender in contenders if number % 2 else contenders[::-1]:
                    label = f"run {number}/{runs}, {scenario}, {contender}"
                    target = _profile_of(profile, scenario, number, len(scenarios) * runs) if contender == "allaboard" else None
                    with progress.status(label), tempfile.TemporaryDirectory(prefix="allaboard-throughput-") as folder:
                        async with HOMES[home](Path(folder)) as cluster:
                            figures = await measure(cluster, contender, scenario, rules, generator, target)
                            description = max(description, cluster.describe(), key=len)  # the longest includes kube-scheduler
                    done.append(Run(str(scenario), contender, number, figures))
                    progress.print(f"{label}: {figures.pods_per_second:.0f} pods/s" + (f", profile in {target}" if target else ""))
    return done, description


def _profile_of(profile: Path | None, scenario: Scenario, number: int, files: int) -> Path | None:
    """Return the file for the profile of one run: ``profile``, with scenario and run in its name if there are several ``files``."""
    if profile is None or files == 1:
        return profile and profile.absolute()
    return profile.absolute().with_stem(f"{profile.stem}-{scenario}-{number}")


def medians(runs: Sequence[Run]) -> dict[tuple[str, str], Figures]:
    """Return the median of each figure by scenario and contender, in the order of their first runs."""
    grouped: dict[tuple[str, str], list[Figures]] = {}
    for run in runs:
        grouped.setdefault((run.scenario, run.contender), []).append(run.figures)
    names = [field.name for field in fields(Figures)]
    return {key: Figures(*(statistics.median(getattr(each, name) for each in group) for name in names)) for key, group in grouped.items()}


def as_table(runs: Sequence[Run], title: str) -> Table:
    """Return a row for each scenario and contender; with several runs, medians and the range of pods per second."""
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
        "API server's",
        "etcd's",
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
            f"{figures.api_server_cpu_seconds:.1f}",
            f"{figures.etcd_cpu_seconds:.1f}",
        )
        last = scenario
    return table


def as_json(runs: Sequence[Run], description: str, rules: Rules) -> str:
    """Return all runs and their medians as JSON."""
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
The columns, measured in the same way for all contenders:
  pods/s         pods, divided by the seconds from sending the first create to receiving the last bind
  p50, p99       quantiles of the gangs' latency: seconds from sending a gang's first create to receiving its last bind
  in part        the longest time for which a gang had some members bound and others not
  CPU s          processor time of the scheduler and its child processes, from the first create until the scheduler is
                 idle; it writes events after the last bind
  MiB            peak resident memory of the scheduler and its child processes
  created s      seconds that the creates took; no scheduler can be faster
  servers' CPU s processor time of etcd, kube-apiserver, kube-controller-manager and kwok until the last bind; then that
                 of kube-apiserver and of etcd alone
A bind counts when its event arrives at a watch of bound pods, since times in the API have a resolution of one second.

Each run of a scenario by a contender has a fresh cluster with the same flags. A node has 16 cpu, 64 GiB and 110 pods.
Before the measurement starts, the nodes are ready, the scheduler has bound one pod, and the PodGroups exist. A gang of
one is a plain pod for all contenders. kube-scheduler's client has qps 1000 and burst 2000. kube-scheduler runs only
when it is measured itself.

\b
Examples:
  python benchmarks/throughput.py                                             all scenarios once, about three minutes
  python benchmarks/throughput.py --runs 5 -o json > figures.json             medians of five runs, as JSON
  python benchmarks/throughput.py --scenario 1x1000 --contender allaboard     one scenario, one contender
  python benchmarks/throughput.py --contender allaboard --profile a.prof      where the operator's time goes
  python benchmarks/throughput.py --contender allaboard --contender pages     what ten open pages cost
  python benchmarks/throughput.py --contender bare --contender client         bare pods, and what the servers allow
  python benchmarks/throughput.py --home sandbox                              needs no build; Allaboard only
"""


@click.command(help=(__doc__ or "").partition("\n")[0], epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    type=click.Choice([*HOMES]),
    default="controlplane",
    show_default=True,
    help="A real control plane, whose programs are built with Go if they are missing; or the sandbox, which has no kube-scheduler.",
)
@click.option("--scenario", "names", type=click.Choice([*SCENARIOS]), multiple=True, help="Gangs and their size; may be repeated [all].")
@click.option("--contender", "contenders", type=click.Choice([*CONTENDERS]), multiple=True, help=f"May be repeated [{', '.join(USUAL)}].")
@click.option("--nodes", type=click.IntRange(min=63), default=200, show_default=True, help="1,000 pods of 1 cpu need at least 63.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs; with several, the table shows medians.")
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
    """Measure and print a table or JSON."""
    rules = Rules(nodes, concurrency, timeout)
    if home == "sandbox" and not {"native", "coscheduling", "volcano"}.isdisjoint(contenders):
        raise click.UsageError(NO_SCHEDULER)
    chosen = contenders or tuple(name for name in USUAL if home != "sandbox" or name != "native")
    scenarios = [SCENARIOS[name] for name in names or SCENARIOS]
    try:
        done, description = asyncio.run(measure_all(home, scenarios, chosen, runs, rules, profile))
    except (RuntimeError, aiohttp.ClientError) as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(as_json(done, description, rules))
        return
    # Output that isn't a terminal has any width, so that no column is cut off.
    console = Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)
    console.print(as_table(done, f"1,000 pods on {nodes} nodes"))
    console.print(description, style="dim", highlight=False)


if __name__ == "__main__":
    main()
