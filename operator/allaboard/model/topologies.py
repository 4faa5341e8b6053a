"""Names of topology levels, such as rack or NVLink domain, each with the node labels that may identify the level.

Clusters label the same level differently. A gang can ask for ``rack`` on any cluster: this means the first label of the level's list that
any node has. If any node has a label that is itself called ``rack``, this label is meant instead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from allaboard.model.limits import MEMBERS
from allaboard.model.raw_fields import LABEL_KEY

Levels = Mapping[str, tuple[str, ...]]

_TOPOGRAPH, _AWS, _GOOGLE = "network.topology.nvidia.com", "topology.k8s.aws/network-node-layer", "cloud.google.com/gce-topology"

_KUEUE = "cloud.provider.com/topology"  # as in Kueue's documentation
_SPINE = (f"{_TOPOGRAPH}/spine", f"{_TOPOGRAPH}/tier-1", f"{_AWS}-2", f"{_GOOGLE}-block")

LEVELS: Levels = {
    # GPU feature discovery's NVLink domain, and NVIDIA Topograph's.
    "nvlink": ("nvidia.com/gpu.clique", f"{_TOPOGRAPH}/accelerator"),
    "host": (f"{_GOOGLE}-host", "kubernetes.io/hostname"),
    # Topograph's levels, of several versions; EC2's instance topology, of which layer 3 is nearest to the node; GKE's compact placement.
    "rack": (
        "topology.kubernetes.io/rack",
        f"{_TOPOGRAPH}/leaf",
        f"{_TOPOGRAPH}/block",
        f"{_TOPOGRAPH}/tier-0",
        f"{_AWS}-3",
        f"{_GOOGLE}-subblock",
        f"{_KUEUE}-rack",
    ),
    "block": ("topology.kubernetes.io/block", f"{_KUEUE}-block", *_SPINE),
    "spine": _SPINE,
    "core": (f"{_TOPOGRAPH}/core", f"{_TOPOGRAPH}/datacenter", f"{_TOPOGRAPH}/tier-2", f"{_AWS}-1"),
    "zone": ("topology.kubernetes.io/zone",),
    "region": ("topology.kubernetes.io/region",),
}


NEAREST_FIRST = tuple(LEVELS)
"""The names of the levels, from the level nearest to a node to the farthest."""


@dataclass(frozen=True, slots=True)
class TopologyWish:
    """The value of the option ``topology``. Each level is the name of a level or a node label; empty if it isn't stated.

    ``preferred``: few domains of this level should be used. ``required``: all members must be in one domain of this level. Every
    ``segment`` members, in the order of their ranks, must be in one domain of ``segment_level``.
    """

    preferred: str = ""
    required: str = ""
    segment: int = 0
    segment_level: str = ""

    @property
    def levels(self) -> frozenset[str]:
        """The levels that are stated."""
        return frozenset({self.preferred, self.required, self.segment_level} - {""})


@lru_cache(maxsize=4096)
def topology_wish(value: str) -> TopologyWish:
    """Return what ``value`` asks for: ``rack``, or ``required=block, preferred=rack, segment=4@rack``. Raises ``ValueError``."""
    if "=" not in value:
        return TopologyWish(preferred=_level(value, value))
    found: dict[str, str] = {}
    for part in value.split(","):
        name, _, stated = (each.strip() for each in part.partition("="))
        if name not in ("required", "preferred", "segment") or name in found:
            raise ValueError(_not_of_the_form(value))
        found[name] = stated
    preferred, required = (_level(found[name], value) if name in found else "" for name in ("preferred", "required"))
    wish = TopologyWish(preferred, required)
    if "segment" not in found:
        return wish
    size, at, level = found["segment"].partition("@")
    if not at or not re.fullmatch("[1-9][0-9]{0,3}", size) or int(size) > MEMBERS.most:
        raise ValueError(f"segment={found['segment'][:64]!r} is not of the form 4@rack: a number of members, and a level")
    return TopologyWish(wish.preferred, wish.required, int(size), _level(level, value))


def _level(name: str, value: str) -> str:
    """Return ``name`` if it is the name of a level or a node label. Raises ``ValueError`` about the whole ``value`` if it isn't."""
    if not re.fullmatch(LABEL_KEY, name):
        raise ValueError(_not_of_the_form(value))
    return name


def _not_of_the_form(value: str) -> str:
    return f"{value[:64]!r} is neither a level, such as rack, nor of the form required=block, preferred=rack, segment=4@rack, each once"


def label_key(value: str) -> str:
    """Return ``value`` if it is a valid label key. Raises ``ValueError`` if it isn't."""
    if not re.fullmatch(LABEL_KEY, value):
        raise ValueError(f"{value[:64]!r} is not the key of a label")
    return value


def placeholder_label(name: str, levels: Levels) -> str:
    """Return the label that stands for ``name`` if no node has a label for it.

    The label contains blanks, so that no node can have it, and it is clear in messages. A ``name`` with a prefix can only be a label, and
    is returned unchanged.
    """
    if name in levels:
        return f"of level {name}"
    return name if "/" in name else f"{name}, which is none of the levels {', '.join(levels)} either"


def labels_of(name: str, levels: Levels) -> tuple[str, ...]:
    """Return the labels that ``name`` may mean, in order of preference: ``name`` itself, then the labels of the level of that name."""
    return (name, *levels.get(name, ()))
