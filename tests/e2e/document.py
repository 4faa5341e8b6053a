"""docs/install.md, as far as commands go."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "install.md"


def blocks_under(title: str, language: str = "sh") -> list[str]:
    """The commands of a section of the document, as they stand there together; or what is shown in another language."""
    (section,) = (part for part in DOCUMENT.read_text().split("\n## ") if part.startswith(title))
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def commands_under(title: str, program: str = "") -> list[str]:
    """Each command of a section, or of one program, without what is said about it."""
    lines = (line.partition(" #")[0].strip() for block in blocks_under(title) for line in block.splitlines())
    return [line for line in lines if line and (not program or line.startswith(f"{program} "))]
