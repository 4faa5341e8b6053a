"""Finds the files that come with the program: the CRDs and the examples.

They live at the top of the repository, where people look for them, and not inside the package; an installation puts copies
under ``share/allaboard`` of its prefix. The checkout wins, so that a change to an example is seen at once.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_SHARE = Path("share", "allaboard")


class NotBundledError(Exception):
    """A file that should come with the program isn't there; the message says where it was looked for."""


def crds() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions that Allaboard installs, in the order of their file names."""
    found: list[dict[str, Any]] = []
    for path in _yaml_files(_folder("crds")):
        found += [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    return found


def examples() -> list[Path]:
    """Every example manifest, in the order of their names."""
    return _yaml_files(_folder("examples"))


def example(name: str) -> Path:
    """The example called ``name``, with or without ``.yaml``."""
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
    raise NotBundledError(f"no folder {name!r} with YAML files; looked at {', '.join(map(str, candidates))}")


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
