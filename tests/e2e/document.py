"""docs/install.md, as far as commands go."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "install.md"


def commands_under(title: str) -> list[str]:
    """The commands of a section of the document, without what is said about them."""
    (section,) = (part for part in DOCUMENT.read_text().split("\n## ") if part.startswith(title))
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]
