"""Why a node can't take a pod, as a value: the filters give it, what is woken goes by it, and ``report.words`` makes a sentence of it."""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What kept a pod off a node, by the rule that refused it."""

    UNSCHEDULABLE = "unschedulable"  # cordoned
    NOT_READY = "not ready"
    TAINT = "taint"  # ``subject`` is its key, ``value`` its value
    AFFINITY = "affinity"
    VOLUMES = "volumes"
    AVOIDED = "avoided"  # the anti-affinity of pods that are there
    APART = "apart"  # another domain than that of the members that are bound
    TOPOLOGY = "topology"  # a domain that doesn't take all who must share one
    UNLABELLED = "unlabelled"  # without the label ``subject``
    PORTS = "ports"
    ATTACHMENTS = "attachments"  # as many volumes of a driver as the node can attach
    SHARING = "sharing"  # no driver that hands out what is asked of GPUs; ``subject`` is whose words it is asked in
    GPU_TOO_SMALL = "gpu too small"  # there is such a driver, and no device of its that has as much memory
    GPU_CONTAINER = "gpu container"  # there is one, which gives whole GPUs to the container alone that requests them
    GPU_NUMBER = "gpu number"  # too few GPUs, by a number that isn't charged
    GPU_MODEL = "gpu model"  # too few GPUs of the model
    GPU_MEMORY_EACH = "gpu memory each"  # or with as much memory each
    GPU_MEMORY_TOTAL = "gpu memory total"  # or with as much together
    GPU_MODEL_UNKNOWN = "gpu model unknown"  # there may be enough GPUs of the model, but nothing tells the model of some
    GPU_MEMORY_UNKNOWN = "gpu memory unknown"  # or their memory
    INSUFFICIENT = "insufficient"  # of the resource ``subject``; "pods" is one
    MIN_RESOURCES = "min resources"  # of all nodes together: less of ``subject`` is free than the PodGroup's minResources

    @property
    def is_of_gpus(self) -> bool:
        """Whether it may change with what is measured of GPUs."""
        return self in _OF_GPUS

    @property
    def is_movable(self) -> bool:
        """Whether any pod that goes may change it: one who must share a domain may lack something else in each of them."""
        return self not in _LASTING


# What is insufficient may change too, but only by pods that have of the resource.
_OF_GPUS = frozenset(
    (
        Kind.GPU_NUMBER,
        Kind.GPU_MODEL,
        Kind.GPU_MEMORY_EACH,
        Kind.GPU_MEMORY_TOTAL,
        Kind.GPU_MODEL_UNKNOWN,
        Kind.GPU_MEMORY_UNKNOWN,
    )
)
_LASTING = _OF_GPUS | frozenset(
    (
        Kind.UNSCHEDULABLE,
        Kind.NOT_READY,
        Kind.TAINT,
        Kind.AFFINITY,
        Kind.VOLUMES,
        Kind.APART,
        Kind.UNLABELLED,
        Kind.SHARING,
        Kind.GPU_TOO_SMALL,
        Kind.GPU_CONTAINER,
        Kind.INSUFFICIENT,
        Kind.MIN_RESOURCES,
    )
)


class Reason(NamedTuple):
    """One reason, and what it is about."""

    kind: Kind
    subject: str = ""
    value: str = ""


Counted = tuple[tuple[Reason, int], ...]
"""Reasons, each with the number of nodes that it keeps pods off, in no order that matters."""


class Code(StrEnum):
    """Why a gang isn't whole, or that it is, or has ended: the closed list of PodGroups' conditions and printer columns, and of metrics."""

    WAITING = "WaitingForMembers"
    HELD = "Held"  # somebody must mend it first
    INSUFFICIENT = "Insufficient"
    FRAGMENTED = "Fragmented"  # there is enough in sum, and not together
    NEVER_FITS = "NeverFits"  # not on empty nodes either
    CONSTRAINTS = "Constraints"  # not for want of room
    RETRYING = "Retrying"  # the attempt failed, not the gang
    SCHEDULED = "Scheduled"
    ENDED = "Ended"  # no member lives any more

    @property
    def is_waiting(self) -> bool:
        """Whether the gang isn't whole and is yet to be."""
        return self not in (Code.SCHEDULED, Code.ENDED)


class Cause(NamedTuple):
    """Why a gang has no room. ``requested`` and ``there`` are of ``resource``, in the units of ``model.requests``.

    With a rule ``MIN_RESOURCES`` they are of the PodGroup's minResources. Where no resource is named it is something else: of
    ``CONSTRAINTS`` ``rule`` says which, and is ``None`` where no node admits those who are needed; of ``NEVER_FITS`` it names the label of
    which no domain is large enough, and is ``None`` where the nodes are too small in a way that no single amount tells.
    """

    code: Code
    resource: str = ""
    requested: int = 0
    there: int = 0
    member: str = ""
    """UID of one that asks for ``requested`` by itself, and no node has more than ``there``; empty where all ask for that together."""
    rule: Reason | None = None
    node: str = ""
    """Where most of ``resource`` is free, for a single pod that asks for it by a number of GPUs; ``most`` is how much that is."""
    most: int = 0
    unwell: int = 0
    """Of how many of the nodes that it may use GPUs are left out for their errors, where GPUs are short."""
