"""Checks a page with axe-core, which npm downloads once, at a pinned version, into the cache of the tests."""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from functools import cache as once
from pathlib import Path

from playwright.async_api import Page

from tests.cache import cache

VERSION = "4.14.1"
SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
"""The digest of the npm package."""

_RUN = """() => axe.run(document, {
    resultTypes: ['violations'],
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
})"""


async def violations(page: Page) -> Sequence[str]:
    """Return the violations of WCAG 2.2 AA and of axe's best practices: the rule, and the elements that violate it."""
    await page.evaluate(source())
    found = await page.evaluate(_RUN)
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@once
def source() -> str:
    """Return the script. Raises ``RuntimeError`` if the package can't be downloaded, or isn't the pinned one."""
    kept = cache() / "axe-core" / f"{VERSION}.tgz"
    if not kept.exists():
        _download(kept)
    if (digest := hashlib.sha256(kept.read_bytes()).hexdigest()) != SHA256:
        raise RuntimeError(f"{kept} has the digest {digest}, and {SHA256} is expected")
    with tarfile.open(kept) as package:
        script = package.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def _download(kept: Path) -> None:
    npm = shutil.which("npm")
    if not npm:
        raise RuntimeError("npm is not installed: it downloads axe-core")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        command = [npm, "pack", f"axe-core@{VERSION}", "--ignore-scripts", "--silent", "--pack-destination", folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        packages = sorted(Path(folder).glob("*.tgz"))
        if done.returncode or not packages:
            raise RuntimeError(f"axe-core can't be downloaded: {done.stderr or done.stdout}")
        os.replace(packages[0], kept)
