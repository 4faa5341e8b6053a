"""Reads and writes times in the form of the Kubernetes API (RFC 3339)."""

from datetime import UTC, datetime


def parse_time(timestamp: str) -> float:
    """Return an RFC 3339 time as seconds since the epoch; 0 if it is absent or unreadable, so that it sorts as oldest."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
    except (ValueError, OverflowError):
        return 0.0


def api_time(seconds: float) -> str:
    """Return seconds since the epoch as the Kubernetes API writes a time (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
