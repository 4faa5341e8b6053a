"""What gangs that wait may gain when exporters have spoken of GPUs, several times a minute, mostly to say nothing new."""

import numpy as np

from allaboard.model.gputable import WHOLE, GpuTable
from allaboard.scheduling.order import CARDS

_LEAST_MEBIBYTES = 64.0
"""Free memory of a card moves by less than that all the time."""


def gained(old: GpuTable | None, new: GpuTable | None) -> frozenset[str]:
    """What those lacked who may find it now: GPUs if there are more that are well, ``CARDS`` if they are others, or more memory is free."""
    if new is None:
        return frozenset()
    if old is None or old.kind.shape != new.kind.shape:
        return frozenset((CARDS, *WHOLE))
    if bool((new.unwell < old.unwell).any()):
        return frozenset((CARDS, *WHOLE))
    is_other = old.names != new.names or not np.array_equal(old.kind, new.kind)
    is_freer = new.free >= old.free + _LEAST_MEBIBYTES
    is_known = np.isnan(old.free) != np.isnan(new.free)
    return frozenset((CARDS,)) if is_other or bool((is_freer | is_known).any()) else frozenset()
