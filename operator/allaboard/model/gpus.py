"""What is known of the GPUs of a cluster beside how many there are: by exporters, a row a node and a column a card."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

NVIDIA = "nvidia.com/gpu"
"""NVIDIA's whole GPUs."""

AMD = "amd.com/gpu"
INTEL = ("gpu.intel.com/i915", "gpu.intel.com/xe")


def is_gpu(resource: str) -> bool:
    """Whether ``resource`` is a GPU or a part of one, whole devices and MIG-like partitions of every vendor alike."""
    domain, _, name = resource.partition("/")
    if domain == "nvidia.com":
        return name in ("gpu", "gpu.shared") or name.startswith("mig-")
    if domain == "amd.com":
        return name == "gpu" or "_" in name
    return resource in (*INTEL, "habana.ai/gaudi")


class Measure(IntEnum):
    """What is measured of a card, and its unit. What its kind has doesn't change; all else does."""

    MEMORY = 0  # MiB it has
    FREE = 1  # MiB of it that nobody uses
    POWER = 2  # W
    TEMPERATURE = 3  # degrees Celsius
    UTILIZATION = 4  # 0..1, as the next two
    ENCODER = 5
    DECODER = 6
    XID = 7  # number of its last error, 0 without one
    REMAP_FAILURE = 8  # 1 where rows of its memory couldn't be remapped
    MULTIPROCESSORS = 9  # it has
    ENCODERS = 10
    DECODERS = 11
    BANDWIDTH = 12  # of its memory, GB/s


@dataclass(frozen=True, slots=True, eq=False)
class Cards:
    """Every card that an exporter has told of.

    ``rows``: of each node, by name. ``names``: of the cards of each node, as the exporter numbers them. ``models``: as it calls them, each
    once; ``model``: int32[nodes, cards] points into them, -1 where there is no card. ``values``: float32[measures, nodes, cards], by
    ``Measure``, NaN where nothing is known, or nothing any more: what has gone stale isn't there.
    """

    rows: Mapping[str, int]
    names: tuple[tuple[str, ...], ...]
    models: tuple[str, ...]
    model: NDArray[np.int32]
    values: NDArray[np.float32]


NO_CARDS = Cards({}, (), (), np.zeros((0, 0), dtype=np.int32), np.zeros((len(Measure), 0, 0), dtype=np.float32))
