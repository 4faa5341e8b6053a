"""Measure how long a small gang waits to be bound while another tenant's gangs take long to search for (slow gangs).

Each slow gang is an instance of 3-PARTITION that almost fits: three members would have to fill each node to the last thousandth of a cpu.
No bound proves that such a gang doesn't fit. Slow gangs are created at once with the first small gang, before it, or one after another
between the small gangs. A small gang has the same priority and is mostly younger. The whole scheduler runs on the sandbox, with one search
process. Exits with 1 if a small gang isn't bound within two seconds.
"""

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from allaboard.app import App
from allaboard.cli import bundled
from allaboard.settings.options import load_settings
from allaboard_sandbox import Sandbox
from operator_process import ROOT

sys.path.append(str(ROOT))
from tests.unit.placement.three_partition import NODE_CPU, sizes

LIMIT_SECONDS = 2.0
HOSTILE = 12
NODES, SMALL = 10, 2
AT_ONCE, IN_PLACE, ARRIVING = "at once", "in place", "arriving"
NAME, MINIMUM = (f"pod-group.scheduling.sigs.k8s.io/{key}" for key in ("name", "min-available"))
_GIVE_UP_SECONDS = 120.0
_BETWEEN_SECONDS = 1.0

console = Console(stderr=True, highlight=False)


def a_pod(namespace: str, gang: str, number: int, minimum: int, milli: int) -> dict[str, Any]:
    """Return a pod of ``gang`` that requests ``milli`` thousandths of a cpu; ``minimum`` is the gang's quorum."""
    labels = {NAME: gang, MINIMUM: str(minimum)}
    containers = [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": f"{milli}m"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{gang}-{number}", "namespace": namespace, "labels": labels},
        "spec": {"schedulerName": "allaboard", "containers": containers},
    }


class Scene:
    """A cluster with a scheduler and two tenants: the namespaces ``hostile``, of slow gangs, and ``small``."""

    def __init__(self, cluster: Sandbox, nodes: int) -> None:
        self._cluster, self._nodes = cluster, nodes

    def create_hostile(self, number: int) -> None:
        """Create a slow gang."""
        asked = sizes(self._nodes, number)
        for member, milli in enumerate(asked):
            self._cluster.create(a_pod("hostile", f"hostile{number}", member, len(asked), milli))

    def create_small(self, name: str) -> None:
        """Create a gang that fits."""
        for member in range(SMALL):
            self._cluster.create(a_pod("small", name, member, SMALL, 1))

    async def wait(self, name: str) -> float:
        """Return the seconds from now until the small gang is bound, at most 120, and delete its pods."""
        started = time.monotonic()
        while time.monotonic() - started < _GIVE_UP_SECONDS:
            pods = [pod for pod in self._cluster.list("pods", "small") if pod["metadata"]["name"].startswith(f"{name}-")]
            if sum(1 for pod in pods if pod["spec"].get("nodeName")) == SMALL:
                break
            await asyncio.sleep(0.01)
        seconds = time.monotonic() - started
        for member in range(SMALL):
            self._cluster.delete("pods", f"{name}-{member}", "small", grace=0)
        return seconds


@asynccontextmanager
async def a_scene(nodes: int) -> AsyncIterator[Scene]:
    """Run a fresh cluster and scheduler, on which one gang has been bound already."""
    with tempfile.TemporaryDirectory() as folder:
        async with Sandbox(startup_delay=3600) as cluster:
            for crd in bundled.crds():
                cluster.apply(crd)
            for namespace in ("hostile", "small"):
                cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            for number in range(nodes):
                cluster.add_node(f"node-{number}", cpu=str(NODE_CPU // 1000), pods=500)
            os.environ["KUBECONFIG"] = str(Path(folder) / "kubeconfig")
            cluster.write_kubeconfig(os.environ["KUBECONFIG"])
            app = App(load_settings({"metrics_port": 0, "api_port": 0, "workers": 1}))
            await app.start()
            try:
                await asyncio.wait_for(app.scheduling.wait(), 60)
                scene = Scene(cluster, nodes)
                scene.create_small("first")
                await scene.wait("first")
                yield scene
            finally:
                await app.stop()


async def waits(arrival: str, hostile: int, times: int, nodes: int) -> list[float]:
    """Return the seconds that each small gang waits to be bound; small gangs are created one after another."""
    found = []
    async with a_scene(nodes) as scene:
        if arrival == IN_PLACE:
            for number in range(hostile):
                scene.create_hostile(number)
            await asyncio.sleep(5 * _BETWEEN_SECONDS)
        for turn in range(times):
            if arrival == AT_ONCE and turn == 0:
                for number in range(hostile):
                    scene.create_hostile(number)
            if arrival == ARRIVING:
                for number in range(turn * hostile // times, (turn + 1) * hostile // times):
                    scene.create_hostile(number)
                await asyncio.sleep(random.Random(turn).uniform(0.0, 0.3))
            scene.create_small(f"small{turn}")
            found.append(await scene.wait(f"small{turn}"))
            await asyncio.sleep(_BETWEEN_SECONDS)
    return found


def show(found: dict[str, dict[int, list[float]]]) -> None:
    """Print the waits as a table."""
    table = Table(
        "waits of small gangs, s", "alone: median (max)", f"with {HOSTILE} slow gangs: median (max)", "ratio of the medians", box=None
    )
    for arrival, by_number in found.items():
        alone, beside = by_number[0], by_number[HOSTILE]
        table.add_row(arrival, _summary(alone), _summary(beside), f"{statistics.median(beside) / max(0.001, statistics.median(alone)):.1f}")
    Console().print(table)


def _summary(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({max(seconds):.2f})"


@click.command(help=__doc__)
@click.option("--nodes", default=NODES, show_default=True, help="Nodes. A slow gang has three members for each node.")
@click.option("--times", default=10, show_default=True, help="Small gangs of each row.")
@click.option("--quick", is_flag=True, help="A sample: four small gangs of each row.")
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True)
def main(nodes: int, times: int, quick: bool, output: str) -> None:
    """Measure, print, and exit with 1 if a small gang waits longer than the limit."""
    times = 4 if quick else times
    found: dict[str, dict[int, list[float]]] = {}
    for arrival in (AT_ONCE, IN_PLACE, ARRIVING):
        found[arrival] = {hostile: asyncio.run(waits(arrival, hostile, times, nodes)) for hostile in (0, HOSTILE)}
    if output == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show(found)
    longest = max(max(by_number[HOSTILE]) for by_number in found.values())
    is_exceeded = longest > LIMIT_SECONDS
    console.print(f"{'LIMIT EXCEEDED' if is_exceeded else 'within the limit'}: the longest wait is {longest:.2f} s of {LIMIT_SECONDS:g} s")
    sys.exit(1 if is_exceeded else 0)


if __name__ == "__main__":
    main()
