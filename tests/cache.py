"""Where whatever tests download or build once is kept for the next run."""

import hashlib
import os
from pathlib import Path


def cache() -> Path:
    """The folder, which may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allaboard"


def key_of(*parts: str | bytes) -> str:
    """A short name for what is made of ``parts``."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:12]
