"""Expands pod templates into the pods that a controller creates, and refuses templates that the API server refuses."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allaboard.model.errors import MalformedError, shown
from allaboard.model.limits import MEMBERS
from allaboard.model.raw_fields import LABEL_KEY, integer, items, labels, mapping, sequence, text
from allaboard.model.requests import default_requests
from allaboard.whatif.containers import refuse_containers
from allaboard.whatif.documents import Document

MAX_PODS = 20_000
"""The largest number of pods in a plan, which then takes about 15 s. One workload may have no more pods than a gang may have members."""

_LABEL_VALUE = re.compile(r"(?=.{0,63}\Z)(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

RawPod = dict[str, Any]
Labels = dict[str, str]


def at_once(index: int) -> int:
    """Return 0: a pod is created without waiting for earlier pods."""
    return 0


@dataclass(frozen=True, slots=True)
class PodSet:
    """``count`` pods of one template. ``path`` leads to the template inside the workload, with a dot at the end.

    ``name`` and ``labels`` return the name and the labels of a pod, by its index. ``after`` returns how many earlier pods of the workload
    must be Ready before the controller creates the pod; 0 for pods that are created at once. ``claims`` are templates of claims, of which
    each pod gets one.
    """

    path: str
    template: Mapping[str, Any]
    count: int
    owner: Mapping[str, Any] | None
    name: Callable[[int], str]
    labels: Callable[[int], Labels]
    claims: tuple[Mapping[str, Any], ...] = ()
    after: Callable[[int], int] = at_once

    def pods(self, namespace: str) -> Iterator[RawPod]:
        """Yield the raw pods; requests default to limits, as in the API server. Raises ``MalformedError`` with paths within a pod."""
        stated = mapping(self.template, "spec")
        if not sequence(stated, "containers", "spec."):
            raise MalformedError("spec.containers", "is missing; a pod needs at least one container")
        refuse_containers(stated)
        _check_tolerations(stated)
        _check_topology_keys(stated)
        spec = default_requests(stated)
        metadata = mapping(self.template, "metadata")
        template_labels = labels(metadata, "labels", "metadata.")
        annotations = labels(metadata, "annotations", "metadata.")
        _check_labels(template_labels)
        for index in range(self.count):
            name = self.name(index)
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": made_up_uid(namespace, name),
                    "labels": {**template_labels, **self.labels(index)},
                    "annotations": annotations,
                    "ownerReferences": [self.owner] if self.owner else [],
                },
                "spec": self._with_claims(spec, name),
                "status": {"phase": "Pending"},
            }

    def claims_of(self, pod: RawPod) -> tuple[Mapping[str, Any], ...]:
        """Return the claims that the controller makes for a pod of the set."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        return tuple(
            {"metadata": {"name": f"{claim['metadata']['name']}-{name}", "namespace": namespace}, "spec": mapping(claim, "spec")}
            for claim in self.claims
        )

    def _with_claims(self, spec: dict[str, Any], pod_name: str) -> dict[str, Any]:
        if not self.claims:
            return spec
        names = [claim["metadata"]["name"] for claim in self.claims]
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}} for name in names]
        return {**spec, "volumes": [*sequence(spec, "volumes", "spec."), *volumes]}


def ephemeral_claims_of(pod: RawPod) -> Iterator[Mapping[str, Any]]:
    """Yield the claims that Kubernetes makes for the generic ephemeral volumes of a pod. Raises ``MalformedError``."""
    metadata = pod["metadata"]
    for path, volume in items(mapping(pod, "spec"), "volumes", "spec."):
        template = mapping(mapping(volume, "ephemeral", path), "volumeClaimTemplate", f"{path}ephemeral.")
        if template:
            name = f"{metadata['name']}-{text(volume, 'name', path=path)}"
            yield {"metadata": {"name": name, "namespace": metadata["namespace"]}, "spec": mapping(template, "spec", path)}


def _check_tolerations(spec: Mapping[str, object]) -> None:
    for path, toleration in items(spec, "tolerations", "spec."):
        operator = one_of(toleration, "operator", path, ("Equal", "Exists"), "Equal")
        one_of(toleration, "effect", path, ("NoSchedule", "PreferNoSchedule", "NoExecute"), "NoSchedule")
        if operator == "Exists" and toleration.get("value"):
            raise MalformedError(f"{path}value", "must be empty where the operator is Exists")


def _check_topology_keys(spec: Mapping[str, object]) -> None:
    """Refuse terms about other pods that the API server refuses, although kube-scheduler could use them. Raises ``MalformedError``."""
    seen: set[tuple[str, str]] = set()
    for path, constraint in items(spec, "topologySpreadConstraints", "spec."):
        key, when = _topology_key(constraint, path), text(constraint, "whenUnsatisfiable", path=path)
        if (key, when) in seen:
            raise MalformedError(f"{path}topologyKey", f"{shown(key)} has another constraint with {when or 'the same effect'} already")
        if when == "ScheduleAnyway" and constraint.get("minDomains") is not None:
            raise MalformedError(f"{path}minDomains", "may be stated with whenUnsatisfiable: DoNotSchedule only")
        seen.add((key, when))
    affinity = mapping(spec, "affinity", "spec.")
    for kind in ("podAffinity", "podAntiAffinity"):
        of_pods, place = mapping(affinity, kind, "spec.affinity."), f"spec.affinity.{kind}."
        for path, term in items(of_pods, "requiredDuringSchedulingIgnoredDuringExecution", place):
            _topology_key(term, path)
        for path, weighted in items(of_pods, "preferredDuringSchedulingIgnoredDuringExecution", place):
            _topology_key(mapping(weighted, "podAffinityTerm", path), f"{path}podAffinityTerm.")


def _topology_key(stated: Mapping[str, object], path: str) -> str:
    key = text(stated, "topologyKey", path=path)
    if not key:
        raise MalformedError(f"{path}topologyKey", "is missing")
    return key


def _check_labels(stated: Labels) -> None:
    for key, value in stated.items():
        if not re.fullmatch(LABEL_KEY, key):
            raise MalformedError("metadata.labels", f"{shown(key)} is not a valid key")
        if not _LABEL_VALUE.fullmatch(value):
            raise MalformedError(
                f"metadata.labels[{key}]", f"{shown(value)} is not a valid value: at most 63 letters, digits, '-', '_' and '.'"
            )


def made_up_uid(namespace: str, name: str, kind: str = "") -> str:
    """Return a UID that is the same in every plan, and that differs from every real UID."""
    return f"manifest:{namespace}/{kind}/{name}" if kind else f"manifest:{namespace}/{name}"


def count_of(parent: Mapping[str, object], key: str, default: int, path: str) -> int:
    """Return a number of pods. Raises ``MalformedError``, also for a negative number."""
    count = integer(parent, key, default, path)
    if count < 0:
        raise MalformedError(f"{path}{key}", f"{count} is negative")
    return count


def refuse_many(pod_sets: Sequence[PodSet]) -> None:
    """Raise ``MalformedError`` for a workload with more pods than a gang may have, before any pod is expanded."""
    count = sum(each.count for each in pod_sets)
    if count > MEMBERS.most:
        field = max(pod_sets, key=lambda each: each.count).path.removesuffix("template.").rstrip(".")
        raise MalformedError(field, f"{count} pods of one workload are more than the {MEMBERS.most} that are supported")


def pod_set(
    parent: Mapping[str, object],
    count: int,
    owner: Mapping[str, Any],
    *,
    name: Callable[[int], str],
    labels: Callable[[int], Labels] = lambda index: {},
    path: str = "spec.",
    claims: tuple[Mapping[str, Any], ...] = (),
    after: Callable[[int], int] = at_once,
    restart: Sequence[str] = (),
) -> PodSet:
    """Return ``count`` pods of the template of ``parent``; ``restart`` are the allowed values of ``restartPolicy``, empty for any.

    Raises ``MalformedError``.
    """
    template = mapping(parent, "template", path)
    if not template:
        raise MalformedError(f"{path}template", "is missing")
    _check_selector(parent, template, path)
    if restart:
        one_of(mapping(template, "spec", f"{path}template."), "restartPolicy", f"{path}template.spec.", restart, "Always")
    return PodSet(f"{path}template.", template, count, owner, name, labels, claims, after)


def one_of(parent: Mapping[str, object], key: str, path: str, known: Sequence[str], default: str) -> str:
    """Return the word under ``key``, or ``default`` if it is empty. Raises ``MalformedError`` for a word that isn't ``known``."""
    stated = text(parent, key, path=path)
    word = stated or default
    if word not in known:
        raise MalformedError(f"{path}{key}", f"{shown(word)}{'' if stated else ', the default,'} is not {' or '.join(known)}")
    return word


def _check_selector(parent: Mapping[str, object], template: Mapping[str, object], path: str) -> None:
    """Refuse a selector that doesn't select the template's pods, as the API server does. Raises ``MalformedError``."""
    selector, within = parent.get("selector"), f"{path}selector."
    if not isinstance(selector, Mapping) or "matchLabels" not in selector:  # a ReplicationController's selector has another form
        return
    stated = labels(mapping(template, "metadata", f"{path}template."), "labels", f"{path}template.metadata.")
    for key, value in labels(selector, "matchLabels", within).items():
        if stated.get(key) != value:
            raise MalformedError(f"{within}matchLabels[{key}]", f"{shown(value)} is not among the labels of the template's pods")


def owner_of(document: Document, namespace: str, name: str, kind: str = "") -> dict[str, Any]:
    """Return an owner reference to ``document`` as the controller of pods; ``kind`` replaces the kind of the document."""
    kind = kind or document.kind
    return {
        "apiVersion": document.api_version,
        "kind": kind,
        "name": name,
        "uid": text(mapping(document.raw, "metadata"), "uid", path="metadata.") or made_up_uid(namespace, name, kind),
        "controller": True,
        "blockOwnerDeletion": True,
    }
