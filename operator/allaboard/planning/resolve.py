"""Adds to a gang's members the requirements that other objects state.

These are the nodes that the members' volumes allow, and the number of volumes that a node must attach for a member. There are also the
domains that other pods' anti-affinity forbids, and the domains that members must share with bound members.

Members with equal requirements share one spec object, as their pods do (``Interner``): kinds of members are distinguished by identity.
Other pods' anti-affinity can't give a gang more kinds of members than the limit. Where the gang would have more kinds, every member avoids
each domain that any member must avoid.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from allaboard.binding.pod_domains import (
    ScoresByLabel,
    avoided_domains,
    forbidden_domains,
    gains_of,
    neighbours_of,
    served_domains,
    spread_counts,
)
from allaboard.cluster.anti_affinity import Labels, Several
from allaboard.cluster.records import ClaimError
from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import UnboundClaimError, VolumeView
from allaboard.gangs.registry import over_limit
from allaboard.model.constraints import GpuRequest, NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Gang, Hold, required_by, wish_of
from allaboard.model.gpu_request import with_group
from allaboard.model.limits import CLAIM_KINDS, GANG_CLAIMS, GANG_REQUIREMENTS, GANG_TERMS, KINDS, LABEL_SETS, TOPOLOGIES
from allaboard.model.pod import Pod
from allaboard.model.topologies import LEVELS, NEAREST_FIRST, Levels, labels_of, placeholder_label
from allaboard.model.volumes import Attaches, Volume
from allaboard.placement.rules.members import begun_segments
from allaboard.placement.rules.selection import Selection
from allaboard.planning.claims import with_chosen_volumes

Terms = tuple[NodeSelectorTerm, ...]
_Known = tuple[Labels, Several]
"""The labels that a member has for certain, and the labels that differ between members with merged labels, each with all its values."""

_NOTHING: _Known = ((), frozenset())

_OF_NODES = 2  # the levels nvlink and host, which are within a rack


def resolve(gang: Gang, volumes: VolumeView, view: ClusterView, levels: Levels = LEVELS) -> Gang:
    """Return ``gang`` with the requirements of other objects added to the specs of the members that wait for a node.

    The objects are volumes, other pods and bound members. The gang is held if a volume can't be located yet, or if a limit is exceeded.
    ``levels`` maps the names of topology levels to node labels.
    """
    gang = _with_labels(gang, view, levels)
    candidates = gang.candidates
    if (claims := _claims(candidates)) > GANG_CLAIMS.most:
        return replace(gang, hold=gang.hold or over_limit(gang.key, GANG_CLAIMS, claims))
    try:
        specs = _resolved(candidates, volumes, gang.gpus, view)
        if claims:
            if problem := _conflict(candidates, volumes):
                return replace(gang, hold=gang.hold or problem)
            specs = with_chosen_volumes(candidates, specs, volumes)
            kinds = {claim for spec in {id(spec): spec for spec in specs.values()}.values() for claim in spec.unbound}
            if len(kinds) > CLAIM_KINDS.most:
                return replace(gang, hold=gang.hold or over_limit(gang.key, CLAIM_KINDS, len(kinds)))
        specs = _among_bound_pods(candidates, _attaching(candidates, specs, view), view)
    except _NotYetError as error:
        reason, field = ("UnboundVolumes", "spec.volumes") if error.of_volumes else ("UnallocatedClaims", "spec.resourceClaims")
        return replace(gang, hold=gang.hold or Hold(reason, f"pod {error.pod.name}: {error}", error.pod, field))
    if excess := _excess(gang, candidates, specs):
        return replace(gang, hold=gang.hold or excess)
    if mixed := _mixed_segment(gang, specs):
        return replace(gang, hold=gang.hold or mixed)
    required = _required_domains(gang, view)
    if not required and not view.anti_affinity and all(specs[pod.uid] is pod.spec for pod in candidates):
        return gang  # the usual case
    labels = _labels(candidates, specs, view)
    placed: dict[tuple[int, _Known, tuple[Terms, ...]], SchedulingSpec] = {}
    members = {}
    for pod in candidates:
        key = (id(specs[pod.uid]), labels.get(pod.uid, _NOTHING), required.get(pod.uid, ()))
        spec = placed.get(key)
        if spec is None:
            forbidden = forbidden_domains(view, gang.key.namespace, *key[1])
            spec = placed[key] = (
                replace(specs[pod.uid], forbidden_domains=forbidden, required_domains=key[2]) if forbidden or key[2] else specs[pod.uid]
            )
        if spec is not pod.spec:
            members[pod.uid] = replace(pod, spec=spec)
    return replace(gang, members=tuple(members.get(pod.uid, pod) for pod in gang.members)) if members else gang


def _claims(candidates: Sequence[Pod]) -> int:
    """Return the number of volumes that the candidates name. Candidates that share a spec name the same volumes, which count once."""
    return sum(len(spec.claims) + len(spec.disks) for spec in {id(pod.spec): pod.spec for pod in candidates}.values())


class _NotYetError(Exception):
    """The nodes that the claims of ``pod`` allow are not known yet."""

    def __init__(self, pod: Pod, problem: ClaimError) -> None:
        super().__init__(str(problem))
        self.pod = pod
        self.of_volumes = isinstance(problem, UnboundClaimError)


def _with_labels(gang: Gang, view: ClusterView, levels: Levels) -> Gang:
    """Return ``gang`` with node labels in place of the names of topology levels."""
    with_options = [pod for pod in gang.alive if pod.options]
    required, of_segments = ({level(pod) for pod in with_options} for level in (required_by, lambda pod: wish_of(pod).segment_level))
    # The level that is required is mostly the farthest, and that of segments the nearest.
    stated = [gang.required_topology, *sorted(required), gang.topology, *sorted(of_segments), gang.segment[1]]
    stated = [name for name in dict.fromkeys(stated) if name]
    if not stated:
        return gang  # the usual case
    labels = {name: view.label_of(labels_of(name, levels)) or placeholder_label(name, levels) for name in stated}
    far = [view.label_of(labels_of(name, levels)) for name in reversed(NEAREST_FIRST)]
    ordered_by = [*far[:-_OF_NODES], *labels.values(), *far[-_OF_NODES:]]
    return replace(
        gang,
        topology=labels.get(gang.topology, ""),
        required_topology=labels.get(gang.required_topology, ""),
        segment=(gang.segment[0], labels.get(gang.segment[1], "")),
        levels=tuple((name, label) for name, label in sorted(labels.items()) if label != name),
        ordered_by=tuple(dict.fromkeys(label for label in ordered_by if label and view.label_of((label,)))),
    )


def _resolved(candidates: Sequence[Pod], volumes: VolumeView, gpus: GpuRequest | None, view: ClusterView) -> Mapping[str, SchedulingSpec]:
    """Return the candidates' specs, by UID, with the requirements of their volumes and the GPU requirements of their PodGroup."""
    by_spec: dict[int, SchedulingSpec] = {}
    of_volumes: dict[SchedulingSpec, SchedulingSpec] = {}
    for pod in candidates:
        if id(pod.spec) not in by_spec:
            try:
                spec = view.resource_claims.resolve(volumes.resolve(pod, view.attached.is_used)).spec
            except ClaimError as error:
                raise _NotYetError(pod, error) from error
            spec = spec if gpus is None else with_group(spec, gpus)
            by_spec[id(pod.spec)] = spec if spec is pod.spec else of_volumes.setdefault(spec, spec)
    return {pod.uid: by_spec[id(pod.spec)] for pod in candidates}


def _conflict(candidates: Sequence[Pod], volumes: VolumeView) -> Hold | None:
    """Return why the gang can never be whole: two of its members use a claim that only one pod may use. None if no two do."""
    seen: set[str] = set()
    for pod in candidates:
        for claim in pod.spec.claims:
            key = f"{pod.namespace}/{claim}"
            record = volumes.claims.get(key)
            if record is None or not record.is_for_one_pod:
                continue
            if key in seen:
                problem = f'pod {pod.name}: another member uses persistentvolumeclaim "{claim}" as well, whose mode is ReadWriteOncePod'
                return Hold("UnboundVolumes", problem, pod, "spec.volumes")
            seen.add(key)
    return None


def _attaching(candidates: Sequence[Pod], specs: Mapping[str, SchedulingSpec], view: ClusterView) -> Mapping[str, SchedulingSpec]:
    """Return ``specs`` with the volumes that each candidate attaches. Volumes that several candidates use are marked as shared."""
    if not view.volumes.limited:
        return specs
    samples = {id(pod.spec): pod for pod in candidates}  # pods of one spec use the same volumes
    number = Counter(id(pod.spec) for pod in candidates)
    users: Counter[Volume] = Counter()
    for kind, pod in samples.items():
        users.update(dict.fromkeys(view.volumes.attached_by(pod), number[kind]))
    if not users:
        return specs
    attaches = {kind: view.attached.asked_by(pod, users.__getitem__) for kind, pod in samples.items()}
    known: dict[tuple[SchedulingSpec, tuple[Attaches, ...]], SchedulingSpec] = {}
    found = {}
    for pod in candidates:
        spec, of_pod = specs[pod.uid], attaches[id(pod.spec)]
        found[pod.uid] = known.setdefault((spec, of_pod), replace(spec, attaches=of_pod)) if of_pod else spec
    return found


def _among_bound_pods(candidates: Sequence[Pod], specs: Mapping[str, SchedulingSpec], view: ClusterView) -> Mapping[str, SchedulingSpec]:
    """Return ``specs`` with what the affinity, the anti-affinity and the topology spread of each candidate ask because of bound pods.

    Preferences also depend on how many other candidates there are, and on the labels that the terms of bound pods name.
    """
    gains = _Gains(view, candidates)
    known: dict[tuple[int, Labels], SchedulingSpec] = {}
    found = dict[str, SchedulingSpec]()
    group = Selection(candidates)
    for pod in candidates:
        spec = specs[pod.uid]
        key = id(spec), gains.labels_of(pod)
        if key not in known:
            known[key] = _beside_bound_pods(pod, spec, group, gains.of(pod.namespace, key[1]), view)
        if known[key] is not spec:
            found[pod.uid] = known[key]
    return {**specs, **found} if found else specs


class _Gains:
    """Computes what the preferences of bound pods about the candidates add to the scores of domains, once for equal labels.

    If the labels that matter are too diverse, only those that all candidates have in common count.
    """

    def __init__(self, view: ClusterView, candidates: Sequence[Pod]) -> None:
        self._view = view
        self._known: dict[Labels, ScoresByLabel] = {}
        self._keys: frozenset[str] | None = None
        distinct = {view.preferences.relevant(pod.labels) for pod in candidates} if view.preferences else set()
        if len(distinct) > LABEL_SETS.most:
            common = set.intersection(*map(set, distinct))
            self._keys = frozenset(key for key, _ in common)

    def labels_of(self, pod: Pod) -> Labels:
        """Return the labels of a candidate that matter."""
        if not self._view.preferences:
            return ()
        relevant = self._view.preferences.relevant(pod.labels)
        return relevant if self._keys is None else tuple(pair for pair in relevant if pair[0] in self._keys)

    def of(self, namespace: str, labels: Labels) -> ScoresByLabel:
        """Return the gains of candidates with ``labels``, all of which are in one namespace."""
        if not self._view.preferences:
            return {}
        if labels not in self._known:
            self._known[labels] = gains_of(self._view, namespace, labels)
        return self._known[labels]


def _beside_bound_pods(pod: Pod, spec: SchedulingSpec, group: Selection, gains: ScoresByLabel, view: ClusterView) -> SchedulingSpec:
    """Return ``spec``, that of ``pod``, with what it asks because of bound pods; ``spec`` itself if it asks for nothing.

    ``group`` are the candidates of the gang, and ``gains`` what the preferences of bound pods about ``pod`` add to scores.
    """
    neighbours = neighbours_of(view, pod, group, gains)
    if not (spec.anti_affinity or spec.pod_affinity or spec.spread or neighbours):
        return spec
    labels_of = view.namespaces.labels_of
    return replace(
        spec,
        # Members are all in one namespace, so that rules between them need no labels of namespaces.
        anti_affinity=tuple(term.within(pod.namespace, labels_of) for term in spec.anti_affinity),
        pod_affinity=tuple(term.within(pod.namespace, labels_of) for term in spec.pod_affinity),
        preferred_pods=tuple((weight, term.within(pod.namespace, labels_of)) for weight, term in spec.preferred_pods),
        neighbours=neighbours,
        avoided_domains=avoided_domains(view, pod) if spec.anti_affinity else (),
        near=served_domains(view, pod) if spec.pod_affinity else (),
        spread_bound=spread_counts(view, pod, spec.spread) if spec.spread else (),
    )


def _mixed_segment(gang: Gang, specs: Mapping[str, SchedulingSpec]) -> Hold | None:
    """Return a hold if the members that are divided into segments ask for different things; None if they don't."""
    for segments in gang.segments.values():
        first: Pod | None = None
        for pod in (each for segment in segments for each in segment if each.uid in specs):
            first = first or pod
            if specs[pod.uid] is not specs[first.uid] and specs[pod.uid] != specs[first.uid]:
                text = f"pods {first.name} and {pod.name} are of one segment, and must request the same; state segments for each role"
                return Hold("MixedSegments", text, pod, "metadata.annotations[allaboard.dev/topology]")
    return None


def _excess(gang: Gang, candidates: Sequence[Pod], specs: Mapping[str, SchedulingSpec]) -> Hold | None:
    """Return a hold for the first limit that the gang exceeds; None if it exceeds none."""
    kinds: set[tuple[int, str, str]] = set()
    for pod in candidates:
        topology = required_by(pod)
        kinds.add((id(specs[pod.uid]), pod.role if topology or gang.role_minimums else "", topology))
    distinct = list({id(spec): spec for spec in specs.values()}.values())
    rules = sum(spec.rules for spec in distinct)
    small = sum(len(segment) < size for (size, _, _), segments in gang.segments.items() for segment in segments)
    found = (
        (KINDS, len(kinds)),
        (GANG_REQUIREMENTS, rules),
        (GANG_TERMS, _terms_of(distinct, GANG_TERMS.most // max(1, len(candidates))) * len(candidates)),
        (TOPOLOGIES, len({kind[1:] for kind in kinds}) + len(gang.segments) + small),
    )
    return next((over_limit(gang.key, limit, number) for limit, number in found if number > limit.most), None)


def _terms_of(specs: Collection[SchedulingSpec], enough: int) -> int:
    """Return the number of terms about other pods in ``specs``. Equal terms count once if there are more than ``enough``."""
    terms = [(spec.anti_affinity, spec.pod_affinity, spec.spread, spec.preferred_pods, spec.preferred_spread) for spec in specs]
    number = sum(len(each) for of_spec in terms for each in of_spec)
    return number if number <= enough else len({term for of_spec in terms for each in of_spec for term in each})


def _labels(candidates: Sequence[Pod], specs: Mapping[str, SchedulingSpec], view: ClusterView) -> dict[str, _Known]:
    """Return the labels of each candidate, by UID, that matter to other pods' anti-affinity.

    If these labels are too diverse, all candidates get the same merged labels.
    """
    if not view.anti_affinity:
        return {}
    relevant: dict[str, Labels] = {}
    distinct: set[Labels] = set()
    kinds: set[tuple[int, Labels]] = set()
    is_diverse = False
    for pod in candidates:
        relevant[pod.uid] = labels = view.relevant(pod.labels)
        if not is_diverse:  # once they are too diverse, their number doesn't matter
            distinct.add(labels)
            kinds.add((id(specs[pod.uid]), labels))
            is_diverse = len(distinct) > LABEL_SETS.most or len(kinds) > KINDS.most
    if is_diverse:
        return dict.fromkeys(relevant, _merged(relevant.values()))
    return {uid: (labels, frozenset()) for uid, labels in relevant.items()}


def _merged(labels: Collection[Labels]) -> _Known:
    """Return the labels that all pods have in common, and all values of each label that differs; None for a pod without the label."""
    holders: Counter[str] = Counter()
    values: dict[str, set[str | None]] = {}
    for pairs in labels:
        for key, value in pairs:
            holders[key] += 1
            values.setdefault(key, set()).add(value)
    common = {pair for pair in next(iter(labels)) if len(values[pair[0]]) == 1 and holders[pair[0]] == len(labels)}
    differing = values.keys() - {key for key, _ in common}
    absent = {key: {None} if holders[key] < len(labels) else set() for key in differing}
    return tuple(sorted(common)), frozenset((key, frozenset(values[key] | absent[key])) for key in differing)


def _required_domains(gang: Gang, view: ClusterView) -> dict[str, tuple[Terms, ...]]:
    """Return for each member, by UID, the node terms that keep it in the domains that it must share with bound members."""
    found: dict[str, tuple[Terms, ...]] = {}
    for label, members in (*((label, members) for (label, _), members in gang.together.items()), *begun_segments(gang)):
        nodes = (view.node(pod.node_name) for pod in members if pod.node_name)
        values = tuple(sorted({node.labels[label] for node in nodes if node is not None and label in node.labels}))
        if values:
            term = (NodeSelectorTerm(expressions=(Requirement(label, "In", values[:1]),)),)
            found.update({pod.uid: (*found.get(pod.uid, ()), term) for pod in members})
    return found
