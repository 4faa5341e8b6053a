"""Reads the manifests of ``allaboard plan``.

They become the raw pods and PodGroups that an API server would hold after ``kubectl apply``, in the order of the files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from allaboard.cluster.stored_kinds import STORED_KINDS
from allaboard.model.errors import MalformedError, shown
from allaboard.model.pod import Pod, pod_from
from allaboard.model.raw_fields import mapping, text
from allaboard.model.requests import RawObject
from allaboard.model.times import api_time
from allaboard.whatif.documents import Document, ManifestError, Origin, read_documents
from allaboard.whatif.kinds import creates_no_pods, is_cluster_scoped, why_not_expanded
from allaboard.whatif.podsets import one_of, refuse_many
from allaboard.whatif.priorities import PRIORITY_CLASS, Priorities
from allaboard.whatif.quotas import LIMIT_RANGE, RESOURCE_QUOTA, Quotas
from allaboard.whatif.runtimeclasses import RUNTIME_CLASS, RuntimeClasses
from allaboard.whatif.schemas import CUSTOM_RESOURCE_DEFINITION, Schemas
from allaboard.whatif.steps import PIPELINE, unfolded
from allaboard.whatif.workloads import JOB, MAX_PODS, PodSet, RawPod, Workload, expanded_kinds, expander, made_up_uid

__all__ = ["Expanded", "ManifestError", "Manifests", "Origin", "read_manifests"]

_POD = ("", "Pod")
POD_GROUP = ("scheduling.x-k8s.io", "PodGroup")
_USED = (PRIORITY_CLASS, RUNTIME_CLASS, LIMIT_RANGE, RESOURCE_QUOTA, ("", "Namespace"), *STORED_KINDS)
_NAME_LIMITS = {JOB: 63, ("batch", "CronJob"): 52}
"""Greatest length of an object's name, by kind. Pods of these kinds repeat the name in a label, or in a longer name of their own."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A raw pod or PodGroup, and its location in a file. For a pod that a workload creates, the location is that of the pod template.

    ``workload`` is the object that creates the pod; None for a bare pod or a PodGroup. ``after`` is how many earlier pods of the workload
    must be Ready before the pod is created. ``position`` is the position among all pods and PodGroups, in the order of the files. ``doubt``
    is why it isn't known whether the pod would start by itself; empty if that is known. ``claims`` are the claims that the workload makes
    for the pod.
    """

    raw: dict[str, Any]
    origin: Origin
    workload: Workload | None = None
    position: int = 0
    after: int = 0
    doubt: str = ""
    claims: tuple[Mapping[str, Any], ...] = ()


@dataclass(slots=True)
class Manifests:
    """All objects that were read from manifests.

    ``planned`` are the objects from which ``pods`` and ``pod_groups`` come. ``quotas`` are LimitRanges and ResourceQuotas, ``definitions``
    CustomResourceDefinitions, and ``namespaces`` the names of Namespaces. ``podless`` are all objects that create no pods. ``unknown`` are
    objects of other kinds, which may create pods, each with its namespace and name. ``notes`` inform the user about objects left out.
    ``storage`` are claims, volumes and storage classes, by group and kind, and ``namespace_objects`` the Namespaces.
    """

    pods: list[Expanded] = field(default_factory=list)
    pod_groups: list[Expanded] = field(default_factory=list)
    priorities: Priorities = field(default_factory=Priorities)
    runtimes: RuntimeClasses = field(default_factory=RuntimeClasses)
    quotas: Quotas = field(default_factory=Quotas)
    notes: list[str] = field(default_factory=list)
    planned: list[Document] = field(default_factory=list)
    definitions: list[Document] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=set)
    namespace_objects: list[RawObject] = field(default_factory=list)
    podless: list[Document] = field(default_factory=list)
    unknown: list[tuple[Document, tuple[str, str]]] = field(default_factory=list)
    storage: list[tuple[tuple[str, str], RawObject]] = field(default_factory=list)


def read_manifests(paths: Iterable[str], namespace: str = "default") -> Manifests:
    """Return the pods and PodGroups that the files would create; ``namespace`` is for objects that name none.

    Raises ``ManifestError``, also for values that only a scheduler reads, such as quantities and affinities. Unknown kinds and fields are
    refused later, by ``refuse_mistakes``, when the kinds of the cluster are known.
    """
    found = Manifests()
    known: dict[tuple[str, str, str], Expanded] = {}
    documents = list(_last_of_each(list(read_documents(paths)), namespace, found.notes))
    for document in documents:
        _learn(document, namespace, found)
    for document in documents:
        try:
            if _is_planned(document):
                found.planned.append(document)
                for each in unfolded(document, namespace):
                    _add(each, namespace, found, known)
            else:
                _skip(document, namespace, found)
        except ManifestError:
            _check_fields(document, Schemas())  # a mistyped field may be why another field is missing
            raise
    return found


def refuse_mistakes(manifests: Manifests, definitions: Iterable[RawObject], *, are_all: bool, skip_unknown: bool) -> None:
    """Refuse fields that a kind doesn't have, and unknown kinds, which may create pods.

    ``definitions`` are CustomResourceDefinitions of the cluster; with ``are_all`` the cluster has no other definitions. With
    ``skip_unknown``, objects of unknown kinds are left out with a note. Raises ``ManifestError``.
    """
    schemas = Schemas()
    for definition in definitions:
        with suppress(MalformedError):  # the definition is the cluster's, and can't be fixed in the manifests
            schemas.learn(definition)
    for document in manifests.definitions:
        try:
            schemas.learn(document.raw)
        except MalformedError as error:
            raise document.origin.blame(error) from error
    for document in manifests.planned:
        if are_all and not schemas.is_defined(document):
            problem = f"the cluster doesn't serve {document.kind} ({document.api_version}): its CustomResourceDefinition isn't installed"
            raise document.origin.error("kind", problem)
        _check_fields(document, schemas)
    for document in manifests.podless:
        _check_fields(document, schemas)
    for document, (namespace, name) in manifests.unknown:
        if not skip_unknown:
            raise document.origin.error("kind", why_not_expanded(document, expanded_kinds()))
        title = titled(document.qualified_kind, "" if schemas.is_cluster_scoped(document) else namespace, name)
        manifests.notes.append(f"skipped {title}: it isn't known which pods objects of this kind create")


def _check_fields(document: Document, schemas: Schemas) -> None:
    try:
        schemas.check(document)
    except MalformedError as error:
        raise document.origin.blame(error) from error


def _is_planned(document: Document) -> bool:
    """Return whether an object is a pod or a PodGroup, or is expanded into pods."""
    return (document.group, document.kind) in (_POD, POD_GROUP, PIPELINE) or expander(document) is not None


def _learn(document: Document, namespace: str, found: Manifests) -> None:
    """Collect what an object such as a PriorityClass states for other objects, which may precede it. Raises ``ManifestError``."""
    kind = (document.group, document.kind)
    try:
        if kind == PRIORITY_CLASS:
            found.priorities.learn(document.raw)
        elif kind == RUNTIME_CLASS:
            found.runtimes.learn(document.raw)
        elif kind == CUSTOM_RESOURCE_DEFINITION:
            found.definitions.append(document)
        elif kind == LIMIT_RANGE:
            found.quotas.learn_limits(_with_namespace(document, namespace))
        elif kind == RESOURCE_QUOTA:
            found.quotas.learn_quota(_with_namespace(document, namespace))
        elif kind in STORED_KINDS:
            found.storage.append((kind, _with_namespace(document, namespace)))
        elif kind == ("", "Namespace"):
            found.namespaces.add(identity_of(document, "")[1])
            found.namespace_objects.append(document.raw)
    except MalformedError as error:
        _check_fields(document, Schemas())  # a mistyped field may be the cause
        raise document.origin.blame(error) from error


def _with_namespace(document: Document, namespace: str) -> RawObject:
    """Return an object with the namespace in which it would be created."""
    metadata = mapping(document.raw, "metadata")
    return {**document.raw, "metadata": {**metadata, "namespace": identity_of(document, namespace)[0]}}


def _skip(document: Document, namespace: str, found: Manifests) -> None:
    """Record an object that creates no pods, with a note, or an object of an unknown kind. Raises ``ManifestError``."""
    try:
        if not document.api_version:
            raise MalformedError("apiVersion", "is missing")
        identity = identity_of(document, namespace)
    except MalformedError as error:
        raise document.origin.blame(error) from error
    kind = document.group, document.kind
    if not creates_no_pods(*kind):
        found.unknown.append((document, identity))
        return
    found.podless.append(document)
    if kind not in _USED:
        title = titled(document.qualified_kind, *identity)
        found.notes.append(f"skipped {title}: objects of this kind are not expanded into pods")


def _last_of_each(documents: Sequence[Document], namespace: str, notes: list[str]) -> Iterator[Document]:
    """Yield the objects except those that a later file states again, since ``kubectl apply`` ends with the later one. Note each omission.

    Raises ``ManifestError`` for an object that one file states twice.
    """
    last: dict[tuple[str, str, str, str], Document] = {}
    everything = [(document, _identity(document, namespace)) for document in documents]
    for document, identity in everything:
        if identity is None:
            continue
        earlier = last.get(identity)
        if earlier and earlier.origin.file == document.origin.file and _is_planned(document):
            raise _duplicate(titled(document.kind, *identity[2:]), document.origin, earlier.origin)
        last[identity] = document
    for document, identity in everything:
        if identity is None or (final := last[identity]).origin.file == document.origin.file:
            yield document
        else:
            title = titled(document.kind, *identity[2:])
            notes.append(f"{title} is stated in {document.origin.file} and in {final.origin.file}; the latter counts")


def _duplicate(title: str, place: Origin, earlier: Origin) -> ManifestError:
    return place.error("metadata.name", f"{title} is stated twice; first in {earlier.file}, document {earlier.document}")


def _identity(document: Document, namespace: str) -> tuple[str, str, str, str] | None:
    """Return the group, kind, namespace and name of an object of the manifests; ``None`` for a generated or unusable name."""
    with suppress(MalformedError):
        if text(mapping(document.raw, "metadata"), "name", path="metadata."):
            return (document.group, document.kind, *identity_of(document, namespace))
    return None


def _add(document: Document, namespace: str, found: Manifests, known: dict[tuple[str, str, str], Expanded]) -> None:
    """Add the pods and PodGroups of a document to ``found`` and to ``known``, which has all so far. Raises ``ManifestError``."""
    try:
        for each in _expanded(document, namespace, len(known), found.notes):
            expanded = replace(each, position=len(known) + 1)
            metadata = expanded.raw["metadata"]
            _claim_name(expanded, known)
            (found.pods if expanded.raw["kind"] == "Pod" else found.pod_groups).append(expanded)
            if len(found.pods) > MAX_PODS:
                raise document.origin.error("", f"brings the plan to more than {MAX_PODS} pods")
            if not metadata.get("creationTimestamp"):
                metadata["creationTimestamp"] = api_time(expanded.position)
    except MalformedError as error:
        raise document.origin.blame(error) from error


def refuse_malformed(pod: Pod, origin: Origin) -> None:
    """Raise ``ManifestError`` if the scheduler can't use the pod."""
    if pod.malformed:
        where, _, problem = pod.malformed.partition(": ")
        raise origin.error(where, problem)


def _refuse_unusable(raw: RawObject, origin: Origin) -> None:
    """Raise ``ManifestError`` if the scheduler can't use a raw pod."""
    try:
        refuse_malformed(pod_from(raw), origin)
    except MalformedError as error:
        raise origin.blame(error) from error


def _expanded(document: Document, namespace: str, position: int, notes: list[str]) -> Iterator[Expanded]:
    """Yield the pods and PodGroups of one document.

    Raises ``ManifestError``, and ``MalformedError`` with paths within the document.
    """
    if not document.api_version:
        raise MalformedError("apiVersion", "is missing")
    namespace, name = identity_of(document, namespace, position)
    title = f"{document.kind} {namespace}/{name}"
    expand = expander(document)
    _check_name("metadata.name", name, _NAME_LIMITS.get((document.group, document.kind), 253))
    _check_name("metadata.namespace", namespace, 63)
    if (document.group, document.kind) == POD_GROUP:
        yield Expanded(raw_pod_group(document, namespace, name), document.origin)
        return
    if expand:
        workload = Workload(document, namespace, name)
        pod_sets = list(expand(document, namespace, name))
        refuse_many(pod_sets)
        expanded = [pod for pod_set in pod_sets for pod in _pods(pod_set, workload)]
    else:
        expanded = [Expanded(_pod(document, namespace, name), document.origin)]
    if not expanded:
        notes.append(f"{title} has no pods: it is suspended or scaled to zero")
    yield from expanded


def _pods(pod_set: PodSet, workload: Workload) -> Iterator[Expanded]:
    """Yield the pods of a set. Only the first pod is checked, since the pods differ only in the names and labels added here."""
    origin = workload.document.origin.inside(pod_set.path)
    try:
        for index, pod in enumerate(pod_set.pods(workload.namespace)):
            if index == 0:
                _refuse_unusable(pod, origin)
            yield Expanded(pod, origin, workload, after=pod_set.after(index), claims=pod_set.claims_of(pod))
    except MalformedError as error:
        raise origin.blame(error) from error


def _pod(document: Document, namespace: str, name: str) -> RawPod:
    """Return a bare pod as the API server would hold it. A pod that comes from a cluster keeps its UID, owners, node and status."""
    pod_set = PodSet("", document.raw, 1, None, lambda index: name, lambda index: {})
    [pod] = pod_set.pods(namespace)
    one_of(pod["spec"], "restartPolicy", "spec.", ("Always", "OnFailure", "Never"), "Always")
    stated = {key: value for key, value in document.raw["metadata"].items() if value is not None}
    raw = {**pod, "metadata": {**pod["metadata"], **stated, "name": name, "namespace": namespace}}
    if mapping(document.raw, "status"):
        raw["status"] = document.raw["status"]
    _refuse_unusable(raw, document.origin)
    return raw


def raw_pod_group(document: Document, namespace: str, name: str) -> dict[str, Any]:
    """Return a PodGroup as the API server would hold it. Raises ``MalformedError``."""
    metadata = document.raw["metadata"]
    uid = text(metadata, "uid", path="metadata.") or made_up_uid(namespace, name, "PodGroup")
    return {**document.raw, "metadata": {**metadata, "namespace": namespace, "name": name, "uid": uid}}


def identity_of(document: Document, namespace: str, position: int = 0) -> tuple[str, str]:
    """Return an object's namespace, empty for a cluster-scoped kind, and its name; a generated name ends in ``position``.

    Raises ``MalformedError``.
    """
    metadata = mapping(document.raw, "metadata")
    name = text(metadata, "name", path="metadata.")
    if not name and (prefix := text(metadata, "generateName", path="metadata.")):
        name = f"{prefix}{position}"
    if not name:
        raise MalformedError("metadata.name", "is missing")
    if is_cluster_scoped(document.group, document.kind):
        return "", name
    return text(metadata, "namespace", path="metadata.") or namespace, name


def titled(kind: str, namespace: str, name: str) -> str:
    """Return e.g. ``Job default/train``, or ``Namespace team`` for an object without a namespace."""
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _check_name(field_path: str, name: str, limit: int) -> None:
    if len(name) > limit or not _NAME.fullmatch(name):
        raise MalformedError(field_path, f"{shown(name)} is not a valid name: at most {limit} characters of a-z, 0-9, '-' and '.'")


def _claim_name(expanded: Expanded, known: dict[tuple[str, str, str], Expanded]) -> None:
    """Record the name of an object. If another object has the name, rename one of the two whose name is random.

    Raises ``ManifestError`` if neither name is random.
    """
    identity = _key(expanded)
    earlier = known.setdefault(identity, expanded)
    if earlier is expanded:
        return
    renamed = next((each for each in (expanded, earlier) if each.workload and each.workload.is_named_at_random), None)
    if renamed is None:
        raise _duplicate(f"{identity[0]} {identity[1]}/{identity[2]}", _document_of(expanded), _document_of(earlier))
    known[identity] = earlier if renamed is expanded else expanded
    metadata, number = renamed.raw["metadata"], 1
    while (identity[0], identity[1], f"{identity[2]}-{number}") in known:
        number += 1
    metadata["name"] = f"{identity[2]}-{number}"
    metadata["uid"] = made_up_uid(identity[1], metadata["name"])
    known[_key(renamed)] = renamed


def _document_of(expanded: Expanded) -> Origin:
    return expanded.workload.document.origin if expanded.workload else expanded.origin


def _key(expanded: Expanded) -> tuple[str, str, str]:
    metadata = expanded.raw["metadata"]
    return expanded.raw["kind"], metadata["namespace"], metadata["name"]
