"""The releases of Kubernetes of which a control plane can be built, and the release of this run.

Each release is a Go module in ``kubernetes/``, in a folder named by its minor version; its go.mod states the patch release. ``modules.py``
writes the modules. The variable ``K8S`` selects a minor version; the default is the newest.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "kubernetes"
VARIABLE = "K8S"
_REQUIRED = re.compile(r"^(?:require )?\s*k8s\.io/kubernetes v(\S+)", re.MULTILINE)


class UnknownReleaseError(ValueError):
    """A control plane of the requested release can't be built."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Kubernetes: ``minor`` is like ``1.37``, ``version`` like ``1.37.0``."""

    minor: str
    version: str

    @property
    def module(self) -> str:
        """Folder of the release's Go module, below this package."""
        return f"{FOLDER.name}/{self.minor}"


def all_releases(folder: Path = FOLDER) -> list[Release]:
    """Return the releases that have a module, oldest first."""
    found = [Release(module.parent.name, _version(module)) for module in folder.glob("*/go.mod")]
    return sorted(found, key=lambda release: order(release.minor))


def choose(minor: str, releases: Sequence[Release]) -> Release:
    """Return the release of a minor version, or the newest if ``minor`` is empty. Raises ``UnknownReleaseError``."""
    for release in reversed(releases):
        if minor in ("", release.minor):
            return release
    known = ", ".join(release.minor for release in releases)
    raise UnknownReleaseError(
        f"{VARIABLE}={minor}: no control plane of that release can be built, only of {known}; "
        "`python -m tests.e2e.controlplane module` adds one"
    )


def is_stated() -> bool:
    """Return whether ``K8S`` selects a release; then installed programs, which may be of any release, aren't used."""
    return bool(os.environ.get(VARIABLE))


def chosen() -> Release:
    """Return the release of this run. Ends the program with a message if there is no such release."""
    try:
        return choose(os.environ.get(VARIABLE, ""), all_releases())
    except UnknownReleaseError as error:
        raise SystemExit(str(error)) from None


def order(version: str) -> tuple[int, ...]:
    """Return the numbers by which a version is ordered. Example: 1, 38 and 0 for ``1.38.0-beta.0`` or ``v1.38.0+sandbox``."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split("[-+]", version)[0]))


def _version(module: Path) -> str:
    required = _REQUIRED.search(module.read_text())
    assert required, f"{module} requires no k8s.io/kubernetes"
    return required.group(1)
