"""The cluster as it would be with manifests applied to it: existing objects stay as they are, and missing objects are added.

The existing pods of a workload may have other names than a plan would give them. Existing pods are therefore recognized by their
controller, and only as many pods are added as the controller would still create.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from allaboard.gangs.job_counts import JobCounts, job_counts_from
from allaboard.gangs.owner_walltimes import OwnerWalltime, owner_kind_of
from allaboard.gangs.podgroup import PodGroup, pod_group_from
from allaboard.gangs.registry import OVER_LIMIT
from allaboard.model.constraints import NAME_FIELD, NodeSelectorTerm, Requirement
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
_FEW = 3  # most pods that a note names; more are counted
_SIMILARITY = 0.85  # of two names: allows one wrong letter in a name of seven letters or more


@dataclass(frozen=True, slots=True)
class _NewPod:
    """A pod that would be created once the first ``after`` pods of its workload are Ready.

    ``refusal`` is why the API server refuses the pod, and ``doubt`` why it isn't known whether the pod would start. Either may be empty.
    """

    raw: RawObject
    pod: Pod
    origin: Origin
    after: int
    refusal: str
    doubt: str


@dataclass(frozen=True, slots=True)
class Admission:
    """Admits pods as the API server does: adds values, or refuses a pod. ``namespaces`` are all that exist; None if not known."""

    priorities: Priorities
    runtimes: RuntimeClasses
    quotas: Quotas
    namespaces: frozenset[str] | None

    def admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Return a raw pod as the API server would admit it.

        Raises ``NotAdmittedError`` if the pod is refused, and ``MalformedError`` if a value can't be read or its RuntimeClass isn't known.
        """
        namespace = pod["metadata"]["namespace"]
        if self.namespaces is not None and namespace not in self.namespaces:
            raise NotAdmittedError(f'namespaces "{namespace}" not found')
        return self.priorities.admitted(self.quotas.defaulted(self.runtimes.admitted(pod)))


@dataclass(slots=True)
class Applied:
    """The pods, PodGroups and Jobs that manifests bring to a cluster. Pods are identified by ``namespace/name``.

    ``pods``: the living pods of the manifests, whether they exist or would be created. ``groups``: all PodGroups, including the cluster's;
    ``stated``: keys of the manifests' PodGroups. ``pod_origins``, ``group_origins``: where new pods and where PodGroups are in the files.
    ``awaited``: the pods that must be Ready before a pod is created. ``refused``: why the API server refuses a pod. ``doubts``: why it
    isn't known whether a pod that is a gang of its own would start. ``jobs``: the batch Jobs of the manifests.
    ``owners``: the walltimes that other workloads of the manifests state.
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
    owners: list[OwnerWalltime] = field(default_factory=list)

    def bad_input(self, gang: Gang, hold: Hold) -> ManifestError | None:
        """Return the error in a file because of which ``gang`` is held; None if a missing object or an unsupported feature is the cause."""
        if hold.reason in ("PodGroupNotFound", "Unsupported"):
            return None
        if hold.reason == OVER_LIMIT:  # no single field of a manifest exceeds such a limit
            origin = next((self.pod_origins[pod.key] for pod in gang.members if pod.key in self.pod_origins), None)
            return origin.error("spec", hold.message) if origin else None
        origin = self.pod_origins.get(hold.pod.key) if hold.pod else self.group_origins.get(gang.key)
        return origin.error(hold.field or "spec", hold.message) if origin else None


def applied(manifests: Manifests, cluster: Cluster, scheduler_names: Sequence[str], notes: list[str]) -> Applied:
    """Return what ``manifests`` bring to ``cluster``. Append to ``notes`` which pods exist already. Raises ``ManifestError``."""
    found = Applied()
    existing = _ExistingPods(cluster.pods)
    namespaces = None if cluster.namespaces is None else cluster.namespaces | manifests.namespaces
    priorities, runtimes = manifests.priorities.overriding(cluster.priorities), manifests.runtimes.overriding(cluster.runtimes)
    quotas = manifests.quotas.overriding(cluster.quotas)
    admission = Admission(priorities, runtimes, quotas, namespaces)
    notes += dict.fromkeys(_unknown_classes(manifests, admission.priorities))
    groups = {group.key: (group, each.origin) for each in cluster.pod_groups for group in _if_readable(each)}
    # New objects are younger than all existing objects.
    now = 1.0 + max((*(pod.created for pod in cluster.pods), *(group.created for group, _ in groups.values())), default=0.0)
    for workload, expanded in groupby(manifests.pods, key=lambda each: each.workload):
        created = [_new_pod(each, cluster, admission, now) for each in expanded]
        if workload is None:
            kept, missing = _split_bare_pods(created, existing, notes)
        else:
            known = existing.pods_of(workload)
            job = _job_counts(workload, (new.pod for new in created), known, cluster)
            kept, missing = _split_workload(workload, created, known, job, notes)
            found.jobs += [job] if job else _inner_jobs(new.pod for new in missing)
            found.owners += _stated_walltime(workload, (*known, *(new.pod for new in created)))
        found.pods += kept
        keys = [new.pod.key for new in created]
        for new in missing:
            pod = existing.with_free_name(new.pod)
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
    found.pods = list(_as_ours(found.pods, scheduler_names, notes))
    return found


class _ExistingPods:
    """Finds the pods of the cluster by their names, and by the workload that created them."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._by_key: dict[str, Pod] = {}
        self._by_owner: dict[tuple[str, str, str, str], list[Pod]] = defaultdict(list)
        for pod in pods:
            self._by_key[pod.key] = pod
            if owner := pod.owner:
                group = owner.api_version.rpartition("/")[0]
                self._by_owner[pod.namespace, group, owner.kind, owner.name].append(pod)
                # The launcher of an MPIJob belongs to a Job; a label names the MPIJob.
                if owner.is_batch_job and pod.label(_OPERATOR) == "mpi-operator":
                    self._by_owner[pod.namespace, "kubeflow.org", "MPIJob", pod.label(_OPERATED_JOB) or ""].append(pod)
                # A pod names its ReplicaSet, whose name is the Deployment's with a hash. The hash is also a label of the pod.
                deployment, _, digest = owner.name.rpartition("-")
                if owner.kind == "ReplicaSet" and digest == pod.label(_HASH_LABEL):
                    self._by_owner[pod.namespace, group, "Deployment", deployment].append(pod)

    def pod(self, key: str) -> Pod | None:
        """Return the pod of a ``namespace/name``; None if there is none."""
        return self._by_key.get(key)

    def pods_of(self, workload: Workload) -> Sequence[Pod]:
        """Return the existing pods of ``workload``."""
        return self._by_owner.get((workload.namespace, workload.document.group, workload.document.kind, workload.name), ())

    def with_free_name(self, pod: Pod) -> Pod:
        """Return ``pod``, under another made-up name if an existing pod has its name."""
        name, number = pod.name, 0
        while f"{pod.namespace}/{name}" in self._by_key:
            number += 1
            name = f"{pod.name}-{number}"
        return replace(pod, name=name) if number else pod


def _split_bare_pods(created: Sequence[_NewPod], existing: _ExistingPods, notes: list[str]) -> tuple[Sequence[Pod], Sequence[_NewPod]]:
    """Return two lists: the bare pods that exist and haven't ended, and the bare pods that don't exist."""
    known = [pod for new in created if (pod := existing.pod(new.pod.key))]
    if len(known) > _FEW:
        notes.append(f"{len(known)} pods are in the cluster already, {sum(1 for pod in known if pod.is_bound)} of them on nodes")
    else:
        notes += [f"pod {pod.key} is in the cluster already, {_state(pod)}" for pod in known]
    return [pod for pod in known if not pod.is_terminal], [new for new in created if existing.pod(new.pod.key) is None]


def _state(pod: Pod) -> str:
    return "and has ended" if pod.is_terminal else f"on node {pod.node_name}" if pod.node_name else "without a node"


def _split_workload(
    workload: Workload, created: Sequence[_NewPod], known: Sequence[Pod], job: JobCounts | None, notes: list[str]
) -> tuple[Sequence[Pod], Sequence[_NewPod]]:
    """Return two lists: the living pods of a workload, and the pods that its controller would still create.

    ``created`` are the pods that the controller would create if none existed, and ``known`` the existing pods. ``job`` has the progress of
    a batch Job.
    """
    if not (known or (job and job.done)):
        return (), created
    living = [pod for pod in known if pod.is_alive]
    missing = [_with_known_owner(new, known, job) for new in _missing(workload, created, known, len(living), job)]
    bound = sum(1 for pod in living if pod.node_name)
    total = len(living) + len(missing)
    count = f"{len(living)} of its {total} pods exist, {bound} of them on nodes" if living or missing else "its pods have ended"
    notes.append(f"{workload.title} is applied already: {count}")
    if {pod.spec.requests for pod in living} - {new.pod.spec.requests for new in created}:
        notes.append(f"{workload.title} requests other resources than its existing pods, which are planned unchanged")
    return living, missing


def _missing(workload: Workload, created: Sequence[_NewPod], known: Sequence[Pod], living: int, job: JobCounts | None) -> Sequence[_NewPod]:
    if not workload.is_named_at_random:
        # An MPIJob's launcher is the pod of a Job, and its name is the Job's with a suffix.
        names = {pod.owner.name if pod.owner and pod.owner.is_batch_job else pod.name for pod in known}
        return [new for new in created if new.pod.name not in names]
    wanted = len(created)
    if job and job.done:
        # The pods of a Job without completions work off a queue. Once a pod has succeeded the queue is empty, and no more pods are created.
        wanted = min(wanted, (job.completions or 0) - job.done)
    return created[len(created) - max(0, wanted - living) :]


def _with_known_owner(new: _NewPod, known: Sequence[Pod], job: JobCounts | None) -> _NewPod:
    """Return a new pod with the owner of the existing pods; the manifest doesn't have the owner's UID."""
    owner = new.pod.owner
    if owner is None:
        return new
    existing = next((pod.owner for pod in reversed(known) if pod.owner and pod.owner.kind == owner.kind), owner)
    return replace(new, pod=replace(new.pod, owner=replace(existing, uid=job.uid) if job else existing))


def _job_counts(workload: Workload, created: Iterable[Pod], known: Sequence[Pod], cluster: Cluster) -> JobCounts | None:
    """Return the progress of a batch Job, by its manifest, its object in the cluster and its pods; None for a workload of another kind.

    Raises ``ManifestError``.
    """
    document = workload.document
    if (document.group, document.kind) != JOB:
        return None
    existing = cluster.jobs.get(f"{workload.namespace}/{workload.name}")
    uid = existing.uid if existing else next((pod.owner.uid for pod in (*known, *created) if pod.owner), "")
    try:
        stated = job_counts_from({**document.raw, "metadata": {**mapping(document.raw, "metadata"), "uid": uid}})
    except MalformedError as error:
        raise document.origin.blame(error) from error
    succeeded = sum(1 for pod in known if pod.phase == "Succeeded")
    return replace(stated, done=max(stated.done, existing.done if existing else 0, succeeded))


def _inner_jobs(pods: Iterable[Pod]) -> Iterable[JobCounts]:
    """Return the batch Jobs that another workload creates for some of its pods, such as an MPIJob for its launcher."""
    owners = [pod.owner for pod in pods if pod.owner]
    root = next((owner.uid for owner in owners if not owner.is_batch_job), "")
    numbers = Counter(owner.uid for owner in owners if owner.is_batch_job)
    return [JobCounts(uid, root or uid, parallelism=number, completions=number, done=0) for uid, number in numbers.items()]


def _stated_walltime(workload: Workload, pods: Iterable[Pod]) -> Iterator[OwnerWalltime]:
    """Yield the walltime that the manifest of a TFJob or a similar job states for its pods; nothing for a workload of another kind."""
    document = workload.document
    kind = owner_kind_of(document.group, document.kind)
    uid = next((pod.owner.uid for pod in pods if pod.owner and pod.owner.kind == document.kind), "")
    if kind and uid:
        yield kind.read({**document.raw, "metadata": {**mapping(document.raw, "metadata"), "uid": uid}})


def _unknown_classes(manifests: Manifests, priorities: Priorities) -> Iterator[str]:
    """Yield a note for each pod whose PriorityClass isn't known. Raises ``ManifestError``."""
    for each in () if priorities.are_all else manifests.pods:
        try:
            name = priorities.unknown(each.raw)
        except MalformedError as error:
            raise each.origin.blame(error) from error
        if name:
            title = each.workload.title if each.workload else f"Pod {each.raw['metadata']['namespace']}/{each.raw['metadata']['name']}"
            yield f"{title}: PriorityClass {name!r} is not known; priority 0 is assumed"


def _new_pod(expanded: Expanded, cluster: Cluster, admission: Admission, now: float) -> _NewPod:
    """Return a pod as it would be created, younger than the objects that precede it in the files. Raises ``ManifestError``."""
    raw, refusal = expanded.raw, ""
    try:
        raw = admission.admitted(raw)
    except NotAdmittedError as error:
        refusal = str(error)
    except MalformedError as error:
        raise expanded.origin.blame(error) from error
    pod = replace(cluster.planned_from(raw), created=now + expanded.position)
    return _NewPod(raw, _with_node_affinity(pod) if pod.node_name else pod, expanded.origin, expanded.after, refusal, expanded.doubt)


def _over_quota(new: _NewPod, quotas: Quotas) -> str:
    """Return why a pod would exceed a quota; if it wouldn't, count the pod and return an empty text. Raises ``ManifestError``."""
    try:
        quotas.charge(new.raw)
    except NotAdmittedError as error:
        return str(error)
    except MalformedError as error:
        raise new.origin.blame(error) from error
    return ""


def _with_node_affinity(pod: Pod) -> Pod:
    """Return a pod whose ``nodeName`` is replaced by a node affinity, so that the plan checks whether the pod fits on that node."""
    name = Requirement(NAME_FIELD, "In", (pod.node_name,))
    stated = [term for term in pod.spec.affinity or () if term.expressions or term.fields]  # an empty term matches no node
    terms = [NodeSelectorTerm()] if pod.spec.affinity is None else stated
    node_terms = tuple(replace(term, fields=(*term.fields, name)) for term in terms)
    return replace(pod, node_name="", spec=replace(pod.spec, affinity=node_terms))


def _as_ours(pods: Iterable[Pod], scheduler_names: Sequence[str], notes: list[str]) -> Iterator[Pod]:
    """Yield the pods as pods of this scheduler, whichever scheduler they name; note the other schedulers."""
    foreign: set[str] = set()
    for pod in pods:
        if pod.scheduler_name not in scheduler_names:
            foreign.add(pod.scheduler_name)
            pod = replace(pod, scheduler_name=scheduler_names[0])
        yield pod
    for name in sorted(foreign):
        close = get_close_matches(name, scheduler_names, n=1, cutoff=_SIMILARITY)
        meant = f"; did you mean {close[0]}?" if close else ";"
        notes.append(f"some pods say schedulerName {name!r}{meant} they are planned anyway, but {scheduler_names[0]} would ignore them")


def _if_readable(found: Expanded) -> Iterator[PodGroup]:
    """Yield the record of a PodGroup of the cluster; yield nothing if the PodGroup can't be read."""
    with suppress(ManifestError):
        yield _pod_group(found)


def _pod_group(found: Expanded) -> PodGroup:
    try:
        return pod_group_from(found.raw)
    except MalformedError as error:
        raise found.origin.blame(error) from error
