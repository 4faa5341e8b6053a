"""A real Prometheus on loopback: Debian's package, unpacked into the cache, where a second run finds it; no root is needed for that."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.cache import cache

PACKAGE = "prometheus"


class MissingPrometheusError(RuntimeError):
    """It is neither installed nor can it be had."""


def locate() -> Path:
    """The program: from ``PATH``, from the cache, or from Debian's mirror by way of the cache. Raises ``MissingPrometheusError``."""
    if installed := shutil.which(PACKAGE):
        return Path(installed)
    kept = cache() / "prometheus"
    if cached := sorted(kept.glob("*/usr/bin/prometheus")):
        return cached[-1]
    if not shutil.which("apt-get"):
        raise MissingPrometheusError("prometheus is not installed, and there is no apt-get to download it with")
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept) as folder:
        for command in (["download", PACKAGE], ["update"], ["download", PACKAGE]):
            done = subprocess.run(["apt-get", *command], cwd=folder, capture_output=True, text=True, check=False)
            if packages := sorted(Path(folder).glob("*.deb")):
                break
        else:
            raise MissingPrometheusError(f"prometheus can't be downloaded: {done.stderr}")
        version = packages[0].name.split("_")[1]
        unpacked = Path(folder, "unpacked")
        subprocess.run(["dpkg", "-x", str(packages[0]), str(unpacked)], check=True)
        if not (kept / version).exists():
            os.replace(unpacked, kept / version)
    return kept / version / "usr" / "bin" / "prometheus"


class Prometheus:
    """One that scrapes ``targets`` (labels by address), by job, five times a second. What it knows survives ``kill`` and ``start``."""

    def __init__(self, program: Path, folder: Path, port: int, jobs: Mapping[str, Mapping[str, Mapping[str, str]]]) -> None:
        self._command = [
            *(str(program), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        configuration = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [address], "labels": dict(labels)} for address, labels in targets.items()]}
                for job, targets in jobs.items()
            ],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
