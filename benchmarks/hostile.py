"""What hostile pods of one tenant cost everybody else: the operator's event loop, its memory, and the time until another's gang is bound.

Runs ``kopf run operator/main.py -A`` against a sandbox, in two processes on this machine. For each kind of hostility 200 pods of it are
made, or as many as a gang may have, then a gang of 64 in another namespace, and all of them are deleted before the next. The loop is
measured from within the operator: the longest stretch that it kept everybody waiting, in processor time of its own, since on a busy
machine it may be kept from running, too.
Bars: stalls of at most 50 ms, at most 100 MiB more memory, the gang bound within 1 s. Exits with 1 where one isn't held.
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
    """A pod of ours that waits, unless ``spec`` says otherwise."""
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
    """A pod that another scheduler has bound."""
    return a_pod(f"evil-{number}", "evil", schedulerName="default-scheduler", nodeName=f"node-{number % _NODES}", **parts)


def member(number: int, pods: int, *, labels: Body | None = None, **parts: Any) -> Body:
    """A member of a gang of all hostile pods."""
    return a_pod(f"evil-{number}", "evil", labels={_NAME: "evil", _MINIMUM: str(pods), **(labels or {})}, **parts)


def keeping_away(terms: Iterator[list[Body]]) -> Body:
    """Required anti-affinity to pods of all namespaces, each term by its expressions."""
    stated = [{"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {"matchExpressions": each}} for each in terms]
    return {"podAntiAffinity": {_REQUIRED: stated}}


def an_option(number: int) -> Body:
    """An annotation of ours that isn't known, as large as annotations may be."""
    return {"allaboard.dev/x": f"{number}" + "x" * 250_000}


def choosy(number: int) -> Body:
    """Node affinity of 64 requirements, as many as are taken in, unlike that of any other pod."""
    expressions = [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [f"no-{number}-{each}"]} for each in range(64)]
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}


def too_large(number: int) -> list[Body]:
    """Containers that fit on no node, of as many kinds as there are numbers."""
    return [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": f"{900_000 + number}m"}}}]


@dataclass(frozen=True, slots=True)
class Hostility:
    """One kind of hostile pods; ``make`` gives the pod of a number out of so many. ``is_passing``: each is deleted at once.

    ``pods`` is how many there are of it where that matters; they come as fast as may be then.
    """

    name: str
    make: Callable[[int, int], Body]
    is_passing: bool = False
    pods: int = 0


_MANY_LABELS = {f"l{number:05d}": "" for number in range(60_000)}
_LABELS = dict(itertools.islice(_MANY_LABELS.items(), 2000))  # the sandbox takes long to write to larger ones
_MANY_OPTIONS = {f"allaboard.dev/{number}": "" for number in range(2000)}
_LONG = "a" * 63

HOSTILITIES = (
    Hostility("nothing hostile", lambda number, _: foreign(number)),
    Hostility("60,000 labels, of another scheduler", lambda number, _: foreign(number, labels=_MANY_LABELS)),
    Hostility("2,000 labels, of ours", lambda number, pods: member(number, pods, labels=_LABELS)),
    Hostility(
        "8,000 anti-affinity terms",
        lambda number, _: foreign(
            number, affinity=keeping_away([{"key": f"k{number}-{each}", "operator": "Exists"}] for each in range(8000))
        ),
    ),
    Hostility(
        "anti-affinity to all that is looked at, and matches nobody",
        lambda number, _: foreign(
            number,
            affinity=keeping_away(
                [
                    {"key": "index", "operator": "Exists"},
                    {"key": "app", "operator": "NotIn", "values": ["other", f"{number}-{each}"]},
                    {"key": "app", "operator": "In", "values": [f"{number}-{each}-{value}" for value in range(4)]},
                ]
                for each in range(16)
            ),
        ),
    ),
    Hostility("an annotation of 250 kB", lambda number, pods: member(number, pods, annotations=an_option(number))),
    Hostility(
        "an annotation of 250 kB, made and deleted",
        lambda number, _: foreign(number, annotations=an_option(number)),
        is_passing=True,
    ),
    Hostility(
        "2,000 options", lambda number, pods: member(number, pods, annotations={f"allaboard.dev/{each}": "" for each in range(8000)})
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
        "names as long as may be",
        lambda number, pods: member(
            number, pods, labels={f"{'.'.join([_LONG] * 2)}.{_LONG[:61]}/{f'l{number}-{each}-{_LONG}'[:63]}": _LONG for each in range(60)}
        ),
    ),
    Hostility(
        "a gang of as many kinds as members",
        lambda number, pods: member(number, pods, containers=too_large(number)),
    ),
    Hostility("a gang of choosy members", lambda number, pods: member(number, pods, affinity=choosy(number % 30))),
    Hostility("a gang of choosy members, each in its own way", lambda number, pods: member(number, pods, affinity=choosy(number))),
    Hostility("a gang of 5,000", member, pods=MEMBERS.most),
    Hostility("a gang of 5,000 that doesn't fit", lambda number, pods: member(number, pods, containers=too_large(0)), pods=MEMBERS.most),
    Hostility(
        "a gang of 5,000 of 256 kinds that doesn't fit",
        lambda number, pods: member(number, pods, containers=too_large(number % 256)),
        pods=MEMBERS.most,
    ),
    Hostility(
        "5,000 gangs of one, each of another urgency",
        lambda number, _: a_pod(f"evil-{number}", "evil", labels={"genius/priority": str(1 + number)}, containers=too_large(0)),
        pods=5000,
    ),
    Hostility(
        "5,000 gangs of one that are less and less urgent, each of another size",
        lambda number, pods: a_pod(f"evil-{number}", "evil", labels={"genius/priority": str(pods - number)}, containers=too_large(number)),
        pods=5000,
    ),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds that the loop was late at most, by its own processor time and by the clock; MiB more; seconds until the gang was bound."""

    stall: float
    late: float
    memory: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether all bars are held."""
        return self.stall <= _STALL_SECONDS and self.memory <= _MEMORY_MIB and self.bound <= _BOUND_SECONDS


class Stage:
    """A sandbox with an operator on it."""

    def __init__(self, sandbox: Sandbox, pid: int, watch: Path) -> None:
        self._sandbox = sandbox
        self._pid = pid
        self._watch = watch
        self._gangs = 0

    async def measure(self, hostility: Hostility, pods: int) -> Measured:
        """Play one kind of hostility."""
        await self._bind_gang(1)
        before, at = memory_mib(self._pid)[0], self._watch.stat().st_size
        number_of_pods = hostility.pods or pods
        for number in range(number_of_pods):
            raw = hostility.make(number, number_of_pods)
            self._sandbox.load([raw])
            await asyncio.sleep(0 if hostility.pods else 0.01)
            if hostility.is_passing:
                self._sandbox.delete("pods", raw["metadata"]["name"], "evil", grace=0)
                await asyncio.sleep(0.01)
        await self._bind_gang(1)  # the operator has seen all of it by then
        bound = await self._bind_gang(_GANG)
        await asyncio.sleep(2.0)
        bound = max(bound, await self._bind_gang(_GANG))
        memory = memory_mib(self._pid)[0] - before
        lines = [line.split() for line in self._watch.read_text()[at:].splitlines()]
        late = max((float(line[0]) for line in lines), default=0.0)
        stall = max((float(line[1]) for line in lines), default=0.0)
        for raw in [] if hostility.is_passing else self._sandbox.list("pods", "evil"):
            self._sandbox.delete("pods", raw["metadata"]["name"], "evil", grace=0)
        return Measured(stall, late, memory, bound)

    async def _bind_gang(self, members: int) -> float:
        """Seconds until a gang of another tenant is bound."""
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


async def play(pods: int, hostilities: list[Hostility], show: Callable[[Hostility, Measured], None]) -> None:
    """Measure one after another."""
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
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--only", default="", help="Kinds of hostility whose names have this in them.")
    arguments = parser.parse_args()
    table = Table("hostile pods", "stall ms", "late ms", "MiB more", f"gang of {_GANG} bound s", "held")
    table.add_row("bar", f"{1000 * _STALL_SECONDS:.0f}", "", f"{_MEMORY_MIB:.0f}", f"{_BOUND_SECONDS:.1f}", "")
    failed = []

    def show(hostility: Hostility, found: Measured) -> None:
        figures = (f"{1000 * found.stall:.0f}", f"{1000 * found.late:.0f}", f"{found.memory:.0f}", f"{found.bound:.2f}")
        table.add_row(hostility.name, *figures, "yes" if found.holds else "NO")
        print(hostility.name, *figures, flush=True)
        if not found.holds:
            failed.append(hostility.name)

    asyncio.run(play(arguments.pods, [each for each in HOSTILITIES if arguments.only in each.name], show))
    Console().print(table)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
