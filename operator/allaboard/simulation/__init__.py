"""Replays workloads on simulated clusters, to compare how much capacity strategies leave unused. Nothing here connects to a cluster."""
