"""Replays of workloads on made-up clusters: which strategy leaves how much unused. Nothing here talks to a cluster."""
