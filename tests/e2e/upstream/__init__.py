"""Asks this scheduler what kube-scheduler's own unit tests ask of its plugins."""
