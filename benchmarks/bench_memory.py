"""Measure how long the whole operator takes to read a large cluster, and how much memory it uses then.

Runs ``kopf run operator/main.py -A`` and a sandbox with 5,000 nodes and 100,000 bound pods, as two processes on this machine. Measures from
the start of the operator's process to "scheduling begins". Limits, which aren't checked: 30 s from the first request, and 400 MiB.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from allaboard.cli import bundled
from allaboard_sandbox import NodeShape, Sandbox, node_object
from operator_process import children, memory_mib, operator_process


def a_pod(number: int, nodes: int) -> dict[str, Any]:
    """Return a bound pod of a usual size: with labels, the spec of a pod template, and a status with conditions."""
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
                {"type": kind, "status": "True", "lastTransitionTime": when}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": when}}}],
        },
    }


def cluster(nodes: int, pods: int) -> Iterator[dict[str, Any]]:
    """Yield the nodes of the cluster, then its pods."""
    for number in range(nodes):
        yield node_object(f"node-{number}", NodeShape("64", "256Gi", gpus=8 if number % 4 == 0 else 0))
    for number in range(pods):
        yield a_pod(number, nodes)


async def measure(nodes: int, pods: int) -> tuple[float, float, float, float]:
    """Return the seconds until scheduling begins, and three amounts of memory in MiB.

    The amounts are the operator's memory after scheduling has begun, its peak, and the memory of its search processes.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with Sandbox(controllers=False) as sandbox:
            kubeconfig = Path(folder, "kubeconfig")
            sandbox.write_kubeconfig(kubeconfig)
            for crd in bundled.crds():
                sandbox.apply(crd)
            sandbox.load(cluster(nodes, pods))
            started = time.monotonic()
            async with operator_process(kubeconfig) as pid:
                seconds = time.monotonic() - started
                await asyncio.sleep(5)  # so that garbage is collected before memory is read
                now, peak = memory_mib(pid)
                return seconds, now, peak, sum(memory_mib(child)[0] for child in children(pid))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    arguments = parser.parse_args()
    seconds, now, peak, workers = asyncio.run(measure(arguments.nodes, arguments.pods))
    table = Table("nodes", "pods", "seconds to sync", "MiB", "peak MiB", "MiB of search processes")
    table.add_row(str(arguments.nodes), str(arguments.pods), f"{seconds:.1f}", f"{now:.0f}", f"{peak:.0f}", f"{workers:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
