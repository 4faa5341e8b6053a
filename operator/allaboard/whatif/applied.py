"""What a cluster holds once manifests are applied to it: what is there already stays as it is, and what is lacking of it is made.

The pods of a workload that is applied already have names of their own. They are known by their controller, and only as many more are made
as that would make.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from allaboard.gangs.job_counts import JobCounts, job_counts_from
from allaboard.gangs.podgroup import PodGroup, pod_group_from
from allaboard.gangs.registry import OVER_LIMIT
from allaboard.model.constraints import NodeSelectorTerm, Requirement
from allaboard.model.errors import MalformedError
from allaboard.model.gang import Gang, GangKey, Hold
from allaboard.model.pod import Pod
from allaboard.model.raw_fields import mapping
from allaboard.model.requests import RawObject
from allaboard.whatif.creation import Awaited
from allaboard.whatif.documents import ManifestError, Origin
from allaboard.whatif.manifests import Expanded, Manifests
from allaboard.whatif.priorities import Priorities
from allaboard.whatif.quotas import Quotas
from allaboard.whatif.runtimeclasses import NotAdmittedError, RuntimeClasses
from allaboard.whatif.snapshots import Cluster
from allaboard.whatif.workloads import JOB, Workload

_HASH_LABEL = "pod-template-hash"
_OPERATOR, _OPERATED_JOB = "training.kubeflow.org/operator-name", "training.kubeflow.org/job-name"
_FEW = 3  # pods that are named one by one
_ALIKE = 0.85  # one slip in a name of seven letters or more


@dataclass(frozen=True, slots=True)
class _New:
    """A pod that would be made, once ``after`` pods of its workload are Ready. ``refusal`` is why the API server refuses it, or empty."""

    raw: RawObject
    pod: Pod
    origin: Origin
    after: int
    refusal: str
    doubt: str


@dataclass(frozen=True, slots=True)
class Admission:
    """Resources that the API server adds to pods, and the reasons for which it refuses pods."""

    priorities: Priorities
    runtimes: RuntimeClasses
    quotas: Quotas
    namespaces: frozenset[str] | None

    def admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Return a raw pod as it would be admitted. Raises ``NotAdmittedError``, and ``MalformedError`` for what isn't known here."""
        namespace = pod["metadata"]["namespace"]
        if self.namespaces is not None and namespace not in self.namespaces:
            raise NotAdmittedError(f'namespaces "{namespace}" not found')
        return self.priorities.admitted(self.quotas.defaulted(self.runtimes.admitted(pod)))


@dataclass(slots=True)
class Applied:
    """``pods`` are the living ones of the manifests, there already or made; ``groups`` all that there are, ``stated`` those of manifests.

    ``pod_origins`` (by ``namespace/name``) and ``group_origins`` are where they were read; those of a live cluster have none to mend.
    ``awaited`` are the pods that must be Ready before a pod is made, and ``refused`` why the API server refuses a pod, by its key;
    ``doubts`` why it isn't known whether a pod that is a gang of its own would start. ``jobs`` are the batch Jobs of manifests.
    """

    pods: list[Pod] = field(default_factory=list)
    groups: list[PodGroup] = field(default_factory=list)
    stated: set[GangKey] = field(default_factory=set)
    pod_origins: dict[str, Origin] = field(default_factory=dict)
    group_origins: dict[GangKey, Origin] = field(default_factory=dict)
    awaited: dict[str, Awaited] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    jobs: list[JobCounts] = field(default_factory=list)

    def bad_input(self, gang: Gang, hold: Hold) -> ManifestError | None:
        """The error to mend, when ``hold`` is for what a file says rather than for what is there, or missing, around it."""
        if hold.reason in ("PodGroupNotFound", "Unsupported"):
            return None
        if hold.reason == OVER_LIMIT:  # of which no manifest has a field
            origin = next((self.pod_origins[pod.key] for pod in gang.members if pod.key in self.pod_origins), None)
            return origin.error("spec", hold.message) if origin else None
        origin = self.pod_origins.get(hold.pod.key) if hold.pod else self.group_origins.get(gang.key)
        return origin.error(hold.field or "spec", hold.message) if origin else None


def applied(manifests: Manifests, cluster: Cluster, scheduler_names: Sequence[str], notes: list[str]) -> Applied:
    """``cluster`` with ``manifests`` in it; ``notes`` are told what is there already. Raises ``ManifestError``."""
    found = Applied()
    there = _There(cluster.pods)
    namespaces = None if cluster.namespaces is None else cluster.namespaces | manifests.namespaces
    priorities, runtimes = manifests.priorities.beside(cluster.priorities), manifests.runtimes.beside(cluster.runtimes)
    quotas = manifests.quotas.beside(cluster.quotas)
    admission = Admission(priorities, runtimes, quotas, namespaces)
    notes += dict.fromkeys(_unknown_classes(manifests, admission.priorities))
    groups = {group.key: (group, each.origin) for each in cluster.pod_groups for group in _readable(each)}
    # Whatever is made now is younger than all that is there.
    now = 1.0 + max((*(pod.created for pod in cluster.pods), *(group.created for group, _ in groups.values())), default=0.0)
    for workload, expanded in groupby(manifests.pods, key=lambda each: each.workload):
        made = [_made(each, cluster, admission, now) for each in expanded]
        if workload is None:
            own, lacking = _bare(made, there, notes)
        else:
            known = there.of(workload)
            job = _job_counts(workload, (new.pod for new in made), known, cluster)
            own, lacking = _of_workload(workload, made, known, job, notes)
            found.jobs += [job] if job else _jobs_within(new.pod for new in lacking)
        found.pods += own
        keys = [new.pod.key for new in made]
        for new in lacking:
            pod = there.named_apart(new.pod)
            found.pods.append(pod)
            found.pod_origins[pod.key] = new.origin
            if new.after:
                found.awaited[pod.key] = Awaited(keys, new.after)
            if refusal := new.refusal or _over_quota(new, quotas):
                found.refused[pod.key] = refusal
            if new.doubt:
                found.doubts[pod.key] = new.doubt
    for each in manifests.pod_groups:
        group = _pod_group(each)
        if group.key in groups:
            old, _ = groups[group.key]
            group = replace(group, uid=old.uid, created=old.created, is_ours=old.is_ours)
        else:
            group = replace(group, created=now + each.position)
        groups[group.key] = (group, each.origin)
        found.stated.add(group.key)
    found.groups = [group for group, _ in groups.values()]
    found.group_origins = {key: origin for key, (_, origin) in groups.items()}
    found.pods = list(_ours(found.pods, scheduler_names, notes))
    return found


class _There:
    """The pods of the cluster, by their names and by what has made them."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._by_key: dict[str, Pod] = {}
        self._by_owner: dict[tuple[str, str, str, str], list[Pod]] = defaultdict(list)
        for pod in pods:
            self._by_key[pod.key] = pod
            if owner := pod.owner:
                group = owner.api_version.rpartition("/")[0]
                self._by_owner[pod.namespace, group, owner.kind, owner.name].append(pod)
                # A Deployment isn't named by its pods; its ReplicaSets are called after it, and what they add is in a label.
                if owner.is_batch_job and pod.label(_OPERATOR) == "mpi-operator":
                    self._by_owner[pod.namespace, "kubeflow.org", "MPIJob", pod.label(_OPERATED_JOB) or ""].append(pod)
                deployment, _, digest = owner.name.rpartition("-")
                if owner.kind == "ReplicaSet" and digest == pod.label(_HASH_LABEL):
                    self._by_owner[pod.namespace, group, "Deployment", deployment].append(pod)

    def pod(self, key: str) -> Pod | None:
        """A pod by ``namespace/name``."""
        return self._by_key.get(key)

    def of(self, workload: Workload) -> Sequence[Pod]:
        """The pods that ``workload`` has."""
        return self._by_owner.get((workload.namespace, workload.document.group, workload.document.kind, workload.name), ())

    def named_apart(self, pod: Pod) -> Pod:
        """``pod`` under a name that is free: its own is made up, and may be somebody's."""
        name, number = pod.name, 0
        while f"{pod.namespace}/{name}" in self._by_key:
            number += 1
            name = f"{pod.name}-{number}"
        return replace(pod, name=name) if number else pod


def _bare(made: Sequence[_New], there: _There, notes: list[str]) -> tuple[Sequence[Pod], Sequence[_New]]:
    """Those of bare pods that are there, and the others."""
    known = [pod for new in made if (pod := there.pod(new.pod.key))]
    if len(known) > _FEW:
        notes.append(f"{len(known)} pods are in the cluster already, {sum(1 for pod in known if pod.is_bound)} of them on nodes")
    else:
        notes += [f"pod {pod.key} is in the cluster already, {_state(pod)}" for pod in known]
    return [pod for pod in known if not pod.is_terminal], [new for new in made if there.pod(new.pod.key) is None]


def _state(pod: Pod) -> str:
    return "and has ended" if pod.is_terminal else f"on node {pod.node_name}" if pod.node_name else "without a node"


def _of_workload(
    workload: Workload, made: Sequence[_New], known: Sequence[Pod], job: JobCounts | None, notes: list[str]
) -> tuple[Sequence[Pod], Sequence[_New]]:
    """Return the living pods of a workload, of its ``known`` ones, and those that its controller would make beside them.

    ``job`` tells how far a batch Job has come.
    """
    if not (known or (job and job.done)):
        return (), made
    own = [pod for pod in known if pod.is_alive]
    lacking = [_adopted(new, known, job) for new in _lacking(workload, made, known, len(own), job)]
    bound = sum(1 for pod in own if pod.node_name)
    count = f"{len(own)} of its {len(own) + len(lacking)} pods exist, {bound} of them on nodes" if own or lacking else "its pods have ended"
    notes.append(f"{workload.title} is applied already: {count}")
    if {pod.spec.requests for pod in own} - {new.pod.spec.requests for new in made}:
        notes.append(f"{workload.title} asks for other resources than its pods have; they are planned as they are")
    return own, lacking


def _lacking(workload: Workload, made: Sequence[_New], known: Sequence[Pod], living: int, job: JobCounts | None) -> Sequence[_New]:
    if not workload.is_named_at_random:
        # The launcher of an MPIJob is the pod of a Job, which adds to the name.
        names = {pod.owner.name if pod.owner and pod.owner.is_batch_job else pod.name for pod in known}
        return [new for new in made if new.pod.name not in names]
    wanted = len(made)
    if job and job.done:
        # Without a number of completions a Job's pods work off a queue, and once one has found it empty no more are made.
        wanted = min(wanted, (job.completions or 0) - job.done)
    return made[len(made) - max(0, wanted - living) :]


def _adopted(new: _New, known: Sequence[Pod], job: JobCounts | None) -> _New:
    """Return a pod as one of the controller that exists, whose UID no manifest tells."""
    owner = new.pod.owner
    if owner is None:
        return new
    there = next((pod.owner for pod in reversed(known) if pod.owner and pod.owner.kind == owner.kind), owner)
    return replace(new, pod=replace(new.pod, owner=replace(there, uid=job.uid) if job else there))


def _job_counts(workload: Workload, made: Iterable[Pod], known: Sequence[Pod], cluster: Cluster) -> JobCounts | None:
    """Return how far a batch Job has come: by its manifest, by the cluster and by its pods; None for another workload.

    Raises ``ManifestError``.
    """
    document = workload.document
    if (document.group, document.kind) != JOB:
        return None
    there = cluster.jobs.get(f"{workload.namespace}/{workload.name}")
    uid = there.uid if there else next((pod.owner.uid for pod in (*known, *made) if pod.owner), "")
    try:
        stated = job_counts_from({**document.raw, "metadata": {**mapping(document.raw, "metadata"), "uid": uid}})
    except MalformedError as error:
        raise document.origin.blame(error) from error
    return replace(stated, done=max(stated.done, there.done if there else 0, sum(1 for pod in known if pod.phase == "Succeeded")))


def _jobs_within(pods: Iterable[Pod]) -> Iterable[JobCounts]:
    """Return the batch Jobs that another workload makes for some of its pods, such as an MPIJob for its launcher."""
    owners = [pod.owner for pod in pods if pod.owner]
    root = next((owner.uid for owner in owners if not owner.is_batch_job), "")
    numbers = Counter(owner.uid for owner in owners if owner.is_batch_job)
    return [JobCounts(uid, root or uid, parallelism=number, completions=number, done=0) for uid, number in numbers.items()]


def _unknown_classes(manifests: Manifests, priorities: Priorities) -> Iterator[str]:
    for each in () if priorities.are_all else manifests.pods:
        try:
            name = priorities.unknown(each.raw)
        except MalformedError as error:
            raise each.origin.blame(error) from error
        if name:
            title = each.workload.title if each.workload else f"Pod {each.raw['metadata']['namespace']}/{each.raw['metadata']['name']}"
            yield f"{title}: the priority of class {name!r} is not known here, 0 is assumed"


def _made(expanded: Expanded, cluster: Cluster, admission: Admission, now: float) -> _New:
    """Return a pod as it would be made, after those that come before it in the files. Raises ``ManifestError``."""
    raw, refusal = expanded.raw, ""
    try:
        raw = admission.admitted(raw)
    except NotAdmittedError as error:
        refusal = str(error)
    except MalformedError as error:
        raise expanded.origin.blame(error) from error
    pod = replace(cluster.planned_from(raw), created=now + expanded.position)
    return _New(raw, _pinned(pod) if pod.node_name else pod, expanded.origin, expanded.after, refusal, expanded.doubt)


def _over_quota(new: _New, quotas: Quotas) -> str:
    """Return why a pod would exceed a quota; empty when it wouldn't, and counts from now on. Raises ``ManifestError``."""
    try:
        quotas.charge(new.raw)
    except NotAdmittedError as error:
        return str(error)
    except MalformedError as error:
        raise new.origin.blame(error) from error
    return ""


def _pinned(pod: Pod) -> Pod:
    """A pod whose manifest names its node: whether it would fit there is what is asked."""
    name = Requirement("metadata.name", "In", (pod.node_name,))
    stated = [term for term in pod.spec.affinity or () if term.expressions or term.fields]  # an empty one matches no node
    terms = [NodeSelectorTerm()] if pod.spec.affinity is None else stated
    pinned = tuple(replace(term, fields=(*term.fields, name)) for term in terms)
    return replace(pod, node_name="", spec=replace(pod.spec, affinity=pinned))


def _ours(pods: Iterable[Pod], scheduler_names: Sequence[str], notes: list[str]) -> Iterator[Pod]:
    """The pods as pods of ours, whatever scheduler they name."""
    foreign: set[str] = set()
    for pod in pods:
        if pod.scheduler_name not in scheduler_names:
            foreign.add(pod.scheduler_name)
            pod = replace(pod, scheduler_name=scheduler_names[0])
        yield pod
    for name in sorted(foreign):
        close = get_close_matches(name, scheduler_names, n=1, cutoff=_ALIKE)
        meant = f"; did you mean {close[0]}?" if close else ";"
        notes.append(
            f"some pods say schedulerName {name!r}{meant} they are planned all the same, but {scheduler_names[0]} would leave them alone"
        )


def _readable(found: Expanded) -> Iterator[PodGroup]:
    """A PodGroup of the cluster; none if it can't be told whose it is."""
    with suppress(ManifestError):
        yield _pod_group(found)


def _pod_group(found: Expanded) -> PodGroup:
    try:
        return pod_group_from(found.raw)
    except MalformedError as error:
        raise found.origin.blame(error) from error
