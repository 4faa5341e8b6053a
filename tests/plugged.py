"""Packages with strategies, installed in a folder as pip would install them: a module, and a dist-info that names its entry points."""

from pathlib import Path

import pytest


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, **strategies: str) -> None:
    """Make ``source`` a module in ``folder``, which this process and those that it spawns import from; ``strategies`` are its callables."""
    (folder / "plugged_strategies.py").write_text(source, encoding="utf-8")
    info = folder / "plugged_strategies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-strategies\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"{name} = plugged_strategies:{target}" for name, target in strategies.items()]
    (info / "entry_points.txt").write_text("\n".join(["[allaboard.strategies]", *lines, ""]), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
