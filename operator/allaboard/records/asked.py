"""The record of the nodes that an autoscaler was asked for, for one gang. ``scheduling.provisioning`` writes it."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

Demand = Hashable
"""The members that nodes are asked for: the number of members of each kind. Equal demands lead to the same request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The last request for a gang's nodes.

    ``demand`` is what was asked for; None if that isn't known. ``name`` is the name of the ProvisioningRequest; empty if it couldn't be
    made. ``failures`` is how often in a row a request for this demand brought no nodes. ``retry_at`` is the time on the clock, and
    ``retry_time`` the time in seconds since the epoch, before which nothing is asked for again. ``problem`` says why; empty while the
    request is live.
    """

    demand: Demand | None = None
    name: str = ""
    failures: int = 0
    retry_at: float = -math.inf
    retry_time: float = 0.0
    problem: str = ""
