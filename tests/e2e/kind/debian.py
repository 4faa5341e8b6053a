"""Debian packages: installs those that this machine needs, and builds file systems of others."""

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
"""Packages of the required programs and headers; gcc, pkg-config and the headers build runc."""
_LEFT_OUT = ("man", "doc", "locale")


def ensure_packages(steps: Steps) -> None:
    """Install missing packages. Raises ``MissingToolError`` if there is no apt-get, or if it fails."""
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
    """Return the archive of a file system with ``packages`` and their dependencies, after building it if it isn't cached.

    ``depends_on`` is part of the cache key, in place of the ``options``, which may name folders of this machine.
    """
    archive = steps.cache / f"{name}-{key_of(suite, *packages, depends_on)}.tar"
    if not archive.exists():
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _LEFT_OUT]
        chosen = f"--include={','.join(packages)}"
        partly = archive.with_suffix(".partly.tar")
        steps.run(
            f"the file system of {name}, from Debian {suite}",
            ["mmdebstrap", "--mode=root", "--variant=minbase", chosen, *left_out, *options, suite, str(partly)],
        )
        partly.replace(archive)
    return archive
