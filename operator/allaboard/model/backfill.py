"""The policy for gangs that could start before a gang ahead of them in the queue."""

from enum import StrEnum


class Backfill(StrEnum):
    """The gangs that may pass a gang with a reservation."""

    EASY = "easy"
    """Gangs that don't delay the reservation."""
    OFF = "off"
    """No gang."""
