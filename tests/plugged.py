"""Installs packages with strategies in a folder as pip does: a module, and a dist-info that names its entry points."""

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, **strategies: str) -> None:
    """Make ``source`` a module in ``folder``, from which this process and spawned ones import. ``strategies`` are its callables by name."""
    (folder / "plugged_strategies.py").write_text(source, encoding="utf-8")
    targets = {name: f"plugged_strategies:{target}" for name, target in strategies.items()}
    _describe(folder, "plugged-strategies", "1.0", {"allaboard.strategies": targets})
    monkeypatch.syspath_prepend(folder)


def install_project(folder: Path, monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    """Install the modules and entry points that the ``pyproject.toml`` of ``project`` names, without a build, which needs the network."""
    stated = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    for module in stated["tool"]["setuptools"]["py-modules"]:
        shutil.copy(project / f"{module}.py", folder)
    about = stated["project"]
    _describe(folder, about["name"], about["version"], about["entry-points"])
    monkeypatch.syspath_prepend(folder)


def _describe(folder: Path, name: str, version: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = [
        line for group, entries in entry_points.items() for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
