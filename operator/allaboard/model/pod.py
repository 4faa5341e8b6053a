"""The record of a pod, read from its raw object: its identity, its state and its requests."""

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from allaboard.model.constraints import GpuRequest, SchedulingSpec
from allaboard.model.disruption import is_disrupted, mark_in
from allaboard.model.errors import MalformedError
from allaboard.model.foreign_gang_labels import NONE, ForeignGangLabels, foreign_gang_labels_in
from allaboard.model.gpu_request import gpu_request_in, with_gpus
from allaboard.model.gpu_sharing import Taken, taken_by
from allaboard.model.interner import Interner
from allaboard.model.kueue import NO_GROUP, kueue_group_in
from allaboard.model.limits import CHARACTERS, ENTRIES, LABELS, OWNERS, OverLimitError
from allaboard.model.openfaas import with_function_demand
from allaboard.model.options import OPTION_PREFIX as OPTION_PREFIX
from allaboard.model.options import Options, options_in
from allaboard.model.plain_pods import spec_from
from allaboard.model.provisioning import consumed_by
from allaboard.model.raw_fields import integer, items, labels, mapping, sequence, text
from allaboard.model.requests import RawObject
from allaboard.model.times import parse_time
from allaboard.model.walltime import UNKNOWN, walltime_of

STAMP = f"{OPTION_PREFIX}transaction"
"""The annotation that a bind writes: ``<id of the run>/<minMember at that time>``, with ``/whole`` if the run had been whole before."""

_STAMP_OPTION = STAMP.removeprefix(OPTION_PREFIX)
WALLTIME = f"{OPTION_PREFIX}walltime"
"""The annotation that states how long a pod will run at most. A bind writes it if the gang states a walltime and the pod doesn't."""

ROLE_LABELS = (
    "training.kubeflow.org/replica-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "volcano.sh/task-spec",
    "ray.io/group",
    "leaderworkerset.sigs.k8s.io/role",
    "kai.scheduler/subgroup-name",
)
"""Labels by which job operators name the role of a pod."""

OWN_LABELS = ("-index", "/pod-name", "/epoch")
"""Endings of the keys of labels and annotations that differ among pods of one template."""

_ENDED = ("Succeeded", "Failed")
_MANY = 200  # labels and annotations, beyond which a pod is a template of its own
_EXAMINED = ("serviceAccountName", "securityContext", "runtimeClassName", "priorityClassName", "hostNetwork", "hostPID", "hostIPC")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Owner:
    """The controller that owns a pod."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def is_batch_job(self) -> bool:
        """Return whether the controller is a batch Job of Kubernetes, which counts every lost pod as a failure."""
        return (self.api_version, self.kind) == ("batch/v1", "Job")


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod at one resourceVersion.

    ``created`` is in seconds since the epoch. ``labels`` and ``options`` are sorted. For a pod of another scheduler, only the fields that
    state what it takes of a node and which pods it keeps away are filled in; ``options`` are empty. If the pod may be evicted
    (``Reading.foreign_victims``), it has an owner and a priority, too.

    A bind by this scheduler stamps the pod. ``stamped_min_member`` is the gang's minimum at the bind, 0 without a stamp. ``transaction`` is
    the id of the gang's run. ``was_whole`` says whether the run had been whole before. ``bound_at`` is the time of the bind in seconds
    since the epoch. A tenant may forge these fields, so they only count as hints about the tenant's own gang.

    ``malformed`` is the first error in an object that can't be understood, else empty; ``spec`` then holds what can be read, so that the
    pod is reported and charged. ``caution`` is a doubt that the owner should know, and doesn't hold the pod. ``over`` has the names of
    exceeded limits. ``template`` is a digest of what admission webhooks may examine, equal for pods of one template; 0 for bound pods.
    ``foreign_gang_labels`` are the labels and annotations by which the pod asks another scheduler for a gang. ``kueue_group`` has the name
    and the total count of the pod's group of plain pods, as the pod states them to Kueue (``model.kueue``). ``devices`` are the shared
    GPUs that the pod's annotation names. In a view, these are the GPUs that were assumed for the pod, or that its annotation named when the
    pod was first seen on its node. ``is_disrupted`` says that a terminating pod was evicted, preempted or lost with its node. ``nominated``
    is the node to which another scheduler has nominated its waiting pod; empty for any other pod.

    ``started`` is the time at which the kubelet accepted a bound pod, in seconds since the epoch; 0 before that. ``leaves_at`` is the time
    at which the grace period of a terminating pod ends, likewise; 0 for any other pod. ``walltime`` is the
    longest time in seconds that the pod will run, as its owner states it (``model.walltime``).

    ``may_preempt`` is false for a pod with the preemption policy ``Never``: no pod is evicted for its gang. ``evicted_for`` is the mark of
    the gang for which this scheduler evicts the pod (``model.disruption``); empty for any other pod. ``consumes`` is the name of the
    ProvisioningRequest that a waiting pod names; empty for any other pod.
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
    kueue_group: tuple[str, str] = NO_GROUP
    is_terminating: bool = False
    leaves_at: float = 0.0
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
    started: float = 0.0
    walltime: float = UNKNOWN
    may_preempt: bool = True
    evicted_for: str = ""
    consumes: str = ""

    @property
    def key(self) -> str:
        """The pod's namespace and name: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_terminal(self) -> bool:
        """Return whether the pod has ended, so that it holds no resources."""
        return self.phase in _ENDED

    @property
    def is_alive(self) -> bool:
        """Return whether the pod is neither terminal nor terminating."""
        return not self.is_terminating and self.phase not in _ENDED

    @property
    def has_succeeded(self) -> bool:
        """Return whether the pod has succeeded and isn't being deleted."""
        return self.phase == "Succeeded" and not self.is_terminating

    @property
    def is_bound(self) -> bool:
        """Return whether the pod holds resources of a node. A terminating pod still holds them."""
        return bool(self.node_name) and not self.is_terminal

    @property
    def is_candidate(self) -> bool:
        """Return whether a scheduler may bind the pod now.

        The phase isn't enough to decide this: a bound pod that pulls images is Pending, too.
        """
        return not (self.node_name or self.is_terminating or self.is_gated or self.is_terminal)

    def freed(self, now: "Pod | None") -> list[str]:
        """Return the resources of which the pod took more on its node than ``now`` takes there.

        ``now`` is the pod's later state, another pod of the same name, or ``None`` if the pod is gone. A pod also takes capacity of the
        node that it is nominated to.
        """
        if not self._occupied_node:
            return []
        is_there = now is not None and now.uid == self.uid and now._occupied_node == self._occupied_node
        keeps = dict(now.spec.requests) if now is not None and is_there else {}
        freed = [resource for resource, amount in self.spec.requests if keeps.get(resource, 0) < amount]
        return freed if keeps else [*freed, *self.spec.awaited]

    @property
    def _occupied_node(self) -> str:
        return self.node_name if self.is_bound else self.nominated

    def label(self, key: str) -> str | None:
        """Return the value of a label, ``None`` without it."""
        place = bisect_left(self.labels, (key,))
        return self.labels[place][1] if place < len(self.labels) and self.labels[place][0] == key else None

    @property
    def role(self) -> str:
        """The pod's role in its gang, such as ps or worker; empty if the pod states none."""
        return self.option("role") or _role_by_labels(self.labels)

    @property
    def is_of_job(self) -> bool:
        """Return whether a batch Job of Kubernetes has created the pod."""
        return self.owner is not None and self.owner.is_batch_job

    def option(self, key: str) -> str | None:
        """Return the value of the annotation ``allaboard.dev/<key>``, ``None`` without it."""
        return next((value for name, value in self.options if name == key), None) if self.options else None


@lru_cache(maxsize=1024)
def _role_by_labels(labels: tuple[tuple[str, str], ...]) -> str:
    stated = dict(labels)
    return next((value for name in ROLE_LABELS if (value := stated.get(name))), "")


def by_age(pod: Pod) -> tuple[float, str]:
    """Return the sort key of pods by age, oldest first.

    The API server's times are whole seconds, so names decide between pods with equal times.
    """
    return pod.created, pod.name


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings for reading pods.

    ``ours`` are the names of this scheduler; ``None`` for any name. A pod with another scheduler's name is foreign: only its node, what it
    takes there, and which pods it keeps away are read. ``openfaas``: whether a pod whose containers state no requests takes what its
    function requests. ``charged_by_label``: whether a pod takes as many GPUs as its label says, if that is more than it requests.
    ``foreign_victims``: whether it is also read of bound foreign pods what decides whether they may be evicted.
    """

    ours: Collection[str] | None = None
    openfaas: bool = False
    charged_by_label: bool = True
    foreign_victims: bool = False


PLAIN = Reading()


def pod_from(raw: RawObject, intern: Interner | None = None, reading: Reading = PLAIN) -> Pod:
    """Return the record of a raw Pod. Errors in the pod's requests and options are noted in ``malformed``.

    Raises ``MalformedError`` only if the pod's identity, owner or state can't be read. Such an error can't be reported on the pod.
    """
    intern = intern or Interner()
    metadata = mapping(raw, "metadata")
    name, namespace = text(metadata, "name", path="metadata."), text(metadata, "namespace", "default", "metadata.")
    if not name:
        raise MalformedError("metadata.name", "is missing")
    spec, status = mapping(raw, "spec"), mapping(raw, "status")
    # A pod counts even if the name of its scheduler is too long.
    stated = spec.get("schedulerName")
    scheduler = stated[: CHARACTERS.most] if isinstance(stated, str) else text(spec, "schedulerName", "default-scheduler", "spec.")
    is_foreign = reading.ours is not None and scheduler not in reading.ours
    scheduling, problems = spec_from(raw, is_foreign=is_foreign)
    caution = ""
    if reading.openfaas:
        scheduling, caution = with_function_demand(raw, scheduling, problems)
    may_be_victim = is_foreign and reading.foreign_victims and bool(spec.get("nodeName"))
    if not is_foreign:
        own = _own_from(metadata, spec, problems)
    elif may_be_victim:
        own = _foreign_from(metadata, spec)
    else:
        own = _Own(_labels_of(metadata) if spec.get("nodeName") else ())
    scheduling = with_gpus(scheduling, own.gpus, is_charged=reading.charged_by_label)
    run, stamped_min_member, was_whole = read_stamp(own.stamp)
    nominated = _nominated(metadata, spec, status) if is_foreign else ""
    kind = _controller_kind(own.owner, metadata, is_foreign=is_foreign)
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
        kueue_group=intern(own.kueue_group),
        is_terminating=metadata.get("deletionTimestamp") is not None,
        leaves_at=_time(metadata, "deletionTimestamp"),
        is_gated=own.is_gated,
        is_disrupted=not is_foreign and metadata.get("deletionTimestamp") is not None and is_disrupted(status),
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
        started=_time(status, "startTime") if spec.get("nodeName") else 0.0,
        walltime=walltime_of(metadata, spec, _walltime_annotation(metadata), kind),
        may_preempt=spec.get("preemptionPolicy") != "Never",
        evicted_for=intern(mark_in(status)) if spec.get("nodeName") and (may_be_victim or not is_foreign) else "",
        consumes="" if spec.get("nodeName") or is_foreign else intern(consumed_by(metadata)),
    )


@dataclass(slots=True)
class _Own:
    """The fields that are read only for pods of this scheduler, and of other schedulers' pods that it may evict."""

    labels: Sequence[tuple[str, str]] = ()
    options: Options = ()
    stamp: str = ""
    priority: int = 0
    owner: Owner | None = None
    group_name: str = ""
    foreign_gang_labels: ForeignGangLabels = NONE
    kueue_group: tuple[str, str] = NO_GROUP
    is_gated: bool = False
    gpus: GpuRequest | None = None


def _own_from(metadata: Mapping[str, object], spec: Mapping[str, object], problems: list[MalformedError]) -> _Own:
    """Return the fields of ``_Own``, as far as they can be read. Errors in these fields are put before the other ``problems``."""
    own, found = _Own(), []
    try:
        stated = labels(metadata, "labels", "metadata.", LABELS)
        own.labels = sorted(stated.items())
        own.options, problem = options_in(metadata)
        annotations = mapping(metadata, "annotations", "metadata.")
        own.foreign_gang_labels = foreign_gang_labels_in(stated, annotations)
        own.kueue_group = kueue_group_in(stated, annotations)
        own.stamp = next((value for name, value in own.options if name == _STAMP_OPTION), "")
        found += [problem] if problem else []
        own.priority = integer(spec, "priority", path="spec.")
    except MalformedError as error:
        found.append(error.noted())
    own.gpus, wrong = gpu_request_in(_unchecked(metadata, "labels"), _unchecked(metadata, "annotations"))
    found += (problem.noted() for problem in wrong)
    try:
        own.owner = controller_of(metadata)
    except OverLimitError as error:
        found.append(error.noted())
    own.group_name = text(mapping(spec, "schedulingGroup", "spec."), "podGroupName", path="spec.schedulingGroup.")
    own.is_gated = bool(sequence(spec, "schedulingGates", "spec."))
    problems[:0] = found
    return own


def _foreign_from(metadata: Mapping[str, object], spec: Mapping[str, object]) -> _Own:
    """Return what decides whether a bound foreign pod may be evicted. A malformed pod seems to have no owner, so it is never evicted."""
    own, problems = _Own(), list[MalformedError]()
    with suppress(MalformedError):
        own = _own_from(metadata, spec, problems)
    return _Own() if problems else replace(own, options=(), stamp="", gpus=None)


def _labels_of(metadata: Mapping[str, object]) -> Sequence[tuple[str, str]]:
    """Return the labels of a foreign pod, sorted, as far as they are within the limit: terms of affinity may select the pod."""
    few = islice(_unchecked(metadata, "labels").items(), LABELS.most)
    return sorted((key, value) for key, value in few if isinstance(value, str) and max(len(key), len(value)) <= CHARACTERS.most)


def _unchecked(metadata: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return the mapping under ``key`` without checking its entries; empty if there is no mapping."""
    found = metadata.get(key)
    return found if isinstance(found, dict) else {}


def _template_of(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> int:
    """Return a digest of what an admission webhook may examine, without the names and numbers that controllers give to each pod.

    A pod with very many labels, whose digest would take long, is a template of its own. A malformed pod is held, and gets 0.
    """
    try:
        pairs = [*(metadata.get("labels") or {}).items(), *(metadata.get("annotations") or {}).items()]
        if len(pairs) > _MANY:
            return hash(metadata.get("uid"))
        examined = [(key, value) for key, value in pairs if not key.endswith(OWN_LABELS)]
        examined += [(field, repr(spec[field])) for field in _EXAMINED if field in spec]
        for field in ("initContainers", "containers"):
            for container in spec.get(field) or ():
                examined += [(field, container.get("image"))]
                if "securityContext" in container:
                    examined += [(field, repr(container["securityContext"]))]
        return hash(tuple(examined))
    except (TypeError, AttributeError):
        return 0


def stamp_of(run: str, min_member: int, *, was_whole: bool) -> str:
    """Return the stamp that the binds of one transaction write: ``min_member`` is the minimum at that time."""
    return f"{run}/{min_member}/whole" if was_whole else f"{run}/{min_member}"


def read_stamp(stamp: str | None) -> tuple[str, int, bool]:
    """Return what a stamp states: the run, the minimum at the time of the bind, and whether the run had been whole before.

    The result is ``("", 0, False)`` for a malformed stamp.
    """
    found = re.fullmatch(r"([0-9a-f]{1,32})/([1-9][0-9]{0,8})(/whole)?", stamp or "", re.ASCII)
    return (found[1], int(found[2]), found[3] is not None) if found else ("", 0, False)


def _devices(metadata: RawObject, is_foreign: bool) -> tuple[Taken, ...]:
    """Return the shared GPUs that the annotations of a bound pod name; for a foreign pod, also how much of each GPU it takes."""
    try:
        taken = taken_by(mapping(metadata, "annotations", "metadata."))
    except MalformedError:
        return ()
    return taken if is_foreign else tuple(Taken(each.uuid, driver=each.driver) for each in taken)


def _nominated(metadata: RawObject, spec: RawObject, status: RawObject) -> str:
    """Return the node that a waiting pod is nominated to; empty without one."""
    name = status.get("nominatedNodeName")
    waits = not spec.get("nodeName") and metadata.get("deletionTimestamp") is None and status.get("phase") not in _ENDED
    return name if waits and isinstance(name, str) and len(name) <= CHARACTERS.most else ""


def _priority(spec: RawObject) -> int:
    try:
        return integer(spec, "priority")
    except MalformedError:
        return 0


def _time(fields: Mapping[str, object], field: str) -> float:
    """Return the time in a field, in seconds since the epoch; 0 if the field states none."""
    value = fields.get(field)
    return parse_time(value) if isinstance(value, str) else 0.0


def _walltime_annotation(metadata: Mapping[str, object]) -> str | None:
    value = _unchecked(metadata, "annotations").get(WALLTIME)
    return value if isinstance(value, str) else None


def _controller_kind(owner: Owner | None, metadata: Mapping[str, object], *, is_foreign: bool) -> str:
    """Return the kind of a pod's controller; empty if it has none or can't be read. The ``owner`` of a foreign pod isn't read before."""
    if is_foreign:
        with suppress(MalformedError):
            owner = controller_of(metadata)
    return owner.kind if owner else ""


def _bound_at(status: Mapping[str, object]) -> float:
    """Return when the API server accepted the bind, by the condition PodScheduled: seconds since the epoch, 0 if unknown."""
    try:
        for _, condition in items(status, "conditions", "status.", ENTRIES):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
                return parse_time(text(condition, "lastTransitionTime"))
    except OverLimitError:
        pass  # the time counts as unknown
    return 0.0


def reports_end(raw: RawObject) -> bool:
    """Return whether a raw Pod shows how it ended: by itself before it was deleted, or by a disruption."""
    status = raw.get("status")
    if not isinstance(status, dict):
        return False
    metadata = raw.get("metadata")
    is_deleted = isinstance(metadata, dict) and metadata.get("deletionTimestamp") is not None
    return is_disrupted(status) if is_deleted else status.get("phase") in _ENDED


def controller_of(metadata: Mapping[str, object]) -> Owner | None:
    """Return the controller that an object's metadata names; ``None`` without a controller. Raises ``MalformedError``."""
    for path, reference in items(metadata, "ownerReferences", "metadata.", OWNERS):
        if reference.get("controller") is True:
            return Owner(
                api_version=text(reference, "apiVersion", path=path),
                kind=text(reference, "kind", path=path),
                name=text(reference, "name", path=path),
                uid=text(reference, "uid", path=path),
            )
    return None
