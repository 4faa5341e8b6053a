"""Measure how soon a queue of gangs has run on a cluster that holds only a few of them at a time.

Nine gangs of forty pods with a GPU each run for two seconds, on 45 nodes of four GPUs. The cluster holds four gangs at a time, so a later
gang waits for GPUs that an earlier gang frees. Only the scheduler differs between contenders. So a difference between their results shows
how soon they notice freed capacity.
"""

import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path

import aiohttp
import click
from rich.console import Console
from rich.table import Table

from contenders import CONTENDERS, HOMES, USUAL, Connection, Home, progress
from load import PODS, Binds, Load, Scenario, a_node, create, furnish, prepare, warm_up

_CONCURRENCY = 32
_TIMEOUT_SECONDS = 300.0
_REQUESTS = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}


async def measure(home: Home, contender: str, scenario: Scenario, nodes: int, gpus: int, seconds: float, generator: Executor) -> float:
    """Return the seconds from sending the first create to the end of the last pod, on a fresh cluster."""
    connection = Connection.of(home.kubeconfig)
    async with connection.session(limit=_CONCURRENCY) as session:
        await furnish(session, [a_node(number, gpus) for number in range(nodes)])
        async with CONTENDERS[contender](home, None):
            await warm_up(session, contender)
            return await _run(session, connection, contender, scenario, seconds, generator)


async def _run(
    session: aiohttp.ClientSession, connection: Connection, contender: str, scenario: Scenario, seconds: float, generator: Executor
) -> float:
    bodies = await prepare(session, contender, scenario, **_REQUESTS)
    loop, ends = asyncio.get_running_loop(), list[asyncio.Task[None]]()
    binds = Binds(scenario, lambda name: ends.append(loop.create_task(_end(session, name, seconds))))
    async with binds.listening(session) as listener:
        load = Load(connection, scenario.gangs, bodies, _CONCURRENCY)
        creating = loop.run_in_executor(generator, create, load)
        await binds.all_bound(listener, _TIMEOUT_SECONDS, f"{contender}, {scenario}")
        await asyncio.gather(*ends)
        return time.monotonic() - min((await creating).first)


async def _end(session: aiohttp.ClientSession, name: str, seconds: float) -> None:
    """Report a bound pod as succeeded after it has run for ``seconds``, as its kubelet would."""
    await asyncio.sleep(seconds)
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(f"{PODS}/{name}/status", data=json.dumps({"status": {"phase": "Succeeded"}}), headers=headers) as response:
        response.raise_for_status()


async def measure_all(
    contenders: tuple[str, ...], scenario: Scenario, nodes: int, gpus: int, seconds: float, runs: int
) -> dict[str, list[float]]:
    """Return the makespans of each contender in seconds. Contenders take turns, and each run has a cluster of its own."""
    found: dict[str, list[float]] = {contender: [] for contender in contenders}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as generator:
        generator.submit(os.getpid).result()  # imports shouldn't be measured
        for number in range(1, runs + 1):
            # The order alternates, so that no contender is always first.
            for contender in contenders if number % 2 else contenders[::-1]:
                label = f"run {number}/{runs}, {contender}"
                with progress.status(label), tempfile.TemporaryDirectory(prefix="allaboard-churn-") as folder:
                    async with HOMES["controlplane"](Path(folder)) as home:
                        found[contender].append(await measure(home, contender, scenario, nodes, gpus, seconds, generator))
                progress.print(f"{label}: {found[contender][-1]:.1f} s")
    return found


def as_table(found: dict[str, list[float]], least: float, title: str) -> Table:
    """Return a table with a row for each contender: its median makespan, the range, and two ratios.

    The ratios are those of the median to ``least``, the least possible makespan, and to the median of kube-scheduler.
    """
    table = Table(title=title)
    table.add_column("contender", no_wrap=True)
    for column in ("makespan s", "range", "ratio to least", "ratio to native"):
        table.add_column(column, justify="right")
    native = statistics.median(found["native"]) if found.get("native") else None
    for contender, makespans in found.items():
        median = statistics.median(makespans)
        ratio = f"{median / native:.2f}" if native else ""
        table.add_row(contender, f"{median:.1f}", f"{min(makespans):.1f}–{max(makespans):.1f}", f"{median / least:.2f}", ratio)
    return table


_positive = partial(click.option, type=click.IntRange(min=1), show_default=True)


@click.command(help=(__doc__ or "").partition("\n")[0], context_settings={"help_option_names": ["-h", "--help"]})
@_positive("--gangs", default=9, help="Gangs, all created at once.")
@_positive("--size", default=40, help="Pods of a gang, with a GPU each.")
@_positive("--nodes", default=45, help="Nodes.")
@_positive("--gpus", default=4, help="GPUs of a node.")
@click.option("--seconds", type=click.FloatRange(min=0), default=2.0, show_default=True, help="Seconds that a pod runs.")
@_positive("--runs", default=1, help="Runs; with several, the table shows medians.")
@click.option("--contender", "contenders", type=click.Choice([*CONTENDERS]), multiple=True, help=f"May be repeated [{', '.join(USUAL)}].")
def main(gangs: int, size: int, nodes: int, gpus: int, seconds: float, runs: int, contenders: tuple[str, ...]) -> None:
    """Measure and print a table."""
    at_once = min(gangs, nodes * gpus // size)
    if not at_once:
        raise click.UsageError(f"a gang of {size} never fits on {nodes} nodes of {gpus} GPUs")
    try:
        found = asyncio.run(measure_all(contenders or USUAL, Scenario(gangs, size), nodes, gpus, seconds, runs))
    except (RuntimeError, aiohttp.ClientError) as error:
        raise click.ClickException(str(error)) from error
    least = -(-gangs // at_once) * seconds
    title = f"{gangs} gangs of {size} pods of {seconds:g} s on {nodes} nodes of {gpus} GPUs: {least:g} s at least"
    Console(width=None if sys.stdout.isatty() else 100).print(as_table(found, least, title))


if __name__ == "__main__":
    main()
