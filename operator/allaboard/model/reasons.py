"""Reasons why nodes refuse pods, as values. Filters return reasons, wake-ups depend on them, and ``report.messages`` words them."""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """The rule by which a node refused a pod."""

    UNSCHEDULABLE = "unschedulable"  # Cordoned.
    NOT_READY = "not ready"
    TAINT = "taint"  # ``subject`` is the key of the taint, ``value`` its value.
    AFFINITY = "affinity"
    VOLUMES = "volumes"
    CLAIM_IN_USE = "claim in use"  # Another pod uses a claim that only one pod may use (ReadWriteOncePod).
    NO_VOLUME = "no volume"  # No volume is free there for a claim, and none can be provisioned.
    NO_STORAGE = "no storage"  # A volume would be provisioned there, but too little storage is left.
    RESOURCE_CLAIM = "resource claim"  # The devices of an allocated resource claim can't be used there.
    VOLUME_ZONE = "volume zone"  # A volume is in another zone.
    AVOIDED = "avoided"  # The anti-affinity of bound pods forbids the node's domain.
    ANTI_AFFINITY = "anti-affinity"  # A pod there is selected by the pod's required anti-affinity; ``subject`` is the label.
    POD_AFFINITY = "pod affinity"  # No pod is there that the pod's required affinity selects; ``subject`` is the label.
    SPREAD = "spread"  # Too many pods are there that the pod's topology spread counts; ``subject`` is the label.
    UNLABELLED_SPREAD = "unlabelled spread"  # The node has no label ``subject`` by which the pod is spread.
    APART = "apart"  # The node is not in the domain of the bound members.
    SEGMENTS = "segments"  # The node's domain can't take a whole segment of members.
    TOPOLOGY = "topology"  # The node's domain can't take all members that must share one.
    UNLABELLED = "unlabelled"  # The node has no label ``subject``.
    PORTS = "ports"
    ATTACHMENTS = "attachments"  # The node has as many volumes of a driver as it can attach.
    SHARING = "sharing"  # No driver hands out such parts of GPUs; ``subject`` is the driver whose resources the pod requests.
    GPU_TOO_SMALL = "gpu too small"  # The driver has no device with that much memory.
    GPU_CONTAINER = "gpu container"  # The driver gives whole GPUs only to the one container that requests them all.
    GPU_NUMBER = "gpu number"  # Too few GPUs, by a number that isn't charged.
    GPU_MODEL = "gpu model"  # Too few GPUs of the model.
    GPU_MEMORY_EACH = "gpu memory each"  # Too few GPUs with that much memory each.
    GPU_MEMORY_TOTAL = "gpu memory total"  # Too little memory of all GPUs together.
    GPU_MODEL_UNKNOWN = "gpu model unknown"  # There may be enough GPUs of the model, but the model of some is unknown.
    GPU_MEMORY_UNKNOWN = "gpu memory unknown"  # There may be enough memory, but the memory of some GPUs is unknown.
    INSUFFICIENT = "insufficient"  # Too little of the resource ``subject``, which may be "pods".
    RESERVED = "reserved"  # The capacity is kept for the gang ``subject``; only a gang as a whole is refused for this reason.
    MIN_RESOURCES = "min resources"  # All nodes together have less of ``subject`` free than the PodGroup's minResources.

    @property
    def is_of_gpus(self) -> bool:
        """Return whether new measurements of GPUs may remove the reason."""
        return self in _OF_GPUS

    @property
    def is_movable(self) -> bool:
        """Return whether any pod that leaves its node may remove the reason, whatever resources the pod has used.

        Example: members that must share a domain are refused for ``TOPOLOGY``, since each domain lacks some resource. A pod that ends may
        free it.
        """
        return self not in _LASTING


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
# INSUFFICIENT is lasting: only the departure of pods that use the resource may remove it.
_LASTING = _OF_GPUS | frozenset(
    (
        Kind.UNSCHEDULABLE,
        Kind.NOT_READY,
        Kind.TAINT,
        Kind.AFFINITY,
        Kind.VOLUMES,
        Kind.NO_VOLUME,
        Kind.NO_STORAGE,
        Kind.VOLUME_ZONE,
        Kind.RESOURCE_CLAIM,
        Kind.APART,
        Kind.UNLABELLED,
        Kind.UNLABELLED_SPREAD,
        Kind.SHARING,
        Kind.GPU_TOO_SMALL,
        Kind.GPU_CONTAINER,
        Kind.INSUFFICIENT,
        Kind.MIN_RESOURCES,
    )
)


class Reason(NamedTuple):
    """One reason why a node refuses a pod. ``Kind`` describes ``subject`` and ``value``; each is empty for kinds that don't need it."""

    kind: Kind
    subject: str = ""
    value: str = ""


Counted = tuple[tuple[Reason, int], ...]
"""Reasons in any order, each with the number of nodes that refuse pods for this reason."""


class Code(StrEnum):
    """The state of a gang: whole, or why it isn't whole.

    This is a closed list, which the conditions and columns of PodGroups and the metrics show.
    """

    WAITING = "WaitingForMembers"
    HELD = "Held"  # A user must correct an object first.
    INSUFFICIENT = "Insufficient"
    FRAGMENTED = "Fragmented"  # There is enough capacity in sum, but not on single nodes or in single domains.
    NEVER_FITS = "NeverFits"  # The gang doesn't fit empty nodes either.
    CONSTRAINTS = "Constraints"  # Rules refuse the gang, not a lack of capacity.
    RESERVED = "Reserved"  # There is enough capacity, but it is kept for gangs ahead in the queue.
    RETRYING = "Retrying"  # The attempt failed for a reason outside the gang.
    SCHEDULED = "Scheduled"
    ENDED = "Ended"  # No member is alive.

    @property
    def is_waiting(self) -> bool:
        """Return whether the gang isn't whole and still waits to become whole."""
        return self not in (Code.SCHEDULED, Code.ENDED)


class Cause(NamedTuple):
    """The reason why no capacity was found for a gang.

    ``requested`` and ``there`` are amounts of ``resource``, in the units of ``model.requests``. With the rule ``MIN_RESOURCES`` these are
    amounts of the PodGroup's minResources. If ``resource`` is empty, ``rule`` is the cause. For ``CONSTRAINTS``, ``rule`` is the rule
    without which the gang would fit, or ``None`` if nodes admit too few members. If the gang would only fit without several rules, the
    others are ``other_rules``. For ``RESERVED``, the rule's subject is the first gang in the queue whose
    capacity is kept. For ``NEVER_FITS``, the rules are those for which the gang doesn't fit on empty nodes. With the rule ``TOPOLOGY``, all
    domains of the label that is the rule's subject are too small. ``rule`` is ``None`` if the nodes are too small in a way that no single
    amount shows.
    """

    code: Code
    resource: str = ""
    requested: int = 0
    there: int = 0
    member: str = ""
    """UID of a member that requests ``requested`` by itself, while no node has more than ``there``; empty if several members count."""
    members: int = 0
    """The number of needed members of one role that request ``requested`` together; 0 if the members of all roles count."""
    rule: Reason | None = None
    other_rules: tuple[Reason, ...] = ()
    node: str = ""
    """The node with the largest free amount of ``resource``, which is ``most``; set only for a single pod that asks for a number of GPUs.
    """
    most: int = 0
    unwell: int = 0
    """The number of nodes with GPUs that are left out because of errors, among the nodes that the gang may use; set if GPUs are short."""
