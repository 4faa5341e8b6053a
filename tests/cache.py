"""Names the folder where downloads and builds of tests are kept for the next run."""

import hashlib
import os
from pathlib import Path


def cache() -> Path:
    """Return the folder, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allaboard"


def key_of(*parts: str | bytes) -> str:
    """Return a short name that depends on all ``parts``."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:12]
