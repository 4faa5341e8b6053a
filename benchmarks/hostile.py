"""Measure what hostile pods of one tenant cost other tenants: stalls of the event loop, memory, and the time until a gang is bound.

Runs ``kopf run operator/main.py -A`` and a sandbox, as two processes on this machine. For each kind of hostility, 200 hostile pods are
created, or as many as a gang may have. Then a gang of 64 is created in another namespace. All pods are deleted before the next kind.
The event loop is measured within the operator. A stall counts in processor time of the loop's thread, because the thread may have to wait
for a processor on a busy machine. The column "late ms" includes that wait.
Limits: stalls of at most 50 ms, at most 100 MiB more memory, the gang bound within 1 s. Exits with 1 if a limit is exceeded.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from allaboard.cli import bundled
from allaboard.model.limits import MEMBERS
from allaboard_sandbox import NodeShape, Sandbox, node_object
from operator_process import memory_mib, operator_process

_NODES = 200
_GANG = 64
_STALL_SECONDS, _MEMORY_MIB, _BOUND_SECONDS = 0.05, 100.0, 1.0
_NAME, _MINIMUM = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Body = dict[str, Any]


def a_pod(name: str, namespace: str, *, labels: Body | None = None, annotations: Body | None = None, owners: Any = (), **spec: Any) -> Body:
    """Return a pending pod for Allaboard. ``spec`` adds or replaces fields of its spec; with a ``nodeName`` the pod is running."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "10m"}}}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "labels": labels or {}, "annotations": annotations or {}, "ownerReferences": list(owners)},
        "spec": {"schedulerName": "allaboard", "containers": [container], **spec},
        "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def foreign(number: int, **parts: Any) -> Body:
    """Return a pod that another scheduler has bound."""
    return a_pod(f"evil-{number}", "evil", schedulerName="default-scheduler", nodeName=f"node-{number % _NODES}", **parts)


def member(number: int, pods: int, *, labels: Body | None = None, **parts: Any) -> Body:
    """Return a member of a gang of ``pods`` members, which are all the hostile pods."""
    return a_pod(f"evil-{number}", "evil", labels={_NAME: "evil", _MINIMUM: str(pods), **(labels or {})}, **parts)


def anti_affinity(terms: Iterator[list[Body]]) -> Body:
    """Return required anti-affinity to pods of all namespaces. ``terms``: for each term, the expressions of its label selector."""
    required = [{"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {"matchExpressions": each}} for each in terms]
    return {"podAntiAffinity": {_REQUIRED: required}}


def unknown_option(number: int) -> Body:
    """Return an annotation with Allaboard's prefix and an unknown name; its size is nearly the largest that Kubernetes allows."""
    return {"allaboard.dev/x": f"{number}" + "x" * 250_000}


def node_affinity(number: int) -> Body:
    """Return node affinity of 64 requirements, the most that Allaboard supports; different for each ``number``."""
    expressions = [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [f"no-{number}-{each}"]} for each in range(64)]
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}


def too_large(number: int) -> list[Body]:
    """Return containers that fit on no node, with requests that are different for each ``number``."""
    return [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": f"{900_000 + number}m"}}}]


@dataclass(frozen=True, slots=True)
class Hostility:
    """A kind of hostile pods.

    ``make``: returns a pod, given its number and the number of all pods. ``is_passing``: whether each pod is deleted at once. ``pods``: the
    number of pods, created as fast as possible; 0 for the number that the command line gives, created at most 100 a second.
    """

    name: str
    make: Callable[[int, int], Body]
    is_passing: bool = False
    pods: int = 0


_MANY_LABELS = {f"l{number:05d}": "" for number in range(60_000)}
_LABELS = dict(itertools.islice(_MANY_LABELS.items(), 2000))  # the sandbox is slow to write to pods with more labels
_MANY_OPTIONS = {f"allaboard.dev/{number}": "" for number in range(2000)}
_LONG = "a" * 63

HOSTILITIES = (
    Hostility("nothing hostile", lambda number, _: foreign(number)),
    Hostility("60,000 labels on pods of another scheduler", lambda number, _: foreign(number, labels=_MANY_LABELS)),
    Hostility("2,000 labels on members", lambda number, pods: member(number, pods, labels=_LABELS)),
    Hostility(
        "8,000 anti-affinity terms",
        lambda number, _: foreign(
            number, affinity=anti_affinity([{"key": f"k{number}-{each}", "operator": "Exists"}] for each in range(8000))
        ),
    ),
    Hostility(
        "anti-affinity whose expressions are all evaluated, and match no pod",
        lambda number, _: foreign(
            number,
            affinity=anti_affinity(
                [
                    {"key": "index", "operator": "Exists"},
                    {"key": "app", "operator": "NotIn", "values": ["other", f"{number}-{each}"]},
                    {"key": "app", "operator": "In", "values": [f"{number}-{each}-{value}" for value in range(4)]},
                ]
                for each in range(16)
            ),
        ),
    ),
    Hostility("an annotation of 250 kB", lambda number, pods: member(number, pods, annotations=unknown_option(number))),
    Hostility(
        "an annotation of 250 kB, on pods that are deleted at once",
        lambda number, _: foreign(number, annotations=unknown_option(number)),
        is_passing=True,
    ),
    Hostility(
        "8,000 unknown options",
        lambda number, pods: member(number, pods, annotations={f"allaboard.dev/{each}": "" for each in range(8000)}),
    ),
    Hostility(
        "2,000 owners",
        lambda number, pods: member(
            number, pods, owners=[{"apiVersion": "v1", "kind": "ConfigMap", "name": f"c{each}", "uid": f"c{each}"} for each in range(2000)]
        ),
    ),
    Hostility(
        "2,000 tolerations and selectors",
        lambda number, pods: member(
            number,
            pods,
            tolerations=[{"key": f"t{number}-{each}", "operator": "Exists"} for each in range(2000)],
            nodeSelector={f"s{number}-{each}": "x" for each in range(2000)},
        ),
    ),
    Hostility(
        "5,000 containers with odd quantities",
        lambda number, _: foreign(
            number,
            containers=[
                {
                    "name": f"c{each}",
                    "image": "pause",
                    "resources": {"requests": {"cpu": f"{each}.{number:09d}n", f"x.y/{each}": f"{each}e0"}},
                }
                for each in range(5000)
            ],
        ),
    ),
    Hostility(
        "60 labels whose names are as long as possible",
        lambda number, pods: member(
            number, pods, labels={f"{'.'.join([_LONG] * 2)}.{_LONG[:61]}/{f'l{number}-{each}-{_LONG}'[:63]}": _LONG for each in range(60)}
        ),
    ),
    Hostility(
        "a gang whose members all have different requests",
        lambda number, pods: member(number, pods, containers=too_large(number)),
    ),
    Hostility("a gang of 30 different node affinities", lambda number, pods: member(number, pods, affinity=node_affinity(number % 30))),
    Hostility(
        "a gang with a different node affinity for each member", lambda number, pods: member(number, pods, affinity=node_affinity(number))
    ),
    Hostility("a gang of 5,000", member, pods=MEMBERS.most),
    Hostility("a gang of 5,000 that doesn't fit", lambda number, pods: member(number, pods, containers=too_large(0)), pods=MEMBERS.most),
    Hostility(
        "a gang of 5,000 with 256 different requests that doesn't fit",
        lambda number, pods: member(number, pods, containers=too_large(number % 256)),
        pods=MEMBERS.most,
    ),
    Hostility(
        "5,000 gangs of one pod with different namespace priorities",
        lambda number, _: a_pod(f"evil-{number}", "evil", labels={"genius/priority": str(1 + number)}, containers=too_large(0)),
        pods=5000,
    ),
    Hostility(
        "5,000 gangs of one pod with falling namespace priorities and different requests",
        lambda number, pods: a_pod(f"evil-{number}", "evil", labels={"genius/priority": str(pods - number)}, containers=too_large(number)),
        pods=5000,
    ),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Results for one kind of hostility.

    ``stall``, ``late``: longest delay of the loop in seconds, by its thread's processor time and by the clock. ``memory``: MiB more than
    before. ``bound``: seconds until another tenant's gang of 64 is bound, the longer of two measurements.
    """

    stall: float
    late: float
    memory: float
    bound: float

    @property
    def is_within_limits(self) -> bool:
        """Return whether no limit is exceeded."""
        return self.stall <= _STALL_SECONDS and self.memory <= _MEMORY_MIB and self.bound <= _BOUND_SECONDS


class Stage:
    """A sandbox on which an operator runs."""

    def __init__(self, sandbox: Sandbox, pid: int, watch: Path) -> None:
        self._sandbox = sandbox
        self._pid = pid
        self._watch = watch
        self._gangs = 0

    async def measure(self, hostility: Hostility, pods: int) -> Measured:
        """Create the pods of one kind of hostility, bind gangs of another tenant, delete all pods, and return the results."""
        await self._bind_gang(1)
        memory_before, watch_size = memory_mib(self._pid)[0], self._watch.stat().st_size
        number_of_pods = hostility.pods or pods
        for number in range(number_of_pods):
            raw = hostility.make(number, number_of_pods)
            self._sandbox.load([raw])
            await asyncio.sleep(0 if hostility.pods else 0.01)
            if hostility.is_passing:
                self._sandbox.delete("pods", raw["metadata"]["name"], "evil", grace=0)
                await asyncio.sleep(0.01)
        await self._bind_gang(1)  # once this gang is bound, the operator has seen all hostile pods
        bound = await self._bind_gang(_GANG)
        await asyncio.sleep(2.0)
        bound = max(bound, await self._bind_gang(_GANG))
        memory = memory_mib(self._pid)[0] - memory_before
        lines = [line.split() for line in self._watch.read_text()[watch_size:].splitlines()]
        late = max((float(line[0]) for line in lines), default=0.0)
        stall = max((float(line[1]) for line in lines), default=0.0)
        for raw in [] if hostility.is_passing else self._sandbox.list("pods", "evil"):
            self._sandbox.delete("pods", raw["metadata"]["name"], "evil", grace=0)
        return Measured(stall, late, memory, bound)

    async def _bind_gang(self, members: int) -> float:
        """Return the seconds until a new gang of another tenant is bound, and delete its pods."""
        self._gangs += 1
        gang = f"gang-{self._gangs}"
        names = [f"{gang}-{number}" for number in range(members)]
        for number, name in enumerate(names):
            labels = {_NAME: gang, _MINIMUM: str(members), "app": gang, "index": str(number)}
            self._sandbox.load([a_pod(name, "team", labels=labels)])
        began = time.monotonic()

        def is_bound(sandbox: Sandbox) -> bool:
            return all((sandbox.get("pods", name, "team") or {})["spec"].get("nodeName") for name in names)

        await self._sandbox.wait_for(is_bound, timeout=120)
        seconds = time.monotonic() - began
        for name in names:
            self._sandbox.delete("pods", name, "team", grace=0)
        return seconds


async def measure_all(pods: int, hostilities: list[Hostility], show: Callable[[Hostility, Measured], None]) -> None:
    """Measure one kind of hostility after another, and pass each result to ``show``."""
    with tempfile.TemporaryDirectory() as folder:
        async with Sandbox(controllers=False) as sandbox:
            kubeconfig, watch = Path(folder, "kubeconfig"), Path(folder, "late")
            sandbox.write_kubeconfig(kubeconfig)
            for crd in bundled.crds():
                sandbox.apply(crd)
            for namespace in ("evil", "team"):
                sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            zones = ({"zone": f"zone-{number % 3}", "kubernetes.io/hostname": f"node-{number}"} for number in range(_NODES))
            sandbox.load(node_object(f"node-{number}", NodeShape("64", "256Gi"), labels) for number, labels in enumerate(zones))
            async with operator_process(kubeconfig, watch=watch) as pid:
                stage = Stage(sandbox, pid, watch)
                for hostility in hostilities:
                    show(hostility, await stage.measure(hostility, pods))


def main() -> None:
    """Measure, print a table, and exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--only", default="", help="Only kinds of hostility whose names contain this text.")
    arguments = parser.parse_args()
    table = Table("hostile pods", "stall ms", "late ms", "MiB more", f"gang of {_GANG} bound s", "within limits")
    table.add_row("limit", f"{1000 * _STALL_SECONDS:.0f}", "", f"{_MEMORY_MIB:.0f}", f"{_BOUND_SECONDS:.1f}", "")
    failed = []

    def show(hostility: Hostility, found: Measured) -> None:
        figures = (f"{1000 * found.stall:.0f}", f"{1000 * found.late:.0f}", f"{found.memory:.0f}", f"{found.bound:.2f}")
        table.add_row(hostility.name, *figures, "yes" if found.is_within_limits else "NO")
        print(hostility.name, *figures, flush=True)
        if not found.is_within_limits:
            failed.append(hostility.name)

    asyncio.run(measure_all(arguments.pods, [each for each in HOSTILITIES if arguments.only in each.name], show))
    Console().print(table)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
