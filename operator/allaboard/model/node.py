"""A node as the scheduler sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allaboard.model.errors import MalformedError
from allaboard.model.fields import boolean, items, labels, mapping, text
from allaboard.model.requests import RawObject, Requests, node_allocatable


@dataclass(frozen=True, slots=True)
class Taint:
    """``effect`` is NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node's name, what it offers and whom it admits."""

    name: str
    uid: str
    allocatable: Requests
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    is_unschedulable: bool = False
    is_ready: bool = True


def node_from(raw: RawObject) -> Node:
    """The record of a raw Node. A node that reports no Ready condition is not ready. Raises ``MalformedError``."""
    metadata = mapping(raw, "metadata")
    spec = mapping(raw, "spec")
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for _, condition in items(mapping(raw, "status"), "conditions", "status.")
    )
    name = text(metadata, "name", path="metadata.")
    if not name:
        raise MalformedError("metadata.name", "is missing")
    return Node(
        name=name,
        uid=text(metadata, "uid", path="metadata."),
        allocatable=node_allocatable(raw),
        labels=labels(metadata, "labels", "metadata."),
        taints=tuple(
            Taint(text(taint, "key", path=path), text(taint, "value", path=path), text(taint, "effect", path=path))
            for path, taint in items(spec, "taints", "spec.")
        ),
        is_unschedulable=boolean(spec, "unschedulable", "spec."),
        is_ready=ready,
    )
