"""How long the whole operator takes to know a large cluster, and how much memory it then holds.

Runs ``kopf run operator/main.py -A`` against a sandbox with 5,000 nodes and 100,000 bound pods, in two processes on this machine,
and measures from the start of the process to "scheduling begins". Bars: under 30 s from the first request, under 400 MiB.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from allaboard.cli import bundled
from allaboard.sandbox import NodeShape, Sandbox, node_object

ROOT = Path(__file__).parents[1]


def a_pod(number: int, nodes: int) -> dict[str, Any]:
    """A bound pod of the size that pods have: labels, a template's worth of spec, status with conditions."""
    job, index = divmod(number, 20)
    name = f"job-{job}-worker-{index}"
    container = {
        "name": "main",
        "image": "registry.example/team/training:2026-11",
        "command": ["python", "-m", "train", "--epochs", "100"],
        "env": [{"name": f"VARIABLE_{variable}", "value": "value"} for variable in range(6)],
        "resources": {"requests": {"cpu": f"{500 + 250 * (job % 4)}m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}],
    }
    when = "2026-11-01T12:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{job % 50}",
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "creationTimestamp": when,
            "labels": {"app": f"job-{job}", "training.kubeflow.org/replica-index": str(index)},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{job}", "uid": f"job-{job}", "controller": True}],
        },
        "spec": {
            "nodeName": f"node-{number % nodes}",
            "schedulerName": "default-scheduler",
            "containers": [container],
            "tolerations": [
                {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for state in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": when} for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": when}}}],
        },
    }


def cluster(nodes: int, pods: int) -> Iterator[dict[str, Any]]:
    """All objects of the cluster."""
    for number in range(nodes):
        yield node_object(f"node-{number}", NodeShape("64", "256Gi", gpus=8 if number % 4 == 0 else 0))
    for number in range(pods):
        yield a_pod(number, nodes)


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident memory of a process now and at its highest, MiB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return tuple(int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def children(pid: int) -> list[int]:
    """Processes that ``pid`` has started, its search workers among them."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def measure(nodes: int, pods: int) -> tuple[float, float, float, float]:
    """Seconds to the sync; the operator's memory then and at its highest, and its workers' memory, MiB."""
    async with Sandbox(controllers=False) as sandbox:
        for crd in bundled.crds():
            sandbox.apply(crd)
        sandbox.load(cluster(nodes, pods))
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder, "kubeconfig")
            sandbox.write_kubeconfig(kubeconfig)
            started = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kopf", "run", "operator/main.py", "-A"),
                cwd=ROOT,
                env={**os.environ, "KUBECONFIG": str(kubeconfig), "ALLABOARD_METRICS_PORT": "0"},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            assert process.stdout is not None
            async for line in process.stdout:
                if b"scheduling begins" in line:
                    break
            seconds = time.monotonic() - started
            await asyncio.sleep(5)  # let what was garbage be collected
            now, highest = memory_mib(process.pid)
            workers = sum(memory_mib(child)[0] for child in children(process.pid))
            process.terminate()
            await process.communicate()
            return seconds, now, highest, workers


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    arguments = parser.parse_args()
    seconds, now, highest, workers = asyncio.run(measure(arguments.nodes, arguments.pods))
    table = Table("nodes", "pods", "seconds to sync", "MiB", "MiB at its highest", "MiB of workers")
    table.add_row(str(arguments.nodes), str(arguments.pods), f"{seconds:.1f}", f"{now:.0f}", f"{highest:.0f}", f"{workers:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
