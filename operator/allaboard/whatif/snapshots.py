"""Holds the cluster that a plan starts from, and reads it from files."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from allaboard.cluster.namespaces import NAME_LABEL, namespace_labels_from
from allaboard.cluster.stored_kinds import STORED_KINDS
from allaboard.gangs.job_counts import JobCounts, job_counts_from
from allaboard.gangs.owner_walltimes import OwnerWalltime, owner_kind_of
from allaboard.model.errors import MalformedError
from allaboard.model.gpus import NO_CARDS, Cards
from allaboard.model.interner import Interner
from allaboard.model.node import Node, node_from
from allaboard.model.pod import Pod, Reading, pod_from
from allaboard.model.raw_fields import items, mapping, text
from allaboard.model.requests import RawObject, default_requests
from allaboard.whatif.documents import ManifestError, read_documents
from allaboard.whatif.jobgroups import flags_of
from allaboard.whatif.manifests import POD_GROUP, Expanded, identity_of, raw_pod_group, refuse_malformed
from allaboard.whatif.priorities import PRIORITY_CLASS, Priorities
from allaboard.whatif.quotas import LIMIT_RANGE, RESOURCE_QUOTA, Quotas
from allaboard.whatif.runtimeclasses import RUNTIME_CLASS, RuntimeClasses
from allaboard.whatif.schemas import CUSTOM_RESOURCE_DEFINITION
from allaboard.whatif.storage import Storage
from allaboard.whatif.workloads import JOB

BOARD = "allaboard.dev", "Board"
"""The API group and the kind of the operator's state in a snapshot; no cluster has objects of this kind."""


@dataclass(slots=True)
class Cluster:
    """The cluster that a plan starts from: nodes, pods, PodGroups, Jobs, classes, quotas and CustomResourceDefinitions.

    ``reading`` says how pods are read, and ``intern`` makes equal parts of pods one object. ``gang_schedulers`` are the schedulers for
    which job operators create PodGroups, by API version of the jobs. ``refused`` has why a scheduler has reported waiting pods as
    unschedulable, by ``namespace/name``; a plan doesn't place a gang whose waiting pods are all ``refused``. With
    ``has_all_definitions`` the cluster has no other CustomResourceDefinitions. ``namespaces`` are all namespaces; None if not known.
    ``jobs`` are batch Jobs, by ``namespace/name``, and ``owners`` other objects that state walltimes. ``cards`` are the metrics of GPUs.
    ``storage`` are claims, volumes and storage classes, and ``namespace_labels`` the labels of namespaces by name.
    ``board`` is the state of the operator, if a snapshot has it.
    ``read_at`` is the time at which the cluster was read, in seconds since the epoch; None if it isn't known, as for files.
    """

    reading: Reading
    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    pod_groups: list[Expanded] = field(default_factory=list)
    intern: Interner = field(default_factory=Interner)
    gang_schedulers: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    priorities: Priorities = field(default_factory=Priorities)
    runtimes: RuntimeClasses = field(default_factory=RuntimeClasses)
    definitions: list[RawObject] = field(default_factory=list)
    has_all_definitions: bool = False
    namespaces: frozenset[str] | None = None
    jobs: dict[str, JobCounts] = field(default_factory=dict)
    owners: list[OwnerWalltime] = field(default_factory=list)
    quotas: Quotas = field(default_factory=Quotas)
    cards: Cards = NO_CARDS
    storage: Storage = field(default_factory=Storage)
    namespace_labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    read_at: float | None = None
    board: RawObject | None = None

    @property
    def learners(self) -> Mapping[tuple[str, str], Callable[[RawObject], None]]:
        """The functions that add an object of a kind, by group and kind. They raise ``MalformedError``."""
        return {
            PRIORITY_CLASS: self.priorities.learn,
            LIMIT_RANGE: self.quotas.learn_limits,
            RESOURCE_QUOTA: self.quotas.learn_quota,
            JOB: self.learn_job,
            RUNTIME_CLASS: self.runtimes.learn,
            ("", "Namespace"): self.learn_namespace,
            CUSTOM_RESOURCE_DEFINITION: self.definitions.append,
            BOARD: self.learn_board,
            **{kind: partial(self.storage.learn, *kind) for kind in STORED_KINDS},
        }

    @property
    def now(self) -> float:
        """The moment that the cluster shows: when it was read, else the newest time in its pods."""
        if self.read_at is not None:
            return self.read_at
        return max((max(pod.created, pod.started, pod.bound_at) for pod in self.pods), default=0.0)

    def is_ours(self, pod: Pod) -> bool:
        """Return whether this scheduler schedules the pod."""
        return self.reading.ours is None or pod.scheduler_name in self.reading.ours

    def pod_from(self, raw: RawObject) -> Pod:
        """Return the record of a pod of the cluster, with its gang and its workload, whichever scheduler the pod names.

        A pod of another scheduler uses as much of its node as the operator charges for such a pod. Requests by Allaboard's labels don't
        count: the other scheduler didn't grant them.
        """
        pod = self.planned_from(raw)
        if self.is_ours(pod):
            return pod
        charged = pod_from(raw, self.intern, self.reading)
        return replace(pod, spec=charged.spec, devices=charged.devices, malformed=charged.malformed)

    def planned_from(self, raw: RawObject) -> Pod:
        """Return the record of a pod that would be created, as a pod of this scheduler."""
        return pod_from(raw, self.intern, replace(self.reading, ours=None))

    def learn_namespace(self, raw: RawObject) -> None:
        """Add the labels of a Namespace. Raises ``MalformedError``."""
        name = text(mapping(raw, "metadata"), "name", path="metadata.")
        self.namespace_labels[name] = {NAME_LABEL: name, **namespace_labels_from(dict(raw))}

    def learn_board(self, raw: RawObject) -> None:
        """Add the state of the operator."""
        self.board = raw

    def learn_job(self, raw: RawObject) -> None:
        """Add a batch Job. Raises ``MalformedError``."""
        metadata = mapping(raw, "metadata")
        namespace, name = text(metadata, "namespace", path="metadata.") or "default", text(metadata, "name", path="metadata.")
        self.jobs[f"{namespace}/{name}"] = job_counts_from(dict(raw))

    def learn_owner(self, group: str, kind: str, raw: RawObject) -> None:
        """Add an object of any kind if it states the walltime of the pods that it owns. Raises ``MalformedError``."""
        owner_kind = owner_kind_of(group, kind)
        if owner_kind is not None and not (owner := owner_kind.read(raw)).is_empty:
            self.owners.append(owner)

    def learn_from_pod(self, raw: RawObject, pod: Pod) -> None:
        """Collect what a raw pod shows about the cluster: flags of job operators, a refusal by a scheduler, and a PriorityClass."""
        if not pod.is_terminal:
            self.gang_schedulers.update(flags_of(raw))
        if pod.is_candidate and (refusal := _refusal_in(raw)) is not None:
            self.refused[pod.key] = refusal
        with suppress(MalformedError):
            self.priorities.learn_from_pod(raw)


def read_cluster(paths: Iterable[str], reading: Reading) -> Cluster:
    """Return the cluster that files hold, such as the output of ``kubectl get nodes,pods -A -o json``.

    Raises ``ManifestError``.
    """
    found, paths = Cluster(reading), tuple(paths)
    documents = list(read_documents(paths))
    learners = found.learners
    for document in documents:
        raw = dict(document.raw)
        try:
            if document.kind == "Node":
                found.nodes.append(node_from(raw))
            elif document.kind == "Pod":
                raw = {**raw, "spec": default_requests(mapping(raw, "spec"))}
                pod = found.pod_from(raw)
                if found.is_ours(pod) and not pod.malformed.startswith("metadata."):  # no cluster accepts such a spec
                    refuse_malformed(pod, document.origin)
                found.pods.append(pod)
                found.learn_from_pod(raw, pod)
            elif (document.group, document.kind) == POD_GROUP:
                found.pod_groups.append(Expanded(raw_pod_group(document, *identity_of(document, "default")), document.origin))
            else:
                learn = learners.get((document.group, document.kind)) or partial(found.learn_owner, document.group, document.kind)
                learn(raw)
        except MalformedError as error:
            raise document.origin.blame(error) from error
    found.storage.is_known = any((document.group, document.kind) in STORED_KINDS for document in documents)
    if documents and not found.nodes:  # kubectl writes an empty list for an empty cluster
        raise ManifestError(", ".join(paths), 0, "", "holds no nodes; a snapshot is the output of `kubectl get nodes,pods -A -o json`")
    return found


def _refusal_in(raw: RawObject) -> str | None:
    """Return the message of a scheduler that the pod is unschedulable; None if there is no such condition."""
    with suppress(MalformedError):
        for path, condition in items(mapping(raw, "status"), "conditions", "status."):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return text(condition, "message", path=path)
    return None
