"""Debian's packages: those that this machine needs, and file systems made of others."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.controlplane.binaries import MissingToolError

from .steps import Steps, key_of

_NEEDED = {"dockerd": "docker.io", "iptables": "iptables", "mmdebstrap": "mmdebstrap", "pkg-config": "pkg-config"}
"""The package of each program. libseccomp-dev has none."""
_HEADER, _HEADERS_PACKAGE = Path("/usr/include/seccomp.h"), "libseccomp-dev"
_UNREAD = ("man", "doc", "locale")


def ensure_packages(steps: Steps) -> None:
    """Install what is missing. Raises ``MissingToolError`` where that can't be done."""
    missing = [package for program, package in _NEEDED.items() if not shutil.which(program)]
    missing += [] if _HEADER.exists() else [_HEADERS_PACKAGE]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise MissingToolError(f"a kind cluster without a registry is built on Debian: there is no apt-get to install {', '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    steps.run("apt-get update", ["apt-get", "update"], environment)
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    steps.run(f"apt-get install {' '.join(missing)}", install, environment)


def file_system(steps: Steps, name: str, suite: str, packages: Sequence[str], options: Sequence[str] = (), depends_on: bytes = b"") -> Path:
    """The archive of a file system with ``packages`` and what they depend on, from the cache if it's there.

    ``depends_on`` is what else it is made of, beside the arguments.
    """
    archive = steps.cache / f"{name}-{key_of(suite, *packages, *options, depends_on)}.tar"
    if not archive.exists():
        unread = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _UNREAD]
        chosen = f"--include={','.join(packages)}"
        partly = archive.with_suffix(".partly.tar")
        steps.run(
            f"the file system of {name}, from Debian {suite}",
            ["mmdebstrap", "--mode=root", "--variant=minbase", chosen, *unread, *options, suite, str(partly)],
        )
        partly.replace(archive)
    return archive
