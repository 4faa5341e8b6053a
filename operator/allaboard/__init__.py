"""Allaboard, a gang scheduler for Kubernetes: all members of a gang are bound, or none."""

__version__ = "0.1.0"
