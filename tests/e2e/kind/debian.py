"""Debian's packages: those that this machine needs, and file systems made of others."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.cache import key_of
from tests.e2e.controlplane.binaries import MissingToolError

from .steps import Steps

_PROGRAMS = {
    "dockerd": "docker.io",
    "iptables": "iptables",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "gcc": "gcc",
    "pkg-config": "pkg-config",
}
_HEADERS = {"seccomp.h": "libseccomp-dev", "stdlib.h": "libc6-dev"}
"""The packages of what is needed; runc is built with the last three."""
_UNREAD = ("man", "doc", "locale")


def ensure_packages(steps: Steps) -> None:
    """Install what is missing. Raises ``MissingToolError`` where that can't be done."""
    missing = [package for program, package in _PROGRAMS.items() if not shutil.which(program)]
    missing += [package for header, package in _HEADERS.items() if not Path("/usr/include", header).exists()]
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

    ``depends_on`` is what else it is made of, and what the ``options`` say, which may name folders of this machine.
    """
    archive = steps.cache / f"{name}-{key_of(suite, *packages, depends_on)}.tar"
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
