"""The record of a node, read from its raw object."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from allaboard.model.errors import MalformedError
from allaboard.model.gpu_sharing import Shared, shared_by
from allaboard.model.raw_fields import boolean, integer, items, labels, mapping, text, texts
from allaboard.model.requests import RawObject, Requests, node_allocatable

HOSTNAME = "kubernetes.io/hostname"
"""The label that each node has with a value of its own."""

_SMALL_IMAGE = 23  # MiB; kube-scheduler ignores smaller images (imagelocality.go, minThreshold)


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node. ``effect`` is NoSchedule, NoExecute or PreferNoSchedule."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its name, the resources that it offers, and what decides which pods it admits.

    ``images`` has (name, MiB) of each image on the node's disk that is large enough to count. ``shared`` are the node's GPUs if a driver
    hands out parts of them, else ``None``.
    """

    name: str
    uid: str
    allocatable: Requests
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    is_unschedulable: bool = False
    is_ready: bool = True
    images: tuple[tuple[str, int], ...] = ()
    shared: Shared | None = None


def node_from(raw: RawObject, intern: Callable[[tuple[str, int]], tuple[str, int]] = lambda image: image) -> Node:
    """Return the record of a raw Node. A node that reports no Ready condition is not ready. Raises ``MalformedError``.

    ``intern`` returns one object for equal images, since thousands of nodes have the same images.
    """
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
        images=tuple(sorted(map(intern, _images(raw)))),
        shared=shared_by(mapping(metadata, "annotations", "metadata.")),
    )


def _images(raw: RawObject) -> Iterator[tuple[str, int]]:
    for path, image in items(mapping(raw, "status"), "images", "status."):
        mebibytes = integer(image, "sizeBytes", path=path) >> 20
        if mebibytes >= _SMALL_IMAGE:
            yield from ((name, mebibytes) for name in texts(image, "names", path))
