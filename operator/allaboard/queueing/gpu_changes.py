"""Detects changes of GPU metrics after which a waiting gang may fit; most scrapes show no such change."""

import numpy as np

from allaboard.model.arrays import Floats
from allaboard.model.gpu_inventory import WHOLE_GPUS, GpuInventory
from allaboard.records.wake_up import GPU_CHANGES

_LEAST_MEBIBYTES = 64.0
"""The least increase of a GPU's free memory that wakes gangs. Smaller changes happen all the time."""


class GpuChanges:
    """A comparison of GPU metrics with earlier metrics, which shows what waiting gangs may gain.

    Free memory is compared with its least value since gangs were last woken, since a waiting gang may have been refused at that value. So
    memory that is freed in many small steps wakes gangs, too.
    """

    def __init__(self) -> None:
        self._seen: GpuInventory | None = None
        self._least: Floats | None = None

    def gained(self, old: GpuInventory | None, new: GpuInventory | None) -> frozenset[str]:
        """Return the wake-up keys of gangs that may fit after the metrics changed from ``old`` to ``new``.

        If more GPUs are healthy, these are the resources of whole GPUs and ``GPU_CHANGES``. If GPUs were replaced, or more of their memory
        is free, it is ``GPU_CHANGES`` alone.
        """
        if old is not self._seen or self._least is None:
            self._least = None if old is None else old.free
        found = _gained(old, new, self._least)
        self._seen = new
        if new is not None:
            self._least = new.free if found or self._least is None else np.fmin(self._least, new.free)
        return found


def has_lost(old: GpuInventory | None, new: GpuInventory | None) -> bool:
    """Return whether a waiting gang that fitted with ``old`` may not fit with ``new``."""
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
