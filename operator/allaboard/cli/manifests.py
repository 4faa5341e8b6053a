"""The manifests that a user hands to ``allaboard plan``.

They become the raw pods and PodGroups that an API server would hold after ``kubectl apply``, in the order of the files.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from allaboard.cli.documents import Document, ManifestError, Origin, read_documents
from allaboard.cli.priorities import PRIORITY_CLASS, Priorities
from allaboard.cli.steps import unfolded
from allaboard.cli.workloads import MAX_PODS, PodSet, RawPod, Workload, expander, made_up_uid
from allaboard.model.errors import MalformedError, shown
from allaboard.model.fields import mapping, text
from allaboard.model.pod import Pod, pod_from
from allaboard.model.requests import RawObject

__all__ = ["Expanded", "ManifestError", "Manifests", "Origin", "read_manifests"]

_POD = ("", "Pod")
POD_GROUP = ("scheduling.x-k8s.io", "PodGroup")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A raw object and where it comes from; the origin of a workload's pod leads to the pod template.

    ``workload`` is what makes the pod, if anything does. ``position`` tells objects of one kind and of another in the order of the files.
    """

    raw: dict[str, Any]
    origin: Origin
    workload: Workload | None = None
    position: int = 0


@dataclass(slots=True)
class Manifests:
    """Everything read, PriorityClasses as ``priorities``. ``notes`` are sentences about what was left out or assumed, for people."""

    pods: list[Expanded] = field(default_factory=list)
    pod_groups: list[Expanded] = field(default_factory=list)
    priorities: Priorities = field(default_factory=Priorities)
    notes: list[str] = field(default_factory=list)


def read_manifests(paths: Iterable[str], namespace: str = "default") -> Manifests:
    """The pods and PodGroups that the files would bring about; ``namespace`` is for objects that name none.

    Raises ``ManifestError``, also for what only a scheduler reads, such as quantities and affinities.
    """
    found = Manifests()
    known: dict[tuple[str, str, str], Origin] = {}
    documents = chain.from_iterable(unfolded(document, namespace) for document in read_documents(paths))
    for position, document in enumerate(documents):
        try:
            if (document.group, document.kind) == PRIORITY_CLASS:
                found.priorities.learn(document.raw)
                continue
            for expanded in _objects(document, namespace, position, found.notes):
                _claim_name(expanded, document.origin, known)
                kept = found.pods if expanded.raw["kind"] == "Pod" else found.pod_groups
                kept.append(replace(expanded, position=len(known)))
                if len(found.pods) > MAX_PODS:
                    raise document.origin.error("", f"brings the plan to more than {MAX_PODS} pods")
                metadata = expanded.raw["metadata"]
                if not metadata.get("creationTimestamp"):
                    metadata["creationTimestamp"] = _time(len(known))
        except MalformedError as error:
            raise document.origin.blame(error) from error
    return found


def refuse_malformed(pod: Pod, origin: Origin) -> None:
    """Raises ``ManifestError`` when the scheduler could not use the pod."""
    if pod.malformed:
        where, _, problem = pod.malformed.partition(": ")
        raise origin.error(where, problem)


def _refuse_unusable(raw: RawObject, origin: Origin) -> None:
    """Raises ``ManifestError`` when the scheduler could not use a raw pod."""
    try:
        refuse_malformed(pod_from(raw), origin)
    except MalformedError as error:
        raise origin.blame(error) from error


def _objects(document: Document, namespace: str, position: int, notes: list[str]) -> Iterator[Expanded]:
    """The pods and PodGroups of one document. Raises ``ManifestError``, and ``MalformedError`` with paths within the document."""
    if not document.api_version:
        raise MalformedError("apiVersion", "is missing")
    namespace, name = identity_of(document, namespace, position)
    title = f"{document.kind} {namespace}/{name}"
    kind = (document.group, document.kind)
    expand = expander(document)
    if kind not in (_POD, POD_GROUP) and expand is None:
        notes.append(f"skipped {document.qualified_kind} {namespace}/{name}: objects of this kind are not expanded into pods")
        return
    _check_name("metadata.name", name, 253)
    _check_name("metadata.namespace", namespace, 63)
    if kind == POD_GROUP:
        yield Expanded(raw_pod_group(document, namespace, name), document.origin)
        return
    if expand:
        workload = Workload(document, namespace, name)
        expanded = [pod for pod_set in expand(document, namespace, name) for pod in _pods(pod_set, workload)]
    else:
        expanded = [Expanded(_pod(document, namespace, name), document.origin)]
    if not expanded:
        notes.append(f"{title} has no pods: it is suspended or scaled to zero")
    yield from expanded


def _pods(pod_set: PodSet, workload: Workload) -> Iterator[Expanded]:
    """The pods of a set; the first is checked for all, since only names and labels of ours differ."""
    origin = workload.document.origin.inside(pod_set.path)
    try:
        for index, pod in enumerate(pod_set.pods(workload.namespace)):
            if index == 0:
                _refuse_unusable(pod, origin)
            yield Expanded(pod, origin, workload)
    except MalformedError as error:
        raise origin.blame(error) from error


def _pod(document: Document, namespace: str, name: str) -> RawPod:
    """A pod as the API server would hold it. One that comes from a cluster keeps its UID, its owners, its node and its status."""
    pod_set = PodSet("", document.raw, 1, None, lambda index: name, lambda index: {})
    [pod] = pod_set.pods(namespace)
    stated = {key: value for key, value in document.raw["metadata"].items() if value is not None}
    raw = {**pod, "metadata": {**pod["metadata"], **stated, "name": name, "namespace": namespace}}
    if mapping(document.raw, "status"):
        raw["status"] = document.raw["status"]
    _refuse_unusable(raw, document.origin)
    return raw


def raw_pod_group(document: Document, namespace: str, name: str) -> dict[str, Any]:
    """A PodGroup as the API server would hold it. Raises ``MalformedError``."""
    metadata = document.raw["metadata"]
    uid = text(metadata, "uid", path="metadata.") or made_up_uid(namespace, name, "PodGroup")
    return {**document.raw, "metadata": {**metadata, "namespace": namespace, "name": name, "uid": uid}}


def identity_of(document: Document, namespace: str, position: int = 0) -> tuple[str, str]:
    """Namespace and name; ``position`` stands for the random end of a generated name. Raises ``MalformedError``."""
    metadata = mapping(document.raw, "metadata")
    name = text(metadata, "name", path="metadata.")
    if not name and (prefix := text(metadata, "generateName", path="metadata.")):
        name = f"{prefix}{position}"
    if not name:
        raise MalformedError("metadata.name", "is missing")
    return text(metadata, "namespace", path="metadata.") or namespace, name


def _check_name(field_path: str, name: str, limit: int) -> None:
    if len(name) > limit or not _NAME.fullmatch(name):
        raise MalformedError(field_path, f"{shown(name)} is no valid name: at most {limit} of a-z, 0-9, '-' and '.'")


def _claim_name(expanded: Expanded, document: Origin, known: dict[tuple[str, str, str], Origin]) -> None:
    kind, metadata = expanded.raw["kind"], expanded.raw["metadata"]
    identity = (kind, metadata["namespace"], metadata["name"])
    if earlier := known.get(identity):
        problem = f"{kind} {identity[1]}/{identity[2]} is stated twice; first in {earlier.file}, document {earlier.document}"
        raise document.error("metadata.name", problem)
    known[identity] = document


def _time(position: int) -> str:
    """A creation time that keeps objects in the order of the files."""
    return datetime.fromtimestamp(position, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
