"""Reads the commands and code blocks of docs/install.md."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "install.md"


def blocks_under(title: str, language: str = "sh") -> list[str]:
    """Return the code blocks in ``language`` of the section whose title starts with ``title``."""
    (section,) = (part for part in DOCUMENT.read_text().split("\n## ") if part.startswith(title))
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def commands_under(title: str, program: str = "") -> list[str]:
    """Return each command of a section without its comment; only the commands of ``program``, if it is given."""
    lines = (line.partition(" #")[0].strip() for block in blocks_under(title) for line in block.splitlines())
    return [line for line in lines if line and (not program or line.startswith(f"{program} "))]
