"""Places the gangs of manifests on a cluster, one after another in queue order, as the scheduler would; binds nothing.

The same registry, search and words as the operator's, so that a plan says what the operator would do and why.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from allaboard.cli.documents import ManifestError, Origin
from allaboard.cli.manifests import Cluster, Expanded, Manifests
from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import VolumeView
from allaboard.gangs.podgroup import PodGroup, pod_group_from
from allaboard.gangs.registry import OVER_LIMIT, GangDefaults, GangRegistry
from allaboard.model.constraints import NodeSelectorTerm, Requirement
from allaboard.model.errors import MalformedError
from allaboard.model.gang import Gang, GangKey, Hold
from allaboard.model.headroom import headroom_from
from allaboard.model.interner import Interner
from allaboard.model.pod import Pod, pod_from
from allaboard.placement import NodeFilters, Plan, Problem, SearchSettings, search
from allaboard.placement.relax import relieve
from allaboard.report import words
from allaboard.scheduling.advice import leavers, sentence, surroundings
from allaboard.scheduling.order import order_of
from allaboard.scheduling.problems import problem_of
from allaboard.scheduling.surroundings import in_surroundings
from allaboard.settings import Settings


@dataclass(frozen=True, slots=True)
class SearchFigures:
    """How a gang's search went; scores are 0..100, ``None`` when there was none."""

    seed_score: float | None
    score: float | None
    generations: int
    stopped_by: str


@dataclass(frozen=True, slots=True)
class PlannedGang:
    """The answer for one gang. Pods are named within its namespace.

    ``feasible``: True when the minimum is placed, False when it is known that it can't be, None when no placement was found. Unless
    it is True, only those are assigned who have a node already. ``proof`` is the search's, or ``members`` when too few pods exist,
    or ``held`` when the gang must not be scheduled as it is.
    """

    namespace: str
    name: str
    min_member: int
    feasible: bool | None
    assignments: tuple[tuple[str, str], ...]
    unplaced: tuple[str, ...]
    message: str
    proof: str
    search: SearchFigures


def plan_gangs(manifests: Manifests, cluster: Cluster, settings: Settings, notes: list[str]) -> list[PlannedGang]:
    """The gangs of ``manifests`` on ``cluster``, in the order in which they are scheduled; what is said to people goes to ``notes``.

    Raises ``ManifestError`` for a gang that its manifests declare wrongly.
    """
    # 1. The cluster as it is, and the pods as they would be created.
    view = ClusterView({resource: headroom_from(resource, amount) for resource, amount in settings.headroom.items()})
    for node in cluster.nodes:
        view.upsert_node(node)
    for pod in cluster.pods:
        view.upsert_pod(pod)
    registry = GangRegistry(
        settings.scheduler_names, defaults=GangDefaults(settings.objective, settings.schedule_timeout_seconds, settings.topology)
    )
    pods = _adopted(manifests.pods, view, settings, notes)
    for pod in pods:
        view.upsert_pod(pod)
        registry.observe_pod(None, pod)
    # 2. Their gangs.
    groups = list(_pod_groups(manifests, cluster, {key for pod in pods if (key := registry.key_of(pod))}))
    for group, _ in groups:
        registry.observe_group(group)
    origins = _Origins(
        pods={pod.key: expanded.origin for pod, expanded in zip(pods, manifests.pods, strict=True)},
        groups={group.key: origin for group, origin in groups},
    )
    gangs = sorted(registry.gangs(), key=order_of)
    for gang in gangs:
        if gang.hold and (error := origins.bad_input(gang, gang.hold)):
            raise error
    # 3. One after another, each around the seats promised before it.
    filters = NodeFilters()
    seated = _Seated(cluster, settings)
    return [_planned(gang, view, settings, filters, seated) for gang in gangs]


class _Seated:
    """The gangs that hold seats: those of the cluster, which are put together when somebody asks, and those that were placed before."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._gangs: dict[GangKey, Gang] = {}
        self._is_read = False

    def add(self, gang: Gang, seats: Mapping[str, str]) -> None:
        """``gang`` sits where ``seats``, nodes by uid, have put it."""
        members = tuple(replace(pod, node_name=seats.get(pod.uid, pod.node_name)) for pod in gang.members)
        self._gangs[gang.key] = replace(gang, members=members)

    def all(self) -> Iterable[Gang]:
        """All there are."""
        if not self._is_read:
            self._is_read = True
            registry = GangRegistry(self._settings.scheduler_names)
            for pod in self._cluster.pods:
                registry.observe_pod(None, pod)
            for found in self._cluster.pod_groups:
                with suppress(ManifestError):  # the gang is there without it
                    registry.observe_group(_pod_group(found))
            self._gangs = {gang.key: gang for gang in registry.gangs()} | self._gangs
        return self._gangs.values()


def _planned(gang: Gang, view: ClusterView, settings: Settings, filters: NodeFilters, seated: _Seated) -> PlannedGang:
    if gang.hold:
        # Whether it would fit if we understood what it asks for isn't known.
        return _answer(gang, None if gang.hold.reason == "Unsupported" else False, gang.hold.message, "held")
    if not gang.candidates and gang.is_whole:
        return _answer(gang, True, "all members have a node already", "greedy")
    for pod in gang.candidates:
        if pod.spec.claims:
            claim = f"PersistentVolumeClaim {gang.key.namespace}/{pod.spec.claims[0]}"
            return _answer(gang, None, f"pod {pod.name}: a plan can't know which nodes {claim} allows", "held")
    if gang.awaits_pods:
        return _answer(gang, False, words.members_missing(gang), "members")
    placed = in_surroundings(gang, VolumeView(), view)
    if placed.hold:
        return _answer(gang, None, placed.hold.message, "held")
    problem = problem_of(placed, gang.least, view.snapshot(), filters, settings.packing.parsed)
    plan = search(problem, SearchSettings(**settings.search.model_dump()), zlib.crc32(f"{gang.key}/0".encode()))
    if not plan.feasible:
        advice = _advice(placed, problem, view, filters, seated) if plan.feasible is False else ""
        return _answer(gang, plan.feasible, words.with_advice(words.refusal(gang, plan), advice), plan.proof, plan)
    members = {pod.uid: pod for pod in gang.members}
    for uid, node_name in plan.assignments:
        view.assume(members[uid], node_name)
    seated.add(gang, dict(plan.assignments))
    return _answer(gang, True, _success(gang, plan), plan.proof, plan)


def _advice(gang: Gang, problem: Problem, view: ClusterView, filters: NodeFilters, seated: _Seated) -> str:
    """What would let a gang in that can't be placed."""
    others = leavers(gang, seated.all())
    return sentence(gang, relieve(surroundings(gang, problem, view.snapshot(), others, filters)), others)


def _answer(gang: Gang, feasible: bool | None, message: str, proof: str, plan: Plan | None = None) -> PlannedGang:
    seats = {pod.uid: pod.node_name for pod in gang.bound}
    if feasible and plan:
        seats |= dict(plan.assignments)
    report = plan.search if plan else None
    return PlannedGang(
        namespace=gang.key.namespace,
        name=gang.key.name,
        min_member=gang.min_member,
        feasible=feasible,
        assignments=tuple((pod.name, seats[pod.uid]) for pod in gang.members if pod.uid in seats),
        unplaced=tuple(pod.name for pod in gang.alive if pod.uid not in seats),
        message=message,
        proof=proof,
        search=SearchFigures(
            seed_score=round(report.seed_score, 4) if report else None,
            score=round(report.score, 4) if report else None,
            generations=report.generations if report else 0,
            stopped_by=report.stopped_by if report else proof,
        ),
    )


def _success(gang: Gang, plan: Plan) -> str:
    total = len(gang.alive)
    head = f"{len(gang.bound) + len(plan.assignments)} of {total} pods placed"
    left_out = words.surplus_refusals(plan)
    if not left_out:
        return head
    names = {pod.uid: pod.name for pod in gang.members}
    uid, reason = next(iter(left_out.items()))
    return f"{head}, {gang.min_member} needed; pod {names[uid]}: {reason}"


def _adopted(expanded: Iterable[Expanded], view: ClusterView, settings: Settings, notes: list[str]) -> list[Pod]:
    """The pods as ours. One of a name that is bound in the cluster is that pod, where it is."""
    adopted: list[Pod] = []
    foreign: set[str] = set()
    intern = Interner()
    for found in expanded:
        pod = pod_from(found.raw, intern)
        known = view.pod(pod.key)
        if known is not None and known.is_bound:
            notes.append(f"pod {known.key} is in the cluster already, on node {known.node_name}")
            pod = replace(known, created=pod.created)
        elif pod.node_name:
            pod = _pinned(pod)
        if pod.scheduler_name not in settings.scheduler_names:
            foreign.add(pod.scheduler_name)
            pod = replace(pod, scheduler_name=settings.scheduler_names[0])
        adopted.append(pod)
    notes += [
        f"some pods say schedulerName {name!r}; they are planned all the same, but {settings.scheduler_names[0]} would leave them alone"
        for name in sorted(foreign)
    ]
    return adopted


def _pinned(pod: Pod) -> Pod:
    """A pod whose manifest names its node: whether it would fit there is what is asked."""
    name = Requirement("metadata.name", "In", (pod.node_name,))
    stated = [term for term in pod.spec.affinity or () if term.expressions or term.fields]  # an empty one matches no node
    terms = [NodeSelectorTerm()] if pod.spec.affinity is None else stated
    pinned = tuple(replace(term, fields=(*term.fields, name)) for term in terms)
    return replace(pod, node_name="", spec=replace(pod.spec, affinity=pinned))


def _pod_groups(manifests: Manifests, cluster: Cluster, named: set[GangKey]) -> Iterator[tuple[PodGroup, Origin]]:
    """The manifests' PodGroups, and those of the cluster that only its pods name."""
    stated: set[GangKey] = set()
    for found in manifests.pod_groups:
        group = _pod_group(found)
        stated.add(group.key)
        yield group, found.origin
    for found in cluster.pod_groups:
        group = _pod_group(found)
        if group.key in named - stated:
            yield group, found.origin


def _pod_group(found: Expanded) -> PodGroup:
    try:
        return pod_group_from(found.raw)
    except MalformedError as error:
        raise found.origin.blame(error) from error


@dataclass(frozen=True, slots=True)
class _Origins:
    """Where pods (by ``namespace/name``) and PodGroups come from."""

    pods: dict[str, Origin]
    groups: dict[GangKey, Origin]

    def bad_input(self, gang: Gang, hold: Hold) -> ManifestError | None:
        """The error to mend, when ``hold`` is for what a manifest says rather than for what is missing around it."""
        if hold.reason in ("PodGroupNotFound", "Unsupported"):
            return None
        if hold.reason == OVER_LIMIT:  # of which no manifest has a field
            return self.pods[gang.members[0].key].error("spec", hold.message)
        origin = self.pods[hold.pod.key] if hold.pod else self.groups[gang.key]
        return origin.error(hold.field or "spec", hold.message)
