"""Entry point for ``kopf run operator/main.py``, which works in a checkout that isn't installed."""

import allaboard.handlers  # noqa: F401
