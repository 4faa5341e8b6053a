"""The type of a gang that can be planned: it isn't held, its pods exist, and the requirements of other objects are in their specs."""

from typing import NewType

from allaboard.model.gang import Gang

PreparedGang = NewType("PreparedGang", Gang)
"""A gang that the function ``prepared`` has checked. The planner takes no unchecked gang."""


def prepared(gang: Gang) -> PreparedGang:
    """Return ``gang`` as a gang that can be planned. Its members' specs must be resolved (``planning.resolve``).

    Raises ``ValueError`` for a gang that is held, waits for pods, or has no candidates.
    """
    if not gang.can_act:
        raise ValueError(f"gang {gang.key} can't be planned: it is held, waits for pods, or has no candidates")
    return PreparedGang(gang)
