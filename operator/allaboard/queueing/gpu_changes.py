"""Detects GPU metric changes that could unblock a waiting gang; most scrapes change nothing."""

import numpy as np

from allaboard.model.arrays import Floats
from allaboard.model.gpu_inventory import WHOLE_GPUS, GpuInventory
from allaboard.records.wake_up import GPU_CHANGES

_LEAST_MEBIBYTES = 64.0
"""A GPU's free memory changes by less than that all the time."""


class GpuChanges:
    """Compares the GPU metrics with earlier ones, and returns what waiting gangs may gain, also by memory that is freed in small steps.

    Free memory is compared with the least since a gang was last woken: a waiting gang may have been refused at any time since.
    """

    def __init__(self) -> None:
        self._seen: GpuInventory | None = None
        self._least: Floats | None = None

    def gained(self, old: GpuInventory | None, new: GpuInventory | None) -> frozenset[str]:
        """Return the wake-up keys of gangs that may fit now.

        GPUs, if more are healthy; ``GPU_CHANGES`` if GPUs were replaced, or if more of their memory is free.
        """
        if old is not self._seen or self._least is None:
            self._least = None if old is None else old.free
        found = _gained(old, new, self._least)
        self._seen = new
        if new is not None:
            self._least = new.free if found or self._least is None else np.fmin(self._least, new.free)
        return found


def has_lost(old: GpuInventory | None, new: GpuInventory | None) -> bool:
    """Return whether waiting gangs would find less than before."""
    return bool(_gained(new, old, None))


def _gained(old: GpuInventory | None, new: GpuInventory | None, least: Floats | None) -> frozenset[str]:
    if new is None:
        return frozenset()
    if old is None or old.kind.shape != new.kind.shape:
        return frozenset((GPU_CHANGES, *WHOLE_GPUS))
    if bool((new.unwell < old.unwell).any()):
        return frozenset((GPU_CHANGES, *WHOLE_GPUS))
    is_other = old.names != new.names or not np.array_equal(old.kind, new.kind)
    is_freer = new.free >= (old.free if least is None else least) + _LEAST_MEBIBYTES
    is_known = np.isnan(old.free) != np.isnan(new.free)
    return frozenset((GPU_CHANGES,)) if is_other or bool((is_freer | is_known).any()) else frozenset()
