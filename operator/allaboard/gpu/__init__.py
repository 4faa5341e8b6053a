"""Reads what exporters measure about the cluster's GPUs, from Prometheus or from the exporters.

The measurements are kept until they are too old.
"""
