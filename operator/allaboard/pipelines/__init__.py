"""Deploys pipelines of the earlier OpenFaaS scheduler (``kopf.dev/v1 MLFlow``): one gang for each stage, one stage after another."""
