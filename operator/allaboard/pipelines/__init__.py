"""Pipelines of the earlier OpenFaaS scheduler (``kopf.dev/v1 MLFlow``): one gang per stage, one stage after the other."""
