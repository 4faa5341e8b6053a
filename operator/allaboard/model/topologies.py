"""Levels of the network and of GPU interconnects by short names, each with the labels that say where a node is on that level.

Which of the labels nodes have depends on who wrote them, so a gang may ask for ``rack`` on any cluster: of its labels the first that any
node has is meant. A label that is called like a level itself comes before all of them.
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
    """What stands for the label that is meant by ``name`` where no node has one: of a level it says in words which, as no label can."""
    return f"of level {name}" if name in levels else name


def labels_of(name: str, levels: Levels) -> tuple[str, ...]:
    """The labels that ``name`` may mean, in the order in which they are looked for: itself, unless it is a level's name, alone."""
    return (name, *levels.get(name, ()))
