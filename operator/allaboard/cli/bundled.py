"""Finds the files that come with the program: the CRDs and the examples.

The files are at the top of the repository, where users look for them, and not inside the package. An installation has copies in
``share/allaboard`` of its prefix. In a checkout the repository's files are used, so that a change to an example takes effect at once.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_SHARE = Path("share", "allaboard")


class NotBundledError(Exception):
    """A missing file that should come with the program. The message names the folders that were searched."""


def crds() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions that Allaboard installs, in the order of their file names."""
    found: list[dict[str, Any]] = []
    for path in _yaml_files(_folder("crds")):
        found += [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    return found


def examples() -> list[Path]:
    """Return the paths of all example manifests, sorted by name."""
    return _yaml_files(_folder("examples"))


def example(name: str) -> Path:
    """Return the path of the example ``name``, which may end with ``.yaml``. Raises ``NotBundledError``."""
    known = {path.stem: path for path in examples()}
    try:
        return known[name.removesuffix(".yaml")]
    except KeyError:
        raise NotBundledError(f"there is no example {name!r}; there are {', '.join(sorted(known))}") from None


def _folder(name: str) -> Path:
    candidates = [folder / name for folder in _homes()]
    for candidate in candidates:
        if candidate.is_dir() and _yaml_files(candidate):
            return candidate
    raise NotBundledError(f"no folder {name!r} with YAML files; searched in {', '.join(map(str, candidates))}")


def _homes() -> Iterator[Path]:
    here = Path(__file__).resolve()
    checkout = here.parents[3]
    if (checkout / "setup.cfg").is_file() and here.is_relative_to(checkout / "operator"):
        yield checkout
    yield Path(sys.prefix) / _SHARE
    # `pip install --user` and `--target` put data files beside the packages' root, not under the prefix.
    for parent in here.parents:
        if (parent / _SHARE).is_dir():
            yield parent / _SHARE


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))
