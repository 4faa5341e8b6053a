"""Stand-ins for the controllers a cluster brings along: just enough of each for pods to appear, be replaced and be counted."""

from allaboard_sandbox.controllers.runtime import Controllers

__all__ = ["Controllers"]
