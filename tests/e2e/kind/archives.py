"""Writes images of a few programs each in the form of ``docker save``, without docker or a base image."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_FOLDERS = ("tmp", "etc", "run", "proc", "sys", "dev")
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
"""Architecture of this machine, as images name it."""
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: ``files`` are files of this machine by their paths in the image, ``links`` the targets of symbolic links."""

    tag: str
    files: Mapping[str, Path]
    entrypoint: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)


def write(archive: Path, images: Sequence[Image]) -> None:
    """Write ``images`` into one archive."""
    layers = [_layer(image) for image in images]
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    configs = [_config(image, digest) for image, digest in zip(images, digests, strict=True)]
    repositories: dict[str, dict[str, str]] = {}
    manifest = []
    for image, digest, config in zip(images, digests, configs, strict=True):
        repository, _, version = image.tag.rpartition(":")
        repositories.setdefault(repository, {})[version] = digest
        manifest.append({"Config": _name(config), "RepoTags": [image.tag], "Layers": [f"{digest}/layer.tar"]})
    # kind reads the tags of all images from `repositories` if that comes first, and those of the first image alone from the manifest.
    entries = {"repositories": json.dumps(repositories).encode(), "manifest.json": json.dumps(manifest).encode()}
    entries |= {_name(config): config for config in configs}
    entries |= {f"{digest}/layer.tar": layer for digest, layer in zip(digests, layers, strict=True)}
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in entries.items():
            _add(tar, name, data)


def _name(config: bytes) -> str:
    return f"{hashlib.sha256(config).hexdigest()}.json"


def _config(image: Image, digest: str) -> bytes:
    described = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {"Entrypoint": list(image.entrypoint) or None, "Env": [_PATH], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "tests/e2e/kind"}],
    }
    return json.dumps(described).encode()


def _layer(image: Image) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        paths = [PurePosixPath(path) for path in (*image.files, *image.links)]
        folders = {*_FOLDERS, *(str(parent)[1:] for path in paths for parent in path.parents)} - {""}
        for folder in sorted(folders):
            _add(tar, folder, kind=tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755)
        for path, source in sorted(image.files.items()):
            _add(tar, path[1:], source.read_bytes(), mode=0o755)
        for path, target in sorted(image.links.items()):
            _add(tar, path[1:], kind=tarfile.SYMTYPE, target=target)
    return out.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, mode: int = 0o644, target: str = "") -> None:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode, info.linkname = kind, len(data), mode, target
    tar.addfile(info, io.BytesIO(data))
