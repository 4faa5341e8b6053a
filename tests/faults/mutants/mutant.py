"""A scheduler that breaks one promise: what stands in a module, and what takes its place in a copy of it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Edit:
    """``before`` stands once in ``module``, a path below the package."""

    module: str
    before: str
    after: str


PAUSES = Edit("binding/transaction.py", "import logging\n", "import asyncio\nimport logging\n")
"""For a transaction that waits where it shouldn't."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``directed`` names the schedule in ``directed`` that convicts it, and ``rule`` the rule by which, whatever others it breaks."""

    name: str
    directed: str
    rule: str
    edits: tuple[Edit, ...]


def patched(mutant: Mutant) -> dict[str, str]:
    """The modules that a patch changes, by their paths below the package. Raises ``ValueError`` when it doesn't fit the code any more."""
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.module) or (ROOT / "operator" / "allaboard" / edit.module).read_text()
        if text.count(edit.before) != 1:
            raise ValueError(f"{mutant.name}: {edit.before!r} stands {text.count(edit.before)} times in {edit.module}")
        texts[edit.module] = text.replace(edit.before, edit.after)
    return texts


def plant(mutant: Mutant, folder: Path) -> None:
    """Write the modules that the patch changes below ``folder``. Raises ``ValueError`` when it doesn't fit the code any more."""
    for module, text in patched(mutant).items():
        path = folder / "allaboard" / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
