"""The resources that are GPUs, and what exporters measure of GPUs: one row per node, one column per GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

NVIDIA = "nvidia.com/gpu"
"""Name of the resource by which pods request whole GPUs of NVIDIA."""

AMD = "amd.com/gpu"
INTEL = ("gpu.intel.com/i915", "gpu.intel.com/xe")


def is_gpu(resource: str) -> bool:
    """Return whether ``resource`` is a GPU or a partition of one (such as MIG), of any vendor."""
    domain, _, name = resource.partition("/")
    if domain == "nvidia.com":
        return name in ("gpu", "gpu.shared") or name.startswith("mig-")
    if domain == "amd.com":
        return name == "gpu" or "_" in name
    return resource in (*INTEL, "habana.ai/gaudi")


class Measure(IntEnum):
    """A measured quantity of a GPU, with its unit. Attributes of the GPU's model don't change; all other quantities do."""

    MEMORY = 0  # MiB in total
    FREE = 1  # MiB that are free
    POWER = 2  # W
    TEMPERATURE = 3  # degrees Celsius
    UTILIZATION = 4  # 0..1, as the next two
    ENCODER = 5
    DECODER = 6
    XID = 7  # number of the last XID error, 0 without one
    REMAP_FAILURE = 8  # 1 if rows of the memory couldn't be remapped
    MULTIPROCESSORS = 9  # number, as the next two
    ENCODERS = 10
    DECODERS = 11
    BANDWIDTH = 12  # of the memory, GB/s


@dataclass(frozen=True, slots=True, eq=False)
class Cards:
    """The GPUs that exporters have reported.

    ``rows``: the row of each node, by node name. ``names``: the names of each node's GPUs, such as the exporter's numbers. ``models``: the
    exporter's names of models, each once. ``model``: int32[nodes, gpus], index into ``models``; -1 where there is no GPU. ``values``:
    float32[measures, nodes, gpus], in the order of ``Measure``; NaN if unknown or stale.
    """

    rows: Mapping[str, int]
    names: tuple[tuple[str, ...], ...]
    models: tuple[str, ...]
    model: NDArray[np.int32]
    values: NDArray[np.float32]


NO_CARDS = Cards({}, (), (), np.zeros((0, 0), dtype=np.int32), np.zeros((len(Measure), 0, 0), dtype=np.float32))
