"""Reads what exporters measure about the cluster's GPUs, from Prometheus or from the exporters, and keeps it until it is too old."""
