"""A gang that can be planned: nothing holds it, its pods exist, and their specs contain all their requirements of nodes."""

from typing import NewType

from allaboard.model.gang import Gang

PreparedGang = NewType("PreparedGang", Gang)
"""A gang that ``prepared`` has returned. The planner takes no other."""


def prepared(gang: Gang) -> PreparedGang:
    """Return ``gang``, whose members' specs were resolved (``planning.resolve``), as one that can be planned.

    Raises ``ValueError`` for a gang that is held, waits for pods, or has no candidates.
    """
    if not gang.can_act:
        raise ValueError(f"gang {gang.key} can't be planned: it is held, waits for pods, or has no candidates")
    return PreparedGang(gang)
