"""The cluster that a plan starts from, and how files hold one."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from allaboard.gangs.job_counts import JobCounts, job_counts_from
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
from allaboard.whatif.workloads import JOB


@dataclass(slots=True)
class Cluster:
    """Nodes, pods, PodGroups, Jobs, classes, quotas and CustomResourceDefinitions. What is equal in pods is one object of ``intern``.

    ``gang_schedulers`` are the schedulers for which job operators make PodGroups, by API version of the jobs. ``refused`` are the pods (by
    ``namespace/name``) of which a scheduler has said that it can't seat them now: unlike others that wait, it looks for no seats for them.
    Pods are read by its ``reading``. ``has_all_definitions`` tells that there are no others.
    ``namespaces`` are all there are, None when that isn't known. ``jobs`` are batch
    Jobs, by ``namespace/name``, and ``cards`` what is measured of GPUs.
    """

    reading: Reading
    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    pod_groups: list[Expanded] = field(default_factory=list)
    intern: Interner = field(default_factory=Interner)
    gang_schedulers: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    priorities: Priorities = field(default_factory=Priorities)
    runtimes: RuntimeClasses = field(default_factory=RuntimeClasses)
    definitions: list[RawObject] = field(default_factory=list)
    has_all_definitions: bool = False
    namespaces: frozenset[str] | None = None
    jobs: dict[str, JobCounts] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=Quotas)
    cards: Cards = NO_CARDS

    def is_ours(self, pod: Pod) -> bool:
        """Whether it is one of ours to schedule."""
        return self.reading.ours is None or pod.scheduler_name in self.reading.ours

    def pod_from(self, raw: RawObject) -> Pod:
        """The record of one of its pods, whose gang and workload may be asked about whoever schedules it.

        What a pod of others takes is what the operator charges for it: what it asks for by labels of ours, it wasn't given.
        """
        pod = self.planned_from(raw)
        if self.is_ours(pod):
            return pod
        seen = pod_from(raw, self.intern, self.reading)
        return replace(pod, spec=seen.spec, devices=seen.devices, malformed=seen.malformed)

    def planned_from(self, raw: RawObject) -> Pod:
        """The record of a pod that would be made, as one of ours."""
        return pod_from(raw, self.intern, replace(self.reading, ours=None))

    def learn_job(self, raw: RawObject) -> None:
        """Take a batch Job. Raises ``MalformedError``."""
        metadata = mapping(raw, "metadata")
        namespace, name = text(metadata, "namespace", path="metadata.") or "default", text(metadata, "name", path="metadata.")
        self.jobs[f"{namespace}/{name}"] = job_counts_from(dict(raw))

    def heed(self, raw: RawObject, pod: Pod) -> None:
        """Take what a raw pod says of the cluster, beside what it is itself."""
        if not pod.is_terminal:
            self.gang_schedulers.update(flags_of(raw))
        if pod.is_candidate and _was_refused(raw):
            self.refused.add(pod.key)
        with suppress(MalformedError):
            self.priorities.learn_from_pod(raw)


def read_cluster(paths: Iterable[str], reading: Reading) -> Cluster:
    """The nodes, pods, PodGroups and PriorityClasses in files such as ``kubectl get nodes,pods -A -o json`` writes.

    Raises ``ManifestError``.
    """
    found, paths = Cluster(reading), tuple(paths)
    documents = list(read_documents(paths))
    for document in documents:
        raw = dict(document.raw)
        try:
            if document.kind == "Node":
                found.nodes.append(node_from(raw))
            elif document.kind == "Pod":
                raw = {**raw, "spec": default_requests(mapping(raw, "spec"))}
                pod = found.pod_from(raw)
                if found.is_ours(pod) and not pod.malformed.startswith("metadata."):  # what no cluster would have taken
                    refuse_malformed(pod, document.origin)
                found.pods.append(pod)
                found.heed(raw, pod)
            elif (document.group, document.kind) == POD_GROUP:
                found.pod_groups.append(Expanded(raw_pod_group(document, *identity_of(document, "default")), document.origin))
            elif (document.group, document.kind) == PRIORITY_CLASS:
                found.priorities.learn(raw)
            elif (document.group, document.kind) == LIMIT_RANGE:
                found.quotas.learn_limits(raw)
            elif (document.group, document.kind) == RESOURCE_QUOTA:
                found.quotas.learn_quota(raw)
            elif (document.group, document.kind) == JOB:
                found.learn_job(raw)
            elif (document.group, document.kind) == RUNTIME_CLASS:
                found.runtimes.learn(raw)
            elif (document.group, document.kind) == CUSTOM_RESOURCE_DEFINITION:
                found.definitions.append(raw)
        except MalformedError as error:
            raise document.origin.blame(error) from error
    if documents and not found.nodes:  # of a cluster without anything kubectl writes an empty list
        raise ManifestError(", ".join(paths), 0, "", "no nodes in it; a snapshot is what `kubectl get nodes,pods -A -o json` writes")
    return found


def _was_refused(raw: RawObject) -> bool:
    with suppress(MalformedError):
        conditions = items(mapping(raw, "status"), "conditions", "status.")
        return any(condition.get("type") == "PodScheduled" and condition.get("status") == "False" for _, condition in conditions)
    return False
