"""Writes the Go module that the Kubernetes programs of a release are built in, without a checkout.

k8s.io/kubernetes replaces its staging modules by folders of its own repository, which doesn't hold for modules that depend on it. The
module written here replaces them by the published modules of the same release. It also has Kubernetes' own Go settings (GODEBUG), since
they decide how the programs behave.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import releases
from .binaries import MissingToolError
from .releases import Release

_KUBERNETES = "k8s.io/kubernetes"
_STAGING = "./staging/src/"


def write_module(asked: str, packages: Sequence[str]) -> Release:
    """Write the module of a release, such as ``1.34.11``, or ``1.34`` for its newest patch that the module proxy lists.

    ``packages`` are the programs that the module must be able to build. An existing module stays if this fails, by ``MissingToolError``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        downloaded = json.loads(_go(folder, "mod", "download", "-json", f"{_KUBERNETES}@v{asked.removeprefix('v')}"))
        theirs = json.loads(_go(folder, "mod", "edit", "-json", downloaded["GoMod"]))
        version = downloaded["Version"].removeprefix("v")
        (folder / "go.mod").write_text(go_mod(version, theirs, packages))
        _go(folder, "mod", "tidy")
        release = Release(".".join(version.split(".")[:2]), version)
        target = releases.FOLDER / release.minor
        target.mkdir(parents=True, exist_ok=True)
        for file in ("go.mod", "go.sum"):
            shutil.copyfile(folder / file, target / file)
    return release


def go_mod(version: str, theirs: Mapping[str, Any], packages: Sequence[str]) -> str:
    """Return the go.mod of a release, to which Go adds the requirements. ``theirs`` is Kubernetes' go.mod (``go mod edit -json``)."""
    published = "v0." + version.partition(".")[2]
    staging = [each["Old"]["Path"] for each in theirs["Replace"] if each["New"]["Path"].startswith(_STAGING)]
    parts = (
        f"// Made by `python -m tests.e2e.controlplane module {version}`.\nmodule allaboard.dev/controlplane/kubernetes",
        f"go {theirs['Go']}",
        *(f"godebug {each['Key']}={each['Value']}" for each in theirs.get("GoDebug") or ()),
        _block("tool", packages),
        f"require {_KUBERNETES} v{version}",
        _block("replace", [f"{module} => {module} {published}" for module in staging]),
    )
    return "\n\n".join(parts) + "\n"


def _block(verb: str, lines: Sequence[str]) -> str:
    return f"{verb} (\n" + "".join(f"\t{line}\n" for line in lines) + ")"


def _go(folder: Path, *arguments: str) -> str:
    """Run a command of Go, and return its output. Raises ``MissingToolError`` if it fails."""
    program = shutil.which("go")
    if program is None:
        raise MissingToolError("Go is missing: install Go 1.26 or newer (https://go.dev/dl)")
    environment = {**os.environ, "GOFLAGS": "", "GOWORK": "off"}
    done = subprocess.run([program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingToolError(f"go {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
