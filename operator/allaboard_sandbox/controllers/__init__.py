"""Stand-ins for the controllers of a cluster, just complete enough that pods are created, replaced and counted."""

from allaboard_sandbox.controllers.runtime import Controllers

__all__ = ["Controllers"]
