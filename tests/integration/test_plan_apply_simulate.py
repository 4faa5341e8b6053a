"""``allaboard plan``, the operator and ``allaboard simulate`` make the same decisions on random clusters and queues.

A case consists of nodes and of gangs that all exist from the start. The answer of ``plan`` is compared with what the operator binds, and
with what ``simulate`` places at time zero. The placed gangs are compared first, then the number of members of each, then their nodes.

``ALLABOARD_CASES=300`` tries 300 cases instead of 30.
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
from allaboard.simulation.player import Evictions, Player, Setup
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

# The variable is removed: the operator refuses unknown variables with its prefix.
CASES = int(os.environ.pop("ALLABOARD_CASES", "30"))

PRODUCTS = ("NVIDIA-A100", "NVIDIA-L4", "Tesla-T4")
PRIORITIES = (0, 0, 0, 10)
"""Priorities to draw from: mostly the same one, so that gangs contend on equal terms."""

LOADS = (0.5, 0.8, 1.0, 1.3, 2.0)
"""Requests of all gangs as a share of the nodes' capacity. The share is approximate, because nodes are whole."""

MOST_TOGETHER = 64
"""Most gangs that ``simulate`` gives the scheduler at once: as many as the operator places together at most."""

Assignments = dict[str, dict[int, str]]
"""Node of each placed pod, by gang and by the pod's index in the gang. Gangs that aren't placed are left out."""


@dataclass(frozen=True)
class Node:
    """An empty node: cpu in thousandths of a core, memory in MiB, and GPUs of a ``product`` (empty without a product label)."""

    cpu: int
    memory: int
    gpus: int = 0
    product: str = ""


@dataclass(frozen=True)
class Role:
    """``count`` pods with equal requests: cpu in thousandths of a core, memory in MiB, and GPUs of one of ``products`` (any if empty)."""

    count: int
    cpu: int
    memory: int
    gpus: int = 0
    products: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gang:
    """A gang of which ``minimum`` members must start together, and of each role at least its number in ``role_minimums``.

    ``role_minimums`` may be empty. Without ``has_pod_group`` the gang is a single pod that names no PodGroup.
    """

    name: str
    roles: tuple[Role, ...]
    minimum: int
    priority: int = 0
    role_minimums: tuple[int, ...] = ()
    has_pod_group: bool = True

    @property
    def pods(self) -> dict[str, tuple[int, int]]:
        """Index of each pod and index of its role, by the pod's name."""
        if not self.has_pod_group:
            return {self.name: (0, 0)}
        roles = [position for position, role in enumerate(self.roles) for _ in range(role.count)]
        return {f"{self.name}-{index:02}": (index, role) for index, role in enumerate(roles)}


@dataclass(frozen=True)
class Case:
    """A cluster and the gangs to place on it, which are created in their order."""

    nodes: tuple[Node, ...]
    gangs: tuple[Gang, ...]

    @property
    def named_nodes(self) -> dict[str, Node]:
        """Nodes by name, the last name first: the order in which a scenario states its nodes must not matter."""
        return {f"node-{len(self.nodes) - number}": node for number, node in enumerate(self.nodes)}


# Strategies that draw cases.


def nodes() -> st.SearchStrategy[Node]:
    """Draw nodes with GPUs of a known product, with GPUs of an unknown product, and without GPUs."""
    cpu, memory = st.sampled_from((4000, 6000, 10000)), st.sampled_from((8192, 12288, 16384))
    with_gpus = st.builds(Node, cpu, memory, st.sampled_from((2, 4, 8)), st.sampled_from((*PRODUCTS, "")))
    return st.one_of(with_gpus, with_gpus, st.builds(Node, cpu, memory))


def roles(most: int = 4) -> st.SearchStrategy[Role]:
    """Draw roles of up to ``most`` pods. Roles without GPUs name no product: a scenario of ``simulate`` can't express that."""
    count, cpu = st.integers(1, most), st.sampled_from((500, 1000, 1500, 2000, 3000, 5000))
    memory, products = st.sampled_from((512, 1024, 2048, 4096)), st.lists(st.sampled_from(PRODUCTS), unique=True, max_size=2)
    with_gpus = st.builds(Role, count, cpu, memory, st.sampled_from((1, 1, 2, 3)), products.map(sorted).map(tuple))
    return st.one_of(st.builds(Role, count, cpu, memory), with_gpus)


@st.composite
def gangs(draw: st.DrawFn, name: str, *, has_role_minimums: bool) -> Gang:
    """Draw a single pod, or a gang of up to three roles whose minimum may leave some members out."""
    priority = draw(st.sampled_from(PRIORITIES))
    if not draw(st.integers(0, 4)):
        return Gang(name, (draw(roles(1)),), 1, priority, has_pod_group=False)
    members = tuple(draw(st.lists(roles(), min_size=1, max_size=3, unique_by=_requests_of)))
    total = sum(role.count for role in members)
    minimum = draw(st.one_of(st.just(total), st.integers(1, total)))
    if not has_role_minimums:
        return Gang(name, members, minimum, priority)
    return Gang(name, members, minimum, priority, tuple(draw(st.integers(0, role.count)) for role in members))


def _requests_of(role: Role) -> tuple[int, int, int, tuple[str, ...]]:
    return role.cpu, role.memory, role.gpus, role.products


@st.composite
def cases(draw: st.DrawFn, *, may_have_role_minimums: bool = False) -> Case:
    """Draw clusters of up to six nodes and up to six gangs, whose names aren't in the order of their creation."""
    number = draw(st.integers(1, 6))
    names = draw(st.permutations([f"gang-{letter}" for letter in "abcdef"[:number]]))
    has_role_minimums = may_have_role_minimums and draw(st.booleans())
    drawn = tuple(draw(gangs(name, has_role_minimums=has_role_minimums)) for name in names)
    load = draw(st.sampled_from(LOADS))
    return Case(_nodes_for(draw(st.lists(nodes(), min_size=6, max_size=6)), [role for gang in drawn for role in gang.roles], load), drawn)


def _nodes_for(drawn: Sequence[Node], roles: Sequence[Role], load: float) -> tuple[Node, ...]:
    """Return the first nodes whose capacity times ``load`` covers the requests of ``roles``, or all nodes."""
    cpu, gpus = sum(role.count * role.cpu for role in roles), sum(role.count * role.gpus for role in roles)
    for number in range(1, len(drawn)):
        chosen = drawn[:number]
        if load * sum(node.cpu for node in chosen) >= cpu and load * sum(node.gpus for node in chosen) >= gpus:
            return tuple(chosen)
    return tuple(drawn)


# A case as objects of Kubernetes.


def manifests_of(case: Case) -> Iterator[Body]:
    """Yield the PriorityClasses, and each PodGroup followed by its pods."""
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


def assignments_by_gang(case: Case, nodes: dict[str, str]) -> Assignments:
    """Return the assignments by gang, given the node of each pod by the pod's name."""
    found = {gang.name: {index: nodes[name] for name, (index, _) in gang.pods.items() if nodes.get(name)} for gang in case.gangs}
    return {gang: each for gang, each in found.items() if each}


# The placement of a case by each of the three.


async def planned(case: Case, settings: Settings, folder: Path) -> Assignments:
    """Return what ``allaboard plan -f manifests.json --snapshot nodes.json`` assigns."""
    manifests, snapshot = folder / "manifests.json", folder / "nodes.json"
    manifests.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests_of(case))}))
    shapes = {name: NodeShape(f"{node.cpu}m", f"{node.memory}Mi", gpus=node.gpus) for name, node in case.named_nodes.items()}
    raw = [node_object(name, shape, _labels(case.named_nodes[name])) for name, shape in shapes.items()]
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": raw}))
    answers = await plan_gangs(read_manifests([str(manifests)]), read_cluster([str(snapshot)], settings.reading), settings, [])
    return assignments_by_gang(case, {pod: node for answer in answers for pod, node in answer.assignments})


class Clock:
    """A clock of the API server that a test advances."""

    def __init__(self) -> None:
        self._now = datetime.now(UTC) - timedelta(hours=1)

    def __call__(self) -> datetime:
        return self._now

    def tick(self) -> None:
        self._now += timedelta(seconds=1)


async def applied(case: Case, settings: Settings, folder: Path) -> Assignments:
    """Return what the operator binds if it starts after all objects exist."""
    clock = Clock()
    async with SandboxHome().open(clock=clock) as cluster:
        for name, node in case.named_nodes.items():
            cluster.add_node(name, cpu=f"{node.cpu}m", memory=f"{node.memory}Mi", gpus=node.gpus, labels=_labels(node))
        for body in manifests_of(case):
            clock.tick()  # as in a plan, each object is younger than the one before
            cluster.create(body)
        async with _operator(cluster, settings, folder) as app:
            await cluster.wait_for(partial(_is_decided, app), message="each pod is bound or refused")
        return assignments_by_gang(case, {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in cluster.list("pods")})


@asynccontextmanager
async def _operator(cluster: Sandbox, settings: Settings, folder: Path) -> AsyncIterator[App]:
    """Run an operator that searches in this process, and yield it once it makes decisions."""
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
    """Return whether each pod has a node or was refused, and no gang is about to be retried."""

    def is_refused(pod: Body) -> bool:
        return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in pod["status"].get("conditions") or ())

    sizes = app.queue.sizes()
    is_idle = not sizes["active"] and not sizes["backoff"] and not any(record.task for record in app.records)
    return is_idle and all(pod["spec"].get("nodeName") or is_refused(pod) for pod in cluster.list("pods"))


class Recorder(Player):
    """A player that records the answers of ``player``."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.assignments: Assignments = {}

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[SimulatedAssignments | None]:
        """Place the gangs by the wrapped player, and record its answers."""
        answers = self._player.place(state, pending)
        for arrival, answer in zip(pending, answers, strict=True):
            if answer and not state.now:
                self.assignments[arrival.name] = {index: state.nodes[each.node].name for index, each in enumerate(answer) if each}
        return answers

    def evictions(self) -> Evictions:
        """Return the evictions of the wrapped player."""
        return self._player.evictions()


def simulated(case: Case, settings: Settings) -> Assignments:
    """Return what ``allaboard simulate`` places if all gangs arrive at time zero."""
    workload = workload_of(case)
    mix = target_mix(workload.classes, workload.popularity, sorted({node.model for node in workload.nodes}))
    recorder = Recorder(make_player(DEFAULT_STRATEGY, Setup(mix, SEED, settings.objective, _search_settings(settings))))
    replay(workload, recorder, mix, batch=MOST_TOGETHER)
    return recorder.assignments


def workload_of(case: Case) -> Workload:
    """Return a case as a scenario of ``simulate``."""
    classes: dict[TaskClass, int] = {}
    arrivals = []
    for gang in case.gangs:
        members = [classes.setdefault(_task(role), len(classes)) for role in gang.roles for _ in range(role.count)]
        arrivals.append(Arrival(gang.name, tuple(members), gang.minimum, gang.priority, run_seconds=3600.0))
    found = tuple(SimNode(name, node.cpu, node.memory * MIB, node.gpus, node.product) for name, node in case.named_nodes.items())
    return Workload(found, tuple(classes), tuple(arrivals), waits=True)


def _task(role: Role) -> TaskClass:
    return TaskClass(role.cpu, role.memory * MIB, role.gpus, WHOLE_GPU_MILLI if role.gpus else 0, role.products)


def _search_settings(settings: Settings) -> SearchSettings:
    return SearchSettings(**settings.search.model_dump())


# Properties.


def our_settings() -> Settings:
    """Return the default settings, except for short pauses."""
    return load_settings({**QUICK, "batch_window_seconds": 0})


def assert_same(plan: Assignments, other: Assignments) -> None:
    """Assert that two placements are equal; the coarse differences come first, because other gangs imply other nodes."""
    assert sorted(plan) == sorted(other), "other gangs are placed"
    assert _members(plan) == _members(other), "more or fewer members of a gang are placed"
    assert plan == other, "as many members are placed, but not the same, or on other nodes"


def _members(assignments: Assignments) -> dict[str, int]:
    return {gang: len(nodes) for gang, nodes in assignments.items()}


# The phase that explains failures is left out: it traces each line, which takes ten times as long.
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
some_cases = hypothesis.settings(max_examples=CASES, derandomize=True, print_blob=True, phases=PHASES)


@pytest.mark.sandbox_only("sets the API server's clock")
@pytest.mark.timeout(120 + 10 * CASES)
@some_cases
@given(case=cases(may_have_role_minimums=True))
def test_operator_binds_what_plan_assigns(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings, folder = our_settings(), tmp_path_factory.mktemp("case")

    async def both() -> tuple[Assignments, Assignments]:
        return await planned(case, settings, folder), await applied(case, settings, folder)

    assert_same(*asyncio.run(both()))


@pytest.mark.timeout(120 + 10 * CASES)
@some_cases
@given(case=cases())
def test_simulate_places_at_time_zero_what_plan_assigns(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings, folder = our_settings(), tmp_path_factory.mktemp("case")

    assert_same(asyncio.run(planned(case, settings, folder)), simulated(case, settings))
