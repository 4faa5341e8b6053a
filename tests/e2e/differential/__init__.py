"""Asks the real kube-scheduler and this scheduler about the same pod on the same cluster, and compares their answers."""
