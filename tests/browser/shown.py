"""States for the page to show, without a scheduler: the real API serves them as it serves the state of a scheduler."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allaboard.sight.access import EVERYTHING, Rights
from allaboard.sight.board import Allows, anywhere
from allaboard.sight.values import (
    Decision,
    Decisions,
    Domains,
    Gang,
    GangRow,
    Gangs,
    MemberRow,
    Members,
    NodeGroup,
    NodeRow,
    Nodes,
    Outlook,
    Queue,
    Sample,
    Share,
    Snapshot,
    Status,
    Timeline,
)

GPU = "nvidia.com/gpu"
GIB = 1024**3


class Shown:
    """A board of rows that a test sets. ``change`` has the page read them again."""

    def __init__(self, gangs: Iterable[GangRow] = (), nodes: Iterable[NodeRow] = ()) -> None:
        self.rows = {f"{row.namespace}/{row.name}": row for row in gangs}
        self.node_rows = list(nodes)
        self.outlooks: dict[str, Mapping[str, Any]] = {}
        self.groups: dict[str, Sequence[NodeGroup]] = {}
        self.pods: dict[str, Sequence[MemberRow]] = {}
        self.history: dict[str, Sequence[Decision]] = {}
        self.leads, self.is_ready, self.cache_age = True, True, 0.4
        self.grouped_by = "topology.kubernetes.io/rack"
        self.version = 1
        self.samples: Sequence[Sample] = ()
        self.last: Sequence[Decision] = ()

    def change(self, *rows: GangRow) -> None:
        """Set ``rows``, and report a change."""
        self.rows.update({f"{row.namespace}/{row.name}": row for row in rows})
        self.version += 1

    def namespaces(self) -> Sequence[str]:
        return sorted({row.namespace for row in self.rows.values()})

    def status(self) -> Status:
        return Status(at=time.time(), version="0.1.0", leads=self.leads, is_ready=self.is_ready, cache_age=self.cache_age)

    async def queue(self, allows: Allows = anywhere) -> Queue:
        return Queue(at=time.time(), gangs=[row for row in self.rows.values() if row.position], hidden=0)

    async def gangs(self, allows: Allows = anywhere) -> Gangs:
        return Gangs(at=time.time(), gangs=list(self.rows.values()), hidden=0)

    async def gang(self, namespace: str, name: str, allows: Allows = anywhere) -> Gang | None:
        key = f"{namespace}/{name}"
        if key not in self.rows:
            return None
        return Gang(
            at=time.time(),
            row=self.rows[key],
            roles=[],
            members=self.pods.get(key, ()),
            reservation=None,
            plan=None,
            advice="",
            outlook=Outlook.model_validate(self.outlooks[key]) if key in self.outlooks else None,
            node_groups=self.groups.get(key, ()),
            history=self.history.get(key, ()),
        )

    async def nodes(self, allows: Allows = anywhere) -> Nodes:
        return Nodes(at=time.time(), grouped_by=self.grouped_by, nodes=self.node_rows)

    async def domains(self, label: str = "") -> Domains:
        labels = {"topology.kubernetes.io/zone": {node.name: f"zone-{node.name[-1]}" for node in self.node_rows}}
        return Domains(at=time.time(), label=label, domains=labels.get(label, {}), labels=list(labels))

    async def decisions(self, allows: Allows = anywhere) -> Decisions:
        return Decisions(at=time.time(), decisions=self.last, hidden=0)

    def timeline(self) -> Timeline:
        return Timeline(at=time.time(), samples=self.samples)

    async def snapshot(self, allows: Allows = anywhere) -> Snapshot:
        raise NotImplementedError


class Everything:
    """Access that grants everything to every request."""

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        return EVERYTHING


def a_gang(
    name: str, *, position: int | None = None, bound: int = 0, needed: int = 1, message: str = "", waits: float = 600, **fields: Any
) -> GangRow:
    """Return the row of a gang ``namespace/name``, which waits if it has a position."""
    namespace, _, own = name.partition("/")
    now = time.time()
    values = {
        "namespace": namespace,
        "name": own,
        "kind": "PodGroup",
        "state": "Insufficient" if position else "Scheduled",
        "message": message,
        "position": position,
        "priority": 0,
        "members": Members(needed=needed, bound=bound, running=bound, present=needed),
        "gpus": float(needed),
        "created": now - waits,
        "waiting_since": now - waits if position else None,
        "expected_start": None,
        "waits_for": "",
    }
    return GangRow(**{**values, **fields})


def a_node(
    name: str,
    domain: str = "",
    *,
    gpus: int = 8,
    cpus: float = 64,
    shares: Mapping[str, float] | None = None,
    stranded: float = 0,
    **fields: Any,
) -> NodeRow:
    """Return the row of a node. ``shares`` are GPUs by the gangs that use them; on a node without GPUs, cores of cpu."""
    used = sum((shares or {}).values())
    per_gpu = cpus / gpus if gpus else 1.0
    cpus_free = cpus - used * per_gpu
    values = {
        "name": name,
        "domain": domain,
        "is_ready": True,
        "is_cordoned": False,
        "allocatable": {"cpu": cpus, "memory": 256.0 * GIB, **({GPU: gpus} if gpus else {})},
        "free": {"cpu": cpus_free, "memory": 128.0 * GIB, **({GPU: gpus - used} if gpus else {})},
        "gpus": float(gpus),
        "gpus_free": gpus - used if gpus else 0.0,
        "gpus_stranded": float(stranded),
        "shares": [
            Share(gang=gang, pods=1, gpus=amount if gpus else 0.0, requests={"cpu": amount * per_gpu})
            for gang, amount in (shares or {}).items()
        ],
    }
    return NodeRow(**{**values, **fields})


def a_member(pod: str, node: str = "", phase: str = "Pending", gpus: float = 1.0) -> MemberRow:
    return MemberRow(pod=pod, role="worker", node=node, phase=phase, gpus=gpus)


def a_cluster() -> Shown:
    """Return a cluster of four racks: gangs run, wait or are partially bound; a node is not ready, and another one is cordoned."""
    nodes = [
        a_node("gpu-a1", "rack-a", shares={"vision/train-resnet": 8}),
        a_node("gpu-a2", "rack-a", shares={"vision/train-resnet": 8}),
        a_node("gpu-a3", "rack-a", shares={"speech/whisper-large": 6}, stranded=2),
        a_node("gpu-a4", "rack-a", shares={"speech/whisper-large": 6, "notebooks/ada": 1}, stranded=1),
        a_node("gpu-b1", "rack-b", shares={"llm/pretrain-7b": 8}),
        a_node("gpu-b2", "rack-b", shares={"llm/pretrain-7b": 8}),
        a_node("gpu-b3", "rack-b", shares={"": 4, "llm/eval-nightly": 2}),
        a_node("gpu-b4", "rack-b", is_ready=False),
        a_node("gpu-c1", "rack-c", shares={"llm/eval-nightly": 3}),
        a_node("gpu-c2", "rack-c"),
        a_node("gpu-c3", "rack-c", is_cordoned=True, shares={"notebooks/ada": 1}),
        a_node("gpu-c4", "rack-c", shares={"recsys/two-tower": 5}, stranded=1),
        a_node("cpu-1", "rack-d", gpus=0, shares={"data/shuffle": 40, "kube-system": 4}),
        a_node("cpu-2", "rack-d", gpus=0, shares={"data/shuffle": 40}),
    ]
    now = time.time()
    short = (
        "0/14 nodes are available: 8 Insufficient nvidia.com/gpu, 2 node(s) had no GPU, 1 node(s) were not ready, "
        "1 node(s) were unschedulable."
    )
    gangs = [
        a_gang(
            "llm/pretrain-70b",
            position=1,
            needed=4,
            gpus=32.0,
            waits=7380,
            priority=100,
            waits_for="llm/pretrain-7b",
            expected_start=now + 1500,
            message=f"3 of 4 members can be placed: {short}",
        ),
        a_gang(
            "vision/finetune-vit",
            position=2,
            needed=5,
            bound=3,
            gpus=5.0,
            waits=95,
            state="PartiallyBound",
            message="3 of 5 members have a node; 2 were lost with the node gpu-b4 and are replaced first.",
        ),
        a_gang(
            "speech/align",
            position=3,
            needed=2,
            gpus=16.0,
            waits=3100,
            expected_start=now + 8100,
            message=f"1 of 2 members can be placed: {short}",
        ),
        a_gang("recsys/ranker", position=4, needed=3, gpus=12.0, waits=1260, message=f"2 of 3 members can be placed: {short}"),
        a_gang(
            "notebooks/grace",
            position=5,
            needed=8,
            gpus=8.0,
            waits=42,
            state="TooFewMembers",
            message="5 of 8 members exist; the gang waits until all of them do.",
        ),
        a_gang("data/nightly", position=6, needed=6, gpus=0.0, waits=18, state="", message=""),
        *(
            a_gang(name, needed=needed, bound=needed, gpus=float(gpus))
            for name, needed, gpus in (
                ("vision/train-resnet", 2, 16),
                ("speech/whisper-large", 3, 12),
                ("notebooks/ada", 2, 2),
                ("llm/pretrain-7b", 2, 16),
                ("llm/eval-nightly", 5, 5),
                ("recsys/two-tower", 5, 5),
                ("data/shuffle", 20, 0),
            )
        ),
    ]
    shown = Shown(gangs, nodes)
    key = "llm/pretrain-70b"
    shown.outlooks[key] = {
        "kind": "reserved",
        "begins": now + 1500,
        "nodes": [
            {"node": "gpu-c2", "pods": 1, "gpus": 8.0, "requests": {"cpu": 32, GPU: 8}, "lacks": {}},
            {"node": "gpu-c1", "pods": 1, "gpus": 8.0, "requests": {"cpu": 32, GPU: 8}, "lacks": {GPU: 3}},
            {"node": "gpu-b1", "pods": 1, "gpus": 8.0, "requests": {"cpu": 32, GPU: 8}, "lacks": {GPU: 8, "cpu": 32}},
        ],
        "unplaced": 1,
        "waitsFor": [
            {"gang": "llm/eval-nightly", "ends": now + 600, "basis": "stated", "nodes": ["gpu-c1"]},
            {"gang": "llm/pretrain-7b", "ends": now + 1500, "basis": "guessed", "nodes": ["gpu-b1", "gpu-b2"]},
            {"gang": "", "ends": now + 1500, "basis": "unknown", "nodes": ["gpu-b3"]},
        ],
    }
    shown.groups[key] = [
        NodeGroup(role="worker", nodes=1, names=["gpu-c2"], takes=1, lacks={}, reasons=[]),
        NodeGroup(role="worker", nodes=8, names=["gpu-a1", "gpu-a2"], takes=0, lacks={GPU: 3}, reasons=["Insufficient nvidia.com/gpu"]),
        NodeGroup(role="worker", nodes=1, names=["gpu-b4"], takes=0, lacks={}, reasons=["node(s) were not ready"]),
    ]
    shown.pods[key] = [a_member(f"pretrain-70b-{index}", gpus=8) for index in range(4)]
    shown.history[key] = [
        Decision(
            namespace="llm",
            name="pretrain-70b",
            first_at=now - 7380,
            last_at=now - 60,
            times=41,
            decision="Wait",
            reason="Insufficient",
            message=f"3 of 4 members can be placed: {short}",
        ),
    ]
    return shown


def an_hour() -> Shown:
    """Return a cluster with samples of an hour and three decisions."""
    shown, now = a_cluster(), time.time()
    shown.samples = [
        Sample(at=now - 15 * (239 - place), gpus=96, gpus_used=30 + place / 8, gpus_stranded=4 + place % 60 / 20, waiting=place // 40)
        for place in range(240)
    ]
    shown.last = [
        Decision(namespace="llm", name=name, first_at=now - age, last_at=now - age, times=1, decision=decision, reason="", message="")
        for name, age, decision in (("pretrain-7b", 3000, "Bind"), ("pretrain-70b", 2400, "Wait"), ("eval-nightly", 600, "Bind"))
    ]
    return shown
