"""The doorway for ``kopf run operator/main.py``: works in a checkout that isn't installed."""

import allaboard.handlers  # noqa: F401
