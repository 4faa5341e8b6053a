"""Writes the image of the program that tests run in real containers: ``python -m tests.e2e.kind.load ARCHIVE``."""

import sys
from pathlib import Path

from rich.console import Console

from tests.e2e.controlplane.binaries import ensure

from .archives import Image, write
from .programs import RENDEZVOUS

TAG = "docker.io/library/allaboard-rendezvous:e2e"


def main(archive: Path) -> None:
    """Write the archive of the image; the program is built with Go if it is missing."""
    path = "/usr/local/bin/rendezvous"
    write(archive, [Image(TAG, {path: ensure([RENDEZVOUS], Console(stderr=True))["rendezvous"]}, [path])])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
