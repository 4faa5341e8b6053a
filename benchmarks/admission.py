"""Measure how a thousand hostile pods a second at the admission webhooks delay the scheduler's event loop and other gangs.

Runs ``kopf run operator/main.py -A`` with its webhooks against a sandbox. A process of its own sends admission reviews straight to the
webhooks, over TLS. Meanwhile gangs of 64 are bound, in a namespace that has not opted in to admission.
Limits: stalls of at most 50 ms of processor time, and each gang bound within 1 s. Exits with 1 if a limit is exceeded.
"""

import argparse
import asyncio
import base64
import itertools
import os
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from rich.console import Console
from rich.table import Table

from allaboard.cli import bundled
from allaboard_sandbox import NodeShape, Sandbox, node_object
from operator_process import operator_process

_NODES, _GANG, _GANGS = 100, 64, 12
_STALL_SECONDS, _BOUND_SECONDS = 0.05, 1.0
_CONNECTIONS = 64
_NAME, _MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"

Body = dict[str, Any]


def hostile_reviews() -> list[bytes]:
    """Return admission reviews of pods whose labels and annotations are invalid in many ways; a few are valid."""
    labels: list[Body] = [
        {_NAME: "evil", _MINIMUM: "five"},
        {_NAME: "e" * 63, _MINIMUM: "9" * 63},
        {_MINIMUM: "3"},
        {_NAME: "evil", _MINIMUM: "5"},
        {_NAME: "evil", _MINIMUM: "5", **{f"l{number}": "x" * 63 for number in range(500)}},
    ]
    annotations: list[Body] = [{}, {f"allaboard.dev/{number}": "" for number in range(500)}, {"allaboard.dev/min-members": "a=1," * 2000}]
    reviews = []
    for pod_labels, pod_annotations in itertools.product(labels, annotations):
        pod = {
            "metadata": {"labels": pod_labels, "annotations": pod_annotations},
            "spec": {"containers": [{"name": "main", "image": "pause"}]},
        }
        request = {"uid": "1", "operation": "CREATE", "namespace": "evil", "kind": {"group": "", "kind": "Pod"}, "object": pod}
        reviews.append(orjson.dumps({"request": request}))
    return reviews


async def flood(port: int, authorities: str, rate: int) -> None:
    """Send reviews to ``port`` at ``rate`` a second until killed. ``authorities``: the certificate authority of the webhooks, as PEM.

    After each second, print the number of answers and the 99th percentile of their delays in ms.
    """
    bodies = itertools.cycle(hostile_reviews())
    context = ssl.create_default_context(cadata=authorities)
    took: list[float] = []
    begun = time.monotonic()
    due = itertools.count()

    async def send(session: aiohttp.ClientSession) -> None:
        while True:
            await asyncio.sleep(begun + next(due) / rate - time.monotonic())
            sent = time.monotonic()
            async with session.post(f"https://127.0.0.1:{port}/review", data=next(bodies)) as response:
                await response.read()
            took.append(time.monotonic() - sent)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=context)) as session:
        for _ in range(_CONNECTIONS):
            _tasks.add(asyncio.create_task(send(session)))
        while True:
            await asyncio.sleep(1)
            if len(took) > 1:
                print(len(took), f"{1000 * statistics.quantiles(took, n=100)[98]:.1f}", flush=True)
            took.clear()


_tasks: set[asyncio.Task[None]] = set()


async def bind_gang(sandbox: Sandbox, gang: str) -> float:
    """Return the seconds until a new gang is bound, and delete its pods."""
    names = [f"{gang}-{number}" for number in range(_GANG)]
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "10m"}}}
    for name in names:
        metadata = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        labels = {_NAME: gang, _MINIMUM: str(_GANG)}
        spec = {"schedulerName": "allaboard", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": labels}, "spec": spec, "status": {"phase": "Pending"}}
        sandbox.load([pod])
    began = time.monotonic()
    await sandbox.wait_for(lambda s: all((s.get("pods", name, "team") or {})["spec"].get("nodeName") for name in names), timeout=120)
    seconds = time.monotonic() - began
    for name in names:
        sandbox.delete("pods", name, "team", grace=0)
    return seconds


def _lines(watch: Path) -> list[list[str]]:
    """Return the lines that ``loop_watch`` has written to the file ``watch`` so far, each split into its fields."""
    return [line.split() for line in watch.read_text().splitlines()]


async def measure(rate: int, port: int) -> list[tuple[str, float, float, str]]:
    """Measure without a flood of reviews, then with one.

    Returns two rows: name, longest stall in processor seconds, longest seconds until a gang is bound, and the last line that ``flood``
    printed.
    """
    found = []
    os.environ |= {"ALLABOARD_ADMISSION_PORT": str(port), "ALLABOARD_ADMISSION_HOSTS": "127.0.0.1", "ALLABOARD_LEASE_NAMESPACE": "default"}
    with tempfile.TemporaryDirectory() as folder:
        async with Sandbox(controllers=False) as sandbox:
            kubeconfig, watch = Path(folder, "kubeconfig"), Path(folder, "late")
            sandbox.write_kubeconfig(kubeconfig)
            for crd in bundled.crds():
                sandbox.apply(crd)
            sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
            sandbox.load(node_object(f"node-{number}", NodeShape("64", "256Gi")) for number in range(_NODES))
            async with operator_process(kubeconfig, watch=watch):
                await sandbox.wait_for(lambda s: s.get("secrets", "allaboard-admission") is not None, timeout=30)
                data = (sandbox.get("secrets", "allaboard-admission") or {})["data"]
                authorities = base64.b64decode(data["ca.crt"]).decode()
                for name, flood_rate in (("nothing", 0), (f"{rate} reviews a second", rate)):
                    process = None
                    if flood_rate:
                        command = (sys.executable, __file__, "--flood", authorities, "--rate", str(flood_rate), "--port", str(port))
                        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
                        assert process.stdout is not None  # noqa: S101  # for the type checker
                        for _ in range(2):
                            await process.stdout.readline()
                    await bind_gang(sandbox, f"first-{flood_rate}")
                    lines_before = len(_lines(watch))
                    bound = [await bind_gang(sandbox, f"gang-{flood_rate}-{number}") for number in range(_GANGS)]
                    last_line = ""
                    if process is not None:
                        process.kill()
                        output, _ = await process.communicate()
                        last_line = output.decode().splitlines()[-1] if output else ""
                    stall = max((float(line[1]) for line in _lines(watch)[lines_before:]), default=0.0)
                    found.append((name, stall, max(bound), last_line))
    return found


def main() -> None:
    """Measure, print a table, and exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--port", type=int, default=19443)
    parser.add_argument("--flood", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        asyncio.run(flood(arguments.port, arguments.flood, arguments.rate))
    table = Table("hostile labels", "longest stall ms", f"gang of {_GANG} bound s, at most", "answers per second, their 99th percentile ms")
    table.add_row("limit", f"{1000 * _STALL_SECONDS:.0f}", f"{_BOUND_SECONDS:.1f}", "")
    found = asyncio.run(measure(arguments.rate, arguments.port))
    for name, stall, bound, last_line in found:
        table.add_row(name, f"{1000 * stall:.0f}", f"{bound:.2f}", last_line)
    Console().print(table)
    sys.exit(any(stall > _STALL_SECONDS or bound > _BOUND_SECONDS for _, stall, bound, _ in found))


if __name__ == "__main__":
    main()
