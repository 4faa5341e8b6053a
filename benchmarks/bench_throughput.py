"""How fast gangs are bound: 1,000 pods of 1 cpu and 1 GiB on 200 nodes, as gangs of 1, 20, 500 and 1,000.

Runs ``kopf run operator/main.py -A`` against a sandbox in another process on this machine. Pods per second count from the first
create to the last bind; a gang's latency from its first create to its last bind; "in part" is the longest time any gang had some
members bound and others not.
"""

import argparse
import asyncio
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from allaboard.cli import bundled
from allaboard.sandbox import Sandbox
from operator_process import children, cpu_seconds, memory_mib, operator_process

SCENARIOS = ((1000, 1), (50, 20), (2, 500), (1, 1000))


def a_pod(gang: int, member: int, size: int) -> dict[str, Any]:
    """A bare pod of a label-pair gang; a gang of one has no labels."""
    labels = {"pod-group.scheduling.sigs.k8s.io/name": f"gang-{gang}", "pod-group.scheduling.sigs.k8s.io/min-available": str(size)}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"gang-{gang}-{member}", "namespace": "default", "labels": labels if size > 1 else {}},
        "spec": {"schedulerName": "allaboard", "containers": [container]},
    }


async def measure(gangs: int, size: int) -> list[str]:
    """One scenario on a fresh cluster; returns the table's row."""
    created = np.zeros(gangs)
    first_bound, last_bound = np.zeros(gangs), np.zeros(gangs)
    bound = np.zeros(gangs, dtype=int)
    async with Sandbox() as sandbox:
        for crd in bundled.crds():
            sandbox.apply(crd)
        for number in range(200):
            sandbox.add_node(f"node-{number}", cpu="16", memory="64Gi", pods=110)
        seen: set[str] = set()

        def all_bound(cluster: Sandbox) -> bool:
            now = time.monotonic()
            for pod in cluster.list("pods"):
                name = pod["metadata"]["name"]
                if name not in seen and pod["spec"].get("nodeName"):
                    seen.add(name)
                    gang = int(name.split("-")[1])
                    first_bound[gang] = first_bound[gang] or now
                    last_bound[gang] = now
                    bound[gang] += 1
            return len(seen) == gangs * size

        async with operator_process(sandbox) as process:
            before = cpu_seconds(process.pid)
            started = time.monotonic()

            async def create() -> None:
                for gang in range(gangs):
                    for member in range(size):
                        created[gang] = created[gang] or time.monotonic()
                        sandbox.create(a_pod(gang, member, size))
                        if member % 10 == 9 or size == 1:
                            await asyncio.sleep(0)

            await create()
            await sandbox.wait_for(all_bound, timeout=300, message="every gang is bound")
            seconds = time.monotonic() - started
            latency = last_bound - created
            used = cpu_seconds(process.pid) - before
            memory = memory_mib(process.pid)[1] + sum(memory_mib(child)[0] for child in children(process.pid))
    p50, p99 = np.percentile(latency, [50, 99])
    in_part = float((last_bound - first_bound).max())
    return [
        f"{gangs}×{size}",
        f"{gangs * size / seconds:.0f}",
        f"{p50:.2f}",
        f"{p99:.2f}",
        f"{in_part:.2f}",
        f"{used:.1f}",
        f"{memory:.0f}",
    ]


def main() -> None:
    """Measure every scenario and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    table = Table("gangs×pods", "pods/s", "latency p50 s", "p99 s", "in part s", "operator CPU s", "MiB", title="Throughput on the sandbox")
    for gangs, size in SCENARIOS:
        table.add_row(*asyncio.run(measure(gangs, size)))
    Console().print(table)


if __name__ == "__main__":
    main()
