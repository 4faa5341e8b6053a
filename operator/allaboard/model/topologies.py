"""Names of topology levels, such as rack or NVLink domain, each with the node labels that may identify the level.

Clusters label the same level differently. A gang can ask for ``rack`` on any cluster: this means the first label of the level's list that
any node has. If any node has a label that is itself called ``rack``, this label is meant instead.
"""

from collections.abc import Mapping

Levels = Mapping[str, tuple[str, ...]]

_TOPOGRAPH, _AWS, _GOOGLE = "network.topology.nvidia.com", "topology.k8s.aws/network-node-layer", "cloud.google.com/gce-topology"

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
    ),
    "spine": (f"{_TOPOGRAPH}/spine", f"{_TOPOGRAPH}/tier-1", f"{_AWS}-2", f"{_GOOGLE}-block"),
    "core": (f"{_TOPOGRAPH}/core", f"{_TOPOGRAPH}/datacenter", f"{_TOPOGRAPH}/tier-2", f"{_AWS}-1"),
    "zone": ("topology.kubernetes.io/zone",),
    "region": ("topology.kubernetes.io/region",),
}


def placeholder_label(name: str, levels: Levels) -> str:
    """Return the label that stands for ``name`` if no node has a label for it.

    If ``name`` is a level, this label is ``of level <name>``, which contains blanks: no node can have it, and it is clear in messages. Any
    other ``name`` is returned unchanged.
    """
    return f"of level {name}" if name in levels else name


def labels_of(name: str, levels: Levels) -> tuple[str, ...]:
    """Return the labels that ``name`` may mean, in order of preference: ``name`` itself, then the labels of the level of that name."""
    return (name, *levels.get(name, ()))
