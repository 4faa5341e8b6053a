"""Plans the gangs of manifests: says where the scheduler would place them on a cluster, or why it wouldn't.

Registry, queue order, searches and messages are the operator's, so that a plan says what the operator would do and why.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from allaboard.cluster.view import ClusterView
from allaboard.gangs.membership import membership_of
from allaboard.model.gang import Gang, GangKey
from allaboard.model.reasons import Code
from allaboard.model.topologies import labels_of
from allaboard.placement import Step
from allaboard.queueing.order import order_of
from allaboard.report import messages
from allaboard.settings.options import Settings
from allaboard.sight.amounts import gpus_of
from allaboard.whatif.applied import applied
from allaboard.whatif.creation import Creation
from allaboard.whatif.forecast import Decision, Forecast
from allaboard.whatif.jobgroups import hints
from allaboard.whatif.manifests import Manifests
from allaboard.whatif.podsets import ephemeral_claims_of
from allaboard.whatif.records import records_of
from allaboard.whatif.snapshots import Cluster

_FEW = 3  # most gangs that a note names


@dataclass(frozen=True, slots=True)
class SearchFigures:
    """The figures of a gang's search, as in ``SearchReport``. Scores are in points; None if there was no search."""

    seed_score: float | None
    score: float | None
    generations: int
    stopped_by: str
    found_by: str = ""
    steps: tuple[Step, ...] = ()
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class PlannedGang:
    """The answer for one gang: a ``Decision`` and the nodes of its pods. Pods are named without the namespace.

    If the gang isn't feasible, ``assignments`` has only the pods that already have a node. ``gpus`` are the GPUs that pods with a node
    request, by the pod's name; a part of a GPU is a fraction.
    """

    namespace: str
    name: str
    min_member: int
    feasible: bool | None
    reason: str
    assignments: tuple[tuple[str, str], ...]
    unplaced: tuple[str, ...]
    message: str
    search: SearchFigures
    gpus: Mapping[str, float]


async def plan_gangs(manifests: Manifests, cluster: Cluster, settings: Settings, notes: list[str]) -> list[PlannedGang]:
    """Return the answers for the gangs of ``manifests`` on ``cluster``, in queue order. Append notes for the user to ``notes``.

    Raises ``ManifestError`` for a gang that its manifests declare wrongly.
    """
    # 1. Apply all manifests to the cluster's records.
    after = applied(manifests, cluster, settings.scheduler_names, notes)
    _add_other_objects(manifests, cluster)
    view, registry = records_of(cluster, settings, after)
    # 2. Find the gangs of the manifests.
    named = after.stated | {key for pod in after.pods if (key := registry.key_of(pod))}
    gangs = sorted((gang for gang in registry.gangs() if gang.key in named), key=lambda gang: order_of(gang, since=registry.since(gang)))
    for gang in gangs:
        if gang.hold and (error := after.bad_input(gang, gang.hold)):
            raise error
    notes += hints(gangs)
    notes += _unread_wishes(gangs, cluster, view, settings)
    # 3. Remove pods that don't exist yet: some are created once others are Ready, and some never.
    creation = Creation(view, after.pods, after.awaited, after.refused)
    for pod in creation.absent:
        view.remove_pod(pod.key)
    # 4. Decide about these gangs, and about gangs that wait in the cluster.
    waiting = [
        gang for gang in registry.gangs() if gang.key not in named and any(pod.key not in cluster.refused for pod in gang.candidates)
    ]

    def warn(gang: Gang, message: str) -> None:
        notes.append(f"{gang.key}: {message}")

    forecast = Forecast(view, registry, settings, warn, cluster.now, has_storage=cluster.storage.is_known)
    decisions = await forecast.decide([*(gang for gang in gangs if registry.gang(gang.key)), *waiting])
    while created := creation.next():
        for pod in created:
            view.upsert_pod(pod)
        grown = (registry.gang(key) for key in dict.fromkeys(membership_of(pod).key for pod in created))
        decisions = await forecast.decide(gang for gang in grown if gang)
    advice = {gang.key: (await forecast.advice(gang)).text for gang in gangs if _is_refused(decisions.get(gang.key))}
    decisions = {**decisions, **_without_pods(creation, decisions)}
    decisions |= {key: _in_doubt(decisions[key], text) for key, text in _doubts(gangs, after.doubts)}
    for pod in creation.absent:
        view.upsert_pod(pod)  # so that the answer names the pod
    notes += _waiting_notes(gang for gang in waiting if (plan := decisions[gang.key].plan) and plan.feasible)
    answers: list[PlannedGang] = []
    for before in gangs:
        gang, decision = registry.gang(before.key) or before, decisions[before.key]
        answers.append(_answer(gang, replace(decision, message=messages.with_advice(decision.message, advice.get(gang.key, "")))))
    return answers


def _add_other_objects(manifests: Manifests, cluster: Cluster) -> None:
    """Add to ``cluster`` the namespaces and storage objects of ``manifests``, and the claims that StatefulSets make."""
    for raw in manifests.namespace_objects:
        cluster.learn_namespace(raw)
    for (group, kind), raw in manifests.storage:
        cluster.storage.learn(group, kind, raw)
    for expanded in manifests.pods:
        for claim in (*expanded.claims, *ephemeral_claims_of(expanded.raw)):
            cluster.storage.learn_template(claim)


def _doubts(gangs: Iterable[Gang], doubts: Mapping[str, str]) -> Iterator[tuple[GangKey, str]]:
    """Return the single-pod gangs for which it isn't known whether they start, each with the reason; ``doubts`` has reasons by pod."""
    return ((gang.key, doubts[pod.key]) for gang in gangs if gang.is_single for pod in gang.members if pod.key in doubts)


def _in_doubt(decision: Decision, text: str) -> Decision:
    """Return the decision with an unknown result and ``text`` as its message. A gang that doesn't fit keeps its decision."""
    return replace(decision, feasible=None, message=text, reason=Code.HELD) if decision.feasible else decision


def _is_refused(decision: Decision | None) -> bool:
    return decision is not None and decision.plan is not None and decision.feasible is False


def _without_pods(creation: Creation, decisions: Mapping[GangKey, Decision]) -> Mapping[GangKey, Decision]:
    """Return new decisions about gangs with pods that don't exist. A message says why the first such pod of its gang doesn't exist."""
    found: dict[GangKey, Decision] = {}
    for pod in creation.absent:
        key = membership_of(pod).key
        if key in found:
            continue
        why = creation.why_absent(pod)
        known = decisions.get(key)
        if known is None:
            found[key] = Decision(False, why, Code.WAITING)
        elif creation.is_refused(pod):
            found[key] = replace(known, feasible=False, message=f"{known.message}; {why}", reason=known.reason or Code.WAITING)
        else:
            found[key] = replace(known, message=f"{known.message}; {why}")
    return found


def _unread_wishes(gangs: Iterable[Gang], cluster: Cluster, view: ClusterView, settings: Settings) -> Iterator[str]:
    """Yield notes on what has no effect, or can't be known, since the cluster lacks labels of nodes or objects."""
    by_namespace = False
    for gang in gangs:
        if gang.topology and not view.label_of(labels_of(gang.topology, settings.levels)):
            yield f"{gang.key}: no node has a label for topology {gang.topology}, so this preference has no effect"
        terms = (term for pod in gang.candidates for term in (*pod.spec.anti_affinity, *pod.spec.pod_affinity))
        by_namespace = by_namespace or any(term.of_namespaces for term in terms)
    if by_namespace and not cluster.namespace_labels:
        yield "the cluster has no Namespaces to read, so terms with a namespaceSelector by labels select no namespace"


def _waiting_notes(gangs: Iterable[Gang]) -> Sequence[str]:
    """Return a note that the plan also places waiting gangs of the cluster; empty if there are none."""
    keys = sorted(str(gang.key) for gang in gangs)
    if not keys:
        return ()
    subject = "a gang that waits in the cluster is" if len(keys) == 1 else f"{len(keys)} gangs that wait in the cluster are"
    return (f"{subject} placed, too: {', '.join(keys[:_FEW])}{', …' if len(keys) > _FEW else ''}",)


def _answer(gang: Gang, decision: Decision) -> PlannedGang:
    report = decision.plan.search if decision.plan else None
    return PlannedGang(
        namespace=gang.key.namespace,
        name=gang.key.name,
        min_member=gang.min_member,
        feasible=decision.feasible,
        reason=str(decision.reason or ""),  # YAML can't write a subclass of str
        assignments=tuple((pod.name, pod.node_name) for pod in gang.bound),
        unplaced=tuple(pod.name for pod in gang.alive if not pod.node_name),
        message=decision.message,
        search=SearchFigures(
            seed_score=round(report.seed_score, 4) if report else None,
            score=round(report.score, 4) if report else None,
            generations=report.generations if report else 0,
            wanted=report.wanted if report else 0,
            stopped_by=report.stopped_by if report else "",
            found_by=report.found_by if report else "",
            steps=report.steps if report else (),
        ),
        gpus={pod.name: gpus for pod in gang.bound if (gpus := gpus_of(pod.spec))},
    )
