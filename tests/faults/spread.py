"""Measures how long a gang is partially bound when nothing goes wrong: from the first of 64 binds to the last, as a watch sees them."""

import time
from collections.abc import Callable
from pathlib import Path

from allaboard_sandbox import Sandbox
from allaboard_sandbox.store import Change

from .gangs import GangSpec, manifests
from .kills import install_crds, remove
from .operators import started

MEMBERS = 64


async def partially_bound_seconds(folder: Path, gangs: int, on_gang: Callable[[int], None] = lambda number: None) -> list[float]:
    """Return for how many seconds each of ``gangs`` gangs was partially bound, one after the other."""
    spreads: list[float] = []
    binds: list[float] = []

    def on_change(change: Change) -> None:
        before = change.previous
        if (
            change.table == "pods"
            and before is not None
            and change.record.body["spec"].get("nodeName")
            and not before.body["spec"].get("nodeName")
        ):
            binds.append(time.perf_counter())

    async with Sandbox() as cluster:
        install_crds(cluster)
        for number in range(8):
            cluster.add_node(f"node-{number}", cpu="16")
        cluster.store.subscribe(on_change)
        cluster.write_kubeconfig(folder / "kubeconfig")
        async with started(cluster.url, folder / "kubeconfig", folder / "operator"):
            for number in range(gangs):
                spec = GangSpec(f"gang-{number}", size=MEMBERS, minimum=MEMBERS)
                binds.clear()
                for manifest in manifests(spec):
                    cluster.create(manifest)
                await cluster.wait_for(lambda _: len(binds) == MEMBERS, timeout=30, message=f"{spec.name} is whole")
                spreads.append(binds[-1] - binds[0])
                await remove(cluster, spec)
                on_gang(number + 1)
    return spreads


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    ordered = sorted(values)
    return ordered[max(0, -(-99 * len(ordered) // 100) - 1)]
