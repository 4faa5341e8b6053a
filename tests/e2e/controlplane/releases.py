"""The releases of Kubernetes that a control plane can be built of, and which of them this run is about.

Each is a Go module in ``kubernetes/``, in a folder named by its minor, and its go.mod says which patch release it is; ``modules.py``
writes them. The variable ``K8S`` names a minor; without it the newest is taken.
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
    """No control plane of the release that was asked for can be built."""


@dataclass(frozen=True, slots=True)
class Release:
    """``minor`` as in ``1.37``, ``version`` as in ``1.37.0``."""

    minor: str
    version: str

    @property
    def module(self) -> str:
        """The folder of its Go module, below this package."""
        return f"{FOLDER.name}/{self.minor}"


def all_releases(folder: Path = FOLDER) -> list[Release]:
    """Every release there is a module of, oldest first."""
    found = [Release(module.parent.name, _version(module)) for module in folder.glob("*/go.mod")]
    return sorted(found, key=lambda release: order(release.minor))


def choose(minor: str, releases: Sequence[Release]) -> Release:
    """The release of a minor, the newest when it is empty. Raises ``UnknownReleaseError``."""
    for release in reversed(releases):
        if minor in ("", release.minor):
            return release
    known = ", ".join(release.minor for release in releases)
    raise UnknownReleaseError(
        f"{VARIABLE}={minor}: no control plane of that release can be built, only of {known}; "
        "`python -m tests.e2e.controlplane module` adds one"
    )


def is_stated() -> bool:
    """Whether a release was asked for, so that whatever happens to be installed will not do."""
    return bool(os.environ.get(VARIABLE))


def chosen() -> Release:
    """The release that this run is about. Ends the program, in words, where there is no such release: nothing can be done without."""
    try:
        return choose(os.environ.get(VARIABLE, ""), all_releases())
    except UnknownReleaseError as error:
        raise SystemExit(str(error)) from None


def order(version: str) -> tuple[int, ...]:
    """The numbers by which a version is ordered: of ``1.34``, ``v1.37.0+sandbox``, or ``1.38.0-beta.0``, where they are 1, 38 and 0."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split("[-+]", version)[0]))


def _version(module: Path) -> str:
    required = _REQUIRED.search(module.read_text())
    assert required, f"{module} requires no k8s.io/kubernetes"
    return required.group(1)
