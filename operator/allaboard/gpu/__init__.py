"""Knows the GPUs of the cluster: what exporters measure, where Prometheus is, and how old it all is."""
