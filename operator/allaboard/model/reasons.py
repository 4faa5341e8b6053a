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
    INSUFFICIENT = "insufficient"  # of the resource ``subject``; "pods" is one


class Reason(NamedTuple):
    """One reason, and what it is about."""

    kind: Kind
    subject: str = ""
    value: str = ""


Counted = tuple[tuple[Reason, int], ...]
"""Reasons, each with the number of nodes that it keeps pods off, in no order that matters."""
