"""Where whatever tests download or build once is kept for the next run."""

import os
from pathlib import Path


def cache() -> Path:
    """The folder, which may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allaboard"
