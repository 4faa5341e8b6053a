"""Allaboard, a gang scheduler for Kubernetes: everybody gets a seat, or the train stays in the station."""

__version__ = "0.1.0"
