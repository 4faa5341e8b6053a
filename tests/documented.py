"""The fields of pods that docs/compatibility.md names."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"


def documented() -> set[str]:
    """Return the fields in the first columns of the tables of the page."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {field for row in rows for field in re.findall(r"`([A-Za-z.]+)`", row.split("|")[1])}
