"""A pod as the scheduler sees it: who it is, whether it counts, and what it asks."""

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from allaboard.model.constraints import GpuRequest, SchedulingSpec, readable_spec_from
from allaboard.model.errors import MalformedError
from allaboard.model.foreign_gang_labels import NONE, ForeignGangLabels, foreign_gang_labels_in
from allaboard.model.gpu_request import gpu_request_in, with_gpus
from allaboard.model.gpu_sharing import Taken, taken_by
from allaboard.model.interner import Interner
from allaboard.model.limits import CHARACTERS, ENTRIES, LABELS, OWNERS, OverLimitError
from allaboard.model.openfaas import with_function_demand
from allaboard.model.options import OPTION_PREFIX as OPTION_PREFIX
from allaboard.model.options import Options, options_in
from allaboard.model.raw_fields import integer, items, labels, mapping, sequence, text
from allaboard.model.requests import RawObject

STAMP = f"{OPTION_PREFIX}transaction"
"""Annotation that a bind gives a pod: ``<id of the run>/<minMember at that commit>``, and ``/whole`` if the run had been whole before."""

_STAMP_OPTION = STAMP.removeprefix(OPTION_PREFIX)

ROLE_LABELS = (
    "training.kubeflow.org/replica-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "volcano.sh/task-spec",
    "ray.io/group",
    "leaderworkerset.sigs.k8s.io/role",
    "kai.scheduler/subgroup-name",
)
"""Labels by which job operators name the role of a pod."""

_OWN = ("-index", "/pod-name", "/epoch")  # how labels and annotations end that are each pod's own
_ENDED = ("Succeeded", "Failed")
_MANY = 200  # labels and annotations
_LOOKED_AT = ("serviceAccountName", "securityContext", "runtimeClassName", "priorityClassName", "hostNetwork", "hostPID", "hostIPC")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Owner:
    """The controller of a pod."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def is_batch_job(self) -> bool:
        """Whether it is a Job of Kubernetes' own, which counts every lost pod as a failure."""
        return (self.api_version, self.kind) == ("batch/v1", "Job")


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod at one resourceVersion.

    ``created`` is seconds since the epoch. ``stamped_min_member`` is the gang's minimum when a bind of ours gave the pod its node, 0 when
    none did; ``transaction`` is the id of the gang's run that it belongs to, ``bound_at`` is when that was, and ``was_whole``
    tells that the run had been whole before. All are what the pod says, and a tenant may have made it say so: they are hints about its
    own gang. ``template`` is a digest of what admission may look at, the same for pods of one template; 0 once it is bound.
    ``malformed`` is set when the object could not be understood, and ``spec`` then holds what could: the pod is shown as what it is
    instead of being lost. ``caution`` is what its owner should know, and doesn't hold it. ``over`` names the limits that it is over.
    ``labels`` are sorted, as are ``options``; a pod of another scheduler has neither, nor anything else that says no more than whose it
    is. ``foreign_gang_labels`` are the labels and annotations by which it asks another scheduler for a gang. ``devices`` are those of
    its node's shared GPUs that it says it has; in a view those assumed for it, or that it first said it has. ``is_disrupted`` tells of one
    that is being deleted that it was evicted, preempted or lost with its node.
    ``nominated`` is the node that another scheduler has nominated a pod of its own to which waits for it; empty for any other pod.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    created: float
    scheduler_name: str
    node_name: str
    phase: str
    priority: int
    spec: SchedulingSpec
    labels: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    owner: Owner | None = None
    group_name: str = ""
    foreign_gang_labels: ForeignGangLabels = NONE
    is_terminating: bool = False
    is_gated: bool = False
    is_disrupted: bool = False
    stamped_min_member: int = 0
    transaction: str = ""
    was_whole: bool = False
    bound_at: float = 0.0
    template: int = 0
    malformed: str = ""
    caution: str = ""
    over: tuple[str, ...] = ()
    devices: tuple[Taken, ...] = ()
    nominated: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended and holds nothing any more."""
        return self.phase in _ENDED

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, and nobody ends it."""
        return not self.is_terminating and self.phase not in _ENDED

    @property
    def has_succeeded(self) -> bool:
        """Whether it has ended well, and nobody had to end it."""
        return self.phase == "Succeeded" and not self.is_terminating

    @property
    def is_bound(self) -> bool:
        """Whether it holds resources of a node; a terminating pod still does."""
        return bool(self.node_name) and not self.is_terminal

    @property
    def is_candidate(self) -> bool:
        """Whether a scheduler may bind it now. The phase alone says nothing: a bound pod that pulls images is Pending too."""
        return not (self.node_name or self.is_terminating or self.is_gated or self.is_terminal)

    def freed(self, now: "Pod | None") -> list[str]:
        """The resources of which it took more of its node than it does ``now``, when it may be gone or another of its name.

        A pod takes room of the node that it is nominated to as well.
        """
        if not self._takes_room_of:
            return []
        is_there = now is not None and now.uid == self.uid and now._takes_room_of == self._takes_room_of
        keeps = dict(now.spec.requests) if now is not None and is_there else {}
        freed = [resource for resource, amount in self.spec.requests if keeps.get(resource, 0) < amount]
        return freed if keeps else [*freed, *self.spec.awaited]

    @property
    def _takes_room_of(self) -> str:
        return self.node_name if self.is_bound else self.nominated

    def label(self, key: str) -> str | None:
        """The value of a label, ``None`` without it."""
        place = bisect_left(self.labels, (key,))
        return self.labels[place][1] if place < len(self.labels) and self.labels[place][0] == key else None

    @property
    def role(self) -> str:
        """What the pod is in its gang, such as ps or worker; empty when nothing says so."""
        return self.option("role") or _role_by_labels(self.labels)

    @property
    def is_of_job(self) -> bool:
        """Whether a Job of Kubernetes' own has made it."""
        return self.owner is not None and self.owner.is_batch_job

    def option(self, key: str) -> str | None:
        """The value of the annotation ``allaboard.dev/<key>``, ``None`` without it."""
        return next((value for name, value in self.options if name == key), None) if self.options else None


@lru_cache(maxsize=1024)
def _role_by_labels(labels: tuple[tuple[str, str], ...]) -> str:
    stated = dict(labels)
    return next((value for name in ROLE_LABELS if (value := stated.get(name))), "")


def by_age(pod: Pod) -> tuple[float, str]:
    """Order pods by age, the oldest first; the API server's times are whole seconds, so that names decide among many."""
    return pod.created, pod.name


@dataclass(frozen=True, slots=True)
class Reading:
    """How pods are read, as an installation's settings have it.

    Of a pod whose scheduler isn't one of ``ours`` no more is kept than where it is and what it takes and keeps away there; without
    ``ours`` all are taken to be. With ``openfaas`` a pod whose containers don't say what they need takes what its function asks for; with
    ``charged_by_label`` one takes as many GPUs as its label says, if that is more than it requests.
    """

    ours: Collection[str] | None = None
    openfaas: bool = False
    charged_by_label: bool = True


PLAIN = Reading()


def pod_from(raw: RawObject, intern: Interner | None = None, reading: Reading = PLAIN) -> Pod:
    """The record of a raw Pod; what it asks for may be malformed, which is noted in ``malformed``.

    Raises ``MalformedError`` only when even who the pod is and whose can't be read, so that nobody could be told.
    """
    intern = intern or Interner()
    metadata = mapping(raw, "metadata")
    name, namespace = text(metadata, "name", path="metadata."), text(metadata, "namespace", "default", "metadata.")
    if not name:
        raise MalformedError("metadata.name", "is missing")
    spec, status = mapping(raw, "spec"), mapping(raw, "status")
    # Whatever another scheduler is called, and however long, its pods take what they take.
    stated = spec.get("schedulerName")
    scheduler = stated[: CHARACTERS.most] if isinstance(stated, str) else text(spec, "schedulerName", "default-scheduler", "spec.")
    is_foreign = reading.ours is not None and scheduler not in reading.ours
    scheduling, problems = readable_spec_from(raw, is_foreign=is_foreign)
    caution = ""
    if reading.openfaas:
        scheduling, caution = with_function_demand(raw, scheduling, problems)
    own = _Own() if is_foreign else _own_from(metadata, spec, problems)
    scheduling = with_gpus(scheduling, own.gpus, is_charged=reading.charged_by_label)
    run, stamped_min_member, was_whole = read_stamp(own.stamp)
    nominated = _nominated(metadata, spec, status) if is_foreign else ""
    return Pod(
        namespace=intern(namespace),
        name=name,
        uid=text(metadata, "uid", path="metadata."),
        resource_version="" if is_foreign else text(metadata, "resourceVersion", path="metadata."),
        created=0.0 if is_foreign else parse_time(text(metadata, "creationTimestamp", path="metadata.")),
        scheduler_name=intern(scheduler),
        node_name=intern(text(spec, "nodeName", path="spec.")),
        phase=intern(text(status, "phase", "Pending", "status.")),
        priority=_priority(spec) if nominated else own.priority,
        spec=intern.record(scheduling),
        labels=tuple(intern(pair) for pair in own.labels),
        options=tuple(intern(pair) for pair in own.options),
        owner=intern.record(own.owner) if own.owner else None,
        group_name=intern(own.group_name),
        foreign_gang_labels=own.foreign_gang_labels,
        is_terminating=metadata.get("deletionTimestamp") is not None,
        is_gated=own.is_gated,
        is_disrupted=not is_foreign and metadata.get("deletionTimestamp") is not None and _is_disrupted(status),
        stamped_min_member=stamped_min_member,
        transaction=intern(run),
        was_whole=was_whole,
        bound_at=_bound_at(status) if stamped_min_member else 0.0,
        template=0 if is_foreign or spec.get("nodeName") else _template_of(metadata, spec),
        malformed=str(problems[0]) if problems else "",
        caution="" if is_foreign else caution,
        devices=_devices(metadata, is_foreign) if spec.get("nodeName") and scheduling.awaited else (),
        over=tuple(sorted({problem.limit.name for problem in problems if isinstance(problem, OverLimitError)})) if problems else (),
        nominated=intern(nominated),
    )


@dataclass(slots=True)
class _Own:
    """What is read of pods of ours only."""

    labels: Sequence[tuple[str, str]] = ()
    options: Options = ()
    stamp: str = ""
    priority: int = 0
    owner: Owner | None = None
    group_name: str = ""
    foreign_gang_labels: ForeignGangLabels = NONE
    is_gated: bool = False
    gpus: GpuRequest | None = None


def _own_from(metadata: Mapping[str, object], spec: Mapping[str, object], problems: list[MalformedError]) -> _Own:
    """What can be read of it; ``problems`` are added to, what is wrong with the metadata before all others."""
    own, found = _Own(), []
    try:
        stated = labels(metadata, "labels", "metadata.", LABELS)
        own.labels = sorted(stated.items())
        own.options, problem = options_in(metadata)
        own.foreign_gang_labels = foreign_gang_labels_in(stated, mapping(metadata, "annotations", "metadata."))
        own.stamp = next((value for name, value in own.options if name == _STAMP_OPTION), "")
        found += [problem] if problem else []
        own.priority = integer(spec, "priority", path="spec.")
    except MalformedError as error:
        found.append(error.noted())
    own.gpus, wrong = gpu_request_in(_whatever(metadata, "labels"), _whatever(metadata, "annotations"))
    found += (problem.noted() for problem in wrong)
    try:
        own.owner = controller_of(metadata)
    except OverLimitError as error:
        found.append(error.noted())
    own.group_name = text(mapping(spec, "schedulingGroup", "spec."), "podGroupName", path="spec.schedulingGroup.")
    own.is_gated = bool(sequence(spec, "schedulingGates", "spec."))
    problems[:0] = found
    return own


def _whatever(metadata: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The mapping under ``key`` as it is written; empty where there is none."""
    found = metadata.get(key)
    return found if isinstance(found, dict) else {}


def _template_of(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> int:
    """A digest of what an admission webhook may look at, without the names and numbers that controllers give to each pod.

    A pod with so many labels that it would take long is a template of its own; one that makes no sense is held, and needs none.
    """
    try:
        pairs = [*(metadata.get("labels") or {}).items(), *(metadata.get("annotations") or {}).items()]
        if len(pairs) > _MANY:
            return hash(metadata.get("uid"))
        looked_at = [(key, value) for key, value in pairs if not key.endswith(_OWN)]
        looked_at += [(field, repr(spec[field])) for field in _LOOKED_AT if field in spec]
        for field in ("initContainers", "containers"):
            for container in spec.get(field) or ():
                looked_at += [(field, container.get("image"))]
                if "securityContext" in container:
                    looked_at += [(field, repr(container["securityContext"]))]
        return hash(tuple(looked_at))
    except (TypeError, AttributeError):
        return 0


def stamp_of(run: str, min_member: int, *, was_whole: bool) -> str:
    """Return the stamp that the binds of one commit write: ``min_member`` is the minimum at that commit."""
    return f"{run}/{min_member}/whole" if was_whole else f"{run}/{min_member}"


def read_stamp(stamp: str | None) -> tuple[str, int, bool]:
    """Return the run, the minimum at its commit, and whether the run had been whole; ``("", 0, False)`` if it is no stamp of ours."""
    found = re.fullmatch(r"([0-9a-f]{1,32})/([1-9][0-9]{0,8})(/whole)?", stamp or "", re.ASCII)
    return (found[1], int(found[2]), found[3] is not None) if found else ("", 0, False)


def _devices(metadata: RawObject, is_foreign: bool) -> tuple[Taken, ...]:
    """Which shared GPUs a bound pod has. How much of them is what it asks for, and of pods that aren't ours what their driver was told."""
    try:
        taken = taken_by(mapping(metadata, "annotations", "metadata."))
    except MalformedError:
        return ()
    return taken if is_foreign else tuple(Taken(each.uuid, driver=each.driver) for each in taken)


def _nominated(metadata: RawObject, spec: RawObject, status: RawObject) -> str:
    """The node that a pod is nominated to which waits for it still."""
    name = status.get("nominatedNodeName")
    waits = not spec.get("nodeName") and metadata.get("deletionTimestamp") is None and status.get("phase") not in _ENDED
    return name if waits and isinstance(name, str) and len(name) <= CHARACTERS.most else ""


def _priority(spec: RawObject) -> int:
    try:
        return integer(spec, "priority")
    except MalformedError:
        return 0


def _bound_at(status: Mapping[str, object]) -> float:
    """When the API server took the bind, which it notes in a condition."""
    try:
        for _, condition in items(status, "conditions", "status.", ENTRIES):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
                return parse_time(text(condition, "lastTransitionTime"))
    except OverLimitError:
        pass  # as one that doesn't say
    return 0.0


def tells_end(raw: RawObject) -> bool:
    """Return whether an API pod tells how it ended: by itself before anybody deleted it, or by a disruption."""
    status = raw.get("status")
    if not isinstance(status, dict):
        return False
    metadata = raw.get("metadata")
    is_deleted = isinstance(metadata, dict) and metadata.get("deletionTimestamp") is not None
    return _is_disrupted(status) if is_deleted else status.get("phase") in _ENDED


def _is_disrupted(status: Mapping[str, object]) -> bool:
    """Return whether a condition says that the pod goes for a reason that isn't its own or its controller's."""
    try:
        conditions = items(status, "conditions", "status.", ENTRIES)
        return any((each.get("type"), each.get("status")) == ("DisruptionTarget", "True") for _, each in conditions)
    except MalformedError:
        return False


def parse_time(timestamp: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 when it is absent or unreadable, so that it sorts as oldest."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
    except (ValueError, OverflowError):
        return 0.0


def controller_of(metadata: Mapping[str, object]) -> Owner | None:
    """Return the controller that an object's metadata names, None without one. Raises ``MalformedError``."""
    for path, reference in items(metadata, "ownerReferences", "metadata.", OWNERS):
        if reference.get("controller") is True:
            return Owner(
                api_version=text(reference, "apiVersion", path=path),
                kind=text(reference, "kind", path=path),
                name=text(reference, "name", path=path),
                uid=text(reference, "uid", path=path),
            )
    return None
