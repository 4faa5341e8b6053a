"""Says when a gang is expected to start: a gang with a reservation, or a gang for which an autoscaler is asked for nodes."""

import math
import time

from allaboard.cluster.reservations import Reservation
from allaboard.cluster.running import Basis
from allaboard.model.provisioning import Provisioning, Stage

_STEP_SECONDS = {Basis.STATED: 60.0, Basis.GUESSED: 600.0}
"""Expected starts are rounded up to a multiple of these, so that they seldom change."""

_SOURCES = {Basis.STATED: "from stated walltimes", Basis.GUESSED: "guessed from how long pods have run"}


def expected(reservation: Reservation) -> str:
    """Return when the owner of a reservation is expected to start, as the last words of its refusal; empty if that isn't known.

    If pods are evicted for the owner, the words say how many.
    """
    if reservation.victims:
        number = len(reservation.victims)
        return evictions(number, "are evicted" if number > 1 else "is evicted")
    if not (seconds := expected_start(reservation)):
        return ""
    return f"; expected to start about {_minute(seconds)}, {_SOURCES[reservation.basis]}"


def expected_nodes(provisioning: Provisioning) -> str:
    """Return how far the nodes are that an autoscaler is asked for, as the last words of a refusal."""
    request, stage, note = provisioning.request, provisioning.stage, provisioning.note
    if provisioning.is_being_made:
        return "; a ProvisioningRequest is being made for it"
    if not request:
        again = f"; the next one is made after {_minute(provisioning.retry_time)}" if provisioning.retry_time else ""
        return f"; {note}{again}"
    if stage is Stage.PROVISIONED:
        return f"; ProvisioningRequest {request} is Provisioned, but the gang doesn't fit"
    state = "not yet accepted" if stage is Stage.PENDING else f"{stage}, not yet provisioned"
    return f"; waits for ProvisioningRequest {request}: {state}{f' ({note})' if note else ''}"


def _minute(seconds: float) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(seconds))} UTC"


def evictions(number: int, verb: str) -> str:
    """Return the last words of a refusal that say how many pods are evicted for the gang."""
    return f"; {number} pod{'s' if number > 1 else ''} of lower priority {verb} for it"


def expected_start(reservation: Reservation) -> float:
    """Return when the owner of a reservation is expected to start, in seconds since the epoch; 0 if that isn't known."""
    step = _STEP_SECONDS.get(reservation.basis)
    return step * math.ceil(reservation.begins / step) if step else 0.0
