"""Says when a gang with a reservation is expected to start."""

import math
import time

from allaboard.cluster.reservations import Reservation
from allaboard.cluster.running import Basis

_STEP_SECONDS = {Basis.STATED: 60.0, Basis.GUESSED: 600.0}
"""Expected starts are rounded up to a multiple of these, so that they seldom change."""

_SOURCES = {Basis.STATED: "from stated walltimes", Basis.GUESSED: "guessed from how long pods have run"}


def expected(reservation: Reservation) -> str:
    """Return when the owner of a reservation is expected to start, as the last words of its refusal; empty if that isn't known.

    If pods are evicted for the owner, the words say how many.
    """
    if reservation.victims:
        number = len(reservation.victims)
        return f"; {number} pod{'s' if number > 1 else ''} of lower priority {'are' if number > 1 else 'is'} evicted for it"
    if not (seconds := expected_start(reservation)):
        return ""
    return f"; expected to start about {time.strftime('%Y-%m-%d %H:%M', time.gmtime(seconds))} UTC, {_SOURCES[reservation.basis]}"


def expected_start(reservation: Reservation) -> float:
    """Return when the owner of a reservation is expected to start, in seconds since the epoch; 0 if that isn't known."""
    step = _STEP_SECONDS.get(reservation.basis)
    return step * math.ceil(reservation.begins / step) if step else 0.0
