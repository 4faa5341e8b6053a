"""``allaboard plan``, the operator and ``allaboard simulate`` decide alike, over random clusters and queues.

Each case is nodes, and gangs that are all there at once. What ``plan`` says of them is compared with what the operator binds, and with what
``simulate`` does at time zero: which gangs are placed, then how many members of each, then on which nodes.

ALLABOARD_CASES=300 tries that many cases instead of 30.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from allaboard.app import App
from allaboard.gangs.membership import POD_GROUP_LABEL
from allaboard.placement import SearchSettings
from allaboard.planning.planner import SEED
from allaboard.planning.search_processes import Searcher
from allaboard.plugins import DEFAULT_STRATEGY
from allaboard.settings.options import Settings, load_settings
from allaboard.simulation.fragmentation import target_mix
from allaboard.simulation.ours import GPU, PRODUCT
from allaboard.simulation.player import Assignments as SimulatedAssignments
from allaboard.simulation.player import Player, Setup
from allaboard.simulation.players import make_player
from allaboard.simulation.replay import replay
from allaboard.simulation.state import ClusterState
from allaboard.simulation.workload import MIB, WHOLE_GPU_MILLI, Arrival, SimNode, TaskClass, Workload
from allaboard.whatif.manifests import read_manifests
from allaboard.whatif.snapshots import read_cluster
from allaboard.whatif.whatif import plan_gangs
from allaboard_sandbox import Sandbox
from allaboard_sandbox.sandbox import NodeShape, node_object
from tests.cluster import Body
from tests.conftest import SandboxHome

from .conftest import QUICK

# Taken out: the operator refuses variables of its prefix that it doesn't know.
CASES = int(os.environ.pop("ALLABOARD_CASES", "30"))

PRODUCTS = ("NVIDIA-A100", "NVIDIA-L4", "Tesla-T4")
PRIORITIES = (0, 0, 0, 10)
"""Mostly one and the same, so that gangs contend on equal terms."""

LOADS = (0.5, 0.8, 1.0, 1.3, 2.0)
"""How much all gangs ask for, of what the nodes have; about so much, for nodes are whole."""

MOST_TOGETHER = 64
"""Gangs that ``simulate`` shows to the scheduler at once: as many as the operator places together at most."""

Seats = dict[str, dict[int, str]]
"""The node of each pod that has one, by gang and by the pod's index in it. A gang that isn't placed isn't in it."""


@dataclass(frozen=True)
class Node:
    """An empty node: cpu in thousandths, memory in MiB, and GPUs of a ``product``, empty if its label doesn't say."""

    cpu: int
    memory: int
    gpus: int = 0
    product: str = ""


@dataclass(frozen=True)
class Role:
    """``count`` pods that ask for the same: cpu in thousandths, memory in MiB, GPUs, of one of ``products`` if any are named."""

    count: int
    cpu: int
    memory: int
    gpus: int = 0
    products: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gang:
    """A gang of which ``minimum`` members must start together, and so many of each role if ``role_minimums`` states any.

    Without ``has_pod_group`` it is a single pod that names no PodGroup.
    """

    name: str
    roles: tuple[Role, ...]
    minimum: int
    priority: int = 0
    role_minimums: tuple[int, ...] = ()
    has_pod_group: bool = True

    @property
    def pods(self) -> dict[str, tuple[int, int]]:
        """The index of each pod and that of its role, by the pod's name."""
        if not self.has_pod_group:
            return {self.name: (0, 0)}
        roles = [position for position, role in enumerate(self.roles) for _ in range(role.count)]
        return {f"{self.name}-{index:02}": (index, role) for index, role in enumerate(roles)}


@dataclass(frozen=True)
class Case:
    """A cluster and what is to be placed on it. ``gangs`` are made one after the other."""

    nodes: tuple[Node, ...]
    gangs: tuple[Gang, ...]

    @property
    def named_nodes(self) -> dict[str, Node]:
        """The nodes, the last by name first: in which order a scenario states them changes nothing."""
        return {f"node-{len(self.nodes) - number}": node for number, node in enumerate(self.nodes)}


# What is drawn.


def nodes() -> st.SearchStrategy[Node]:
    """Nodes with GPUs of a product, with GPUs of which nobody says what they are, and without any."""
    cpu, memory = st.sampled_from((4000, 6000, 10000)), st.sampled_from((8192, 12288, 16384))
    with_gpus = st.builds(Node, cpu, memory, st.sampled_from((2, 4, 8)), st.sampled_from((*PRODUCTS, "")))
    return st.one_of(with_gpus, with_gpus, st.builds(Node, cpu, memory))


def roles(most: int = 4) -> st.SearchStrategy[Role]:
    """Roles of up to ``most`` pods. Those without GPUs ask for no product, since no scenario of ``simulate`` can say that they do."""
    count, cpu = st.integers(1, most), st.sampled_from((500, 1000, 1500, 2000, 3000, 5000))
    memory, products = st.sampled_from((512, 1024, 2048, 4096)), st.lists(st.sampled_from(PRODUCTS), unique=True, max_size=2)
    with_gpus = st.builds(Role, count, cpu, memory, st.sampled_from((1, 1, 2, 3)), products.map(sorted).map(tuple))
    return st.one_of(st.builds(Role, count, cpu, memory), with_gpus)


@st.composite
def gangs(draw: st.DrawFn, name: str, *, has_role_minimums: bool) -> Gang:
    """A single pod, or a gang of up to three roles whose minimum may leave some members out."""
    priority = draw(st.sampled_from(PRIORITIES))
    if not draw(st.integers(0, 4)):
        return Gang(name, (draw(roles(1)),), 1, priority, has_pod_group=False)
    members = tuple(draw(st.lists(roles(), min_size=1, max_size=3, unique_by=_what_a_pod_asks_for)))
    total = sum(role.count for role in members)
    minimum = draw(st.one_of(st.just(total), st.integers(1, total)))
    if not has_role_minimums:
        return Gang(name, members, minimum, priority)
    return Gang(name, members, minimum, priority, tuple(draw(st.integers(0, role.count)) for role in members))


def _what_a_pod_asks_for(role: Role) -> tuple[int, int, int, tuple[str, ...]]:
    return role.cpu, role.memory, role.gpus, role.products


@st.composite
def cases(draw: st.DrawFn, *, may_have_role_minimums: bool = False) -> Case:
    """Clusters of up to six nodes and up to six gangs, whose names aren't in the order in which they are made."""
    number = draw(st.integers(1, 6))
    names = draw(st.permutations([f"gang-{letter}" for letter in "abcdef"[:number]]))
    has_role_minimums = may_have_role_minimums and draw(st.booleans())
    drawn = tuple(draw(gangs(name, has_role_minimums=has_role_minimums)) for name in names)
    load = draw(st.sampled_from(LOADS))
    return Case(_enough(draw(st.lists(nodes(), min_size=6, max_size=6)), [role for gang in drawn for role in gang.roles], load), drawn)


def _enough(drawn: Sequence[Node], asking: Sequence[Role], load: float) -> tuple[Node, ...]:
    """The first nodes of which the roles ask for ``load`` times what they have, or all of them."""
    cpu, gpus = sum(role.count * role.cpu for role in asking), sum(role.count * role.gpus for role in asking)
    for number in range(1, len(drawn)):
        there = drawn[:number]
        if load * sum(node.cpu for node in there) >= cpu and load * sum(node.gpus for node in there) >= gpus:
            return tuple(there)
    return tuple(drawn)


# A case as Kubernetes has it.


def manifests_of(case: Case) -> Iterator[Body]:
    """The PriorityClasses, and each PodGroup followed by its pods."""
    for priority in sorted({gang.priority for gang in case.gangs} - {0}):
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"priority-{priority}"},
            "value": priority,
        }
    for gang in case.gangs:
        if gang.has_pod_group:
            yield _pod_group(gang)
        for name, (_, role) in gang.pods.items():
            yield _pod(gang, name, role)


def _pod_group(gang: Gang) -> Body:
    metadata: Body = {"name": gang.name, "namespace": "default"}
    if any(gang.role_minimums):
        minimums = ",".join(f"role-{role}={minimum}" for role, minimum in enumerate(gang.role_minimums) if minimum)
        metadata["annotations"] = {"allaboard.dev/min-members": minimums}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": gang.minimum},
    }


def _pod(gang: Gang, name: str, position: int) -> Body:
    role = gang.roles[position]
    metadata: Body = {"name": name, "namespace": "default"}
    if gang.has_pod_group:
        metadata["labels"] = {POD_GROUP_LABEL: gang.name}
    if any(gang.role_minimums):
        metadata["annotations"] = {"allaboard.dev/role": f"role-{position}"}
    resources: Body = {"requests": {"cpu": f"{role.cpu}m", "memory": f"{role.memory}Mi"}}
    if role.gpus:
        resources["requests"][GPU] = str(role.gpus)
        resources["limits"] = {GPU: str(role.gpus)}
    spec: Body = {"schedulerName": "allaboard", "containers": [{"name": "main", "image": "pause", "resources": resources}]}
    if role.products:
        term = {"matchExpressions": [{"key": PRODUCT, "operator": "In", "values": list(role.products)}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    if gang.priority:
        spec["priorityClassName"] = f"priority-{gang.priority}"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labels(node: Node) -> dict[str, str]:
    return {PRODUCT: node.product} if node.product else {}


def seats_by_gang(case: Case, nodes: dict[str, str]) -> Seats:
    """Seats, from the node of each pod by the pod's name."""
    found = {gang.name: {index: nodes[name] for name, (index, _) in gang.pods.items() if nodes.get(name)} for gang in case.gangs}
    return {gang: seats for gang, seats in found.items() if seats}


# What the three make of a case.


async def planned(case: Case, settings: Settings, folder: Path) -> Seats:
    """What ``allaboard plan -f manifests.json --snapshot nodes.json`` says."""
    manifests, snapshot = folder / "manifests.json", folder / "nodes.json"
    manifests.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests_of(case))}))
    shapes = {name: NodeShape(f"{node.cpu}m", f"{node.memory}Mi", gpus=node.gpus) for name, node in case.named_nodes.items()}
    raw = [node_object(name, shape, _labels(case.named_nodes[name])) for name, shape in shapes.items()]
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": raw}))
    answers = await plan_gangs(read_manifests([str(manifests)]), read_cluster([str(snapshot)], settings.reading), settings, [])
    return seats_by_gang(case, {pod: node for answer in answers for pod, node in answer.assignments})


class Clock:
    """A clock of an API server that a test sets forward."""

    def __init__(self) -> None:
        self._now = datetime.now(UTC) - timedelta(hours=1)

    def __call__(self) -> datetime:
        return self._now

    def tick(self) -> None:
        self._now += timedelta(seconds=1)


async def applied(case: Case, settings: Settings, folder: Path) -> Seats:
    """What the operator binds that is started when everything is there."""
    clock = Clock()
    async with SandboxHome().open(clock=clock) as cluster:
        for name, node in case.named_nodes.items():
            cluster.add_node(name, cpu=f"{node.cpu}m", memory=f"{node.memory}Mi", gpus=node.gpus, labels=_labels(node))
        for body in manifests_of(case):
            clock.tick()  # as a plan takes it: each object is younger than those before it
            cluster.create(body)
        async with _operator(cluster, settings, folder) as app:
            await cluster.wait_for(partial(_is_decided, app), message="every pod is bound, or told why not")
        return seats_by_gang(case, {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in cluster.list("pods")})


@asynccontextmanager
async def _operator(cluster: Sandbox, settings: Settings, folder: Path) -> AsyncIterator[App]:
    """An operator that makes decisions, and searches in this process."""
    cluster.write_kubeconfig(folder / "kubeconfig")
    with Searcher(_search_settings(settings), workers=0) as searcher:
        app = App(settings.model_copy(update={"kubeconfig": str(folder / "kubeconfig")}), searcher)
        await app.start()
        try:
            await app.scheduling.wait()
            yield app
        finally:
            await app.stop()


def _is_decided(app: App, cluster: Sandbox) -> bool:
    """Whether each pod has a node or was told why not, and nobody is about to be tried once more."""

    def is_told(pod: Body) -> bool:
        return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in pod["status"].get("conditions") or ())

    sizes = app.queue.sizes()
    is_idle = not sizes["active"] and not sizes["backoff"] and not any(record.task for record in app.records)
    return is_idle and all(pod["spec"].get("nodeName") or is_told(pod) for pod in cluster.list("pods"))


class Recorder:
    """A ``player`` whose answers are kept."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.seats: Seats = {}

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[SimulatedAssignments | None]:
        """As ``Player.place``."""
        answers = self._player.place(state, pending)
        for arrival, seats in zip(pending, answers, strict=True):
            if seats:
                self.seats[arrival.name] = {index: state.nodes[seat.node].name for index, seat in enumerate(seats) if seat}
        return answers


def simulated(case: Case, settings: Settings) -> Seats:
    """What ``allaboard simulate`` does when all gangs arrive at time zero, and stay."""
    workload = workload_of(case)
    mix = target_mix(workload.classes, workload.popularity, sorted({node.model for node in workload.nodes}))
    recorder = Recorder(make_player(DEFAULT_STRATEGY, Setup(mix, SEED, settings.objective, _search_settings(settings))))
    replay(workload, recorder, mix, batch=MOST_TOGETHER)
    return recorder.seats


def workload_of(case: Case) -> Workload:
    """A case as a scenario of ``simulate`` has it."""
    classes: dict[TaskClass, int] = {}
    arrivals = []
    for gang in case.gangs:
        members = [classes.setdefault(_task(role), len(classes)) for role in gang.roles for _ in range(role.count)]
        arrivals.append(Arrival(gang.name, tuple(members), gang.minimum, gang.priority))
    found = tuple(SimNode(name, node.cpu, node.memory * MIB, node.gpus, node.product) for name, node in case.named_nodes.items())
    return Workload(found, tuple(classes), tuple(arrivals), waits=True)


def _task(role: Role) -> TaskClass:
    return TaskClass(role.cpu, role.memory * MIB, role.gpus, WHOLE_GPU_MILLI if role.gpus else 0, role.products)


def _search_settings(settings: Settings) -> SearchSettings:
    return SearchSettings(**settings.search.model_dump())


# The properties.


def our_settings() -> Settings:
    """The defaults, but for short pauses."""
    return load_settings({**QUICK, "batch_window_seconds": 0})


def assert_same(plan: Seats, other: Seats) -> None:
    """Compare the coarse answers first: whoever places other gangs has them on other nodes anyhow."""
    assert sorted(plan) == sorted(other), "other gangs are placed"
    assert _members(plan) == _members(other), "more or fewer members of a gang are placed"
    assert plan == other, "as many members are placed, but not the same, or on other nodes"


def _members(seats: Seats) -> dict[str, int]:
    return {gang: len(nodes) for gang, nodes in seats.items()}


# Without the phase that explains a failure: it traces each line, which takes ten times as long.
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
some_cases = hypothesis.settings(max_examples=CASES, derandomize=True, print_blob=True, phases=PHASES)


@pytest.mark.sandbox_only("sets the API server's clock")
@pytest.mark.timeout(120 + 10 * CASES)
@some_cases
@given(case=cases(may_have_role_minimums=True))
def test_the_operator_binds_what_a_plan_says(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings, folder = our_settings(), tmp_path_factory.mktemp("case")

    async def both() -> tuple[Seats, Seats]:
        return await planned(case, settings, folder), await applied(case, settings, folder)

    assert_same(*asyncio.run(both()))


@pytest.mark.timeout(120 + 10 * CASES)
@some_cases
@given(case=cases())
def test_simulate_does_at_time_zero_what_a_plan_says(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings, folder = our_settings(), tmp_path_factory.mktemp("case")

    assert_same(asyncio.run(planned(case, settings, folder)), simulated(case, settings))
