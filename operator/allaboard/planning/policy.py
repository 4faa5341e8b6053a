"""The settings that decide which gangs may start before others, for the scheduler, ``allaboard plan`` and ``allaboard simulate``."""

from dataclasses import dataclass
from typing import Self

from allaboard.model.backfill import Backfill
from allaboard.planning.evictable import NO_PREEMPTION, PreemptionSettings
from allaboard.planning.reservations import RESERVATIONS, ReservationSettings
from allaboard.settings.fair_share import FairShareOptions
from allaboard.settings.options import Settings

_NO_FAIR_SHARE = FairShareOptions()


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decide which gangs may start before others."""

    backfill: Backfill = Backfill.EASY
    reservations: ReservationSettings = RESERVATIONS
    preemption: PreemptionSettings = NO_PREEMPTION
    fair_share: FairShareOptions = _NO_FAIR_SHARE

    @classmethod
    def by(cls, settings: Settings) -> Self:
        """Return the policy that the operator's settings state."""
        return cls(settings.backfill, ReservationSettings.by(settings), PreemptionSettings.by(settings), settings.fair_share)


POLICY = Policy()
SKIP = Policy(reservations=ReservationSettings(most=0))
"""The policy without reservations: any gang that fits starts."""
STRICT = Policy(Backfill.OFF)
"""The policy by which no gang passes a gang ahead of it that can fit later."""
