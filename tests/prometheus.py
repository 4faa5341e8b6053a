"""Runs a real Prometheus on loopback: Debian's package, unpacked into the tests' cache, without root."""

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cache import cache

PACKAGE = "prometheus"


class MissingPrometheusError(RuntimeError):
    """Raised when Prometheus is neither installed nor available for download."""


def locate() -> Path:
    """Return the program: from ``PATH``, from the cache, or downloaded from Debian's mirror into the cache.

    Raises ``MissingPrometheusError``.
    """
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


def located() -> Path:
    """Return the program as ``locate`` does. If it is missing, skip the test, or fail under CI."""
    try:
        return locate()
    except MissingPrometheusError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


class Prometheus:
    """One Prometheus that scrapes ``jobs``: job name → address of each target → its labels. Its data survive ``kill`` and ``start``.

    ``interval`` is the time between two scrapes, and between two evaluations of the alerts in the file ``rules``, if one is given.
    """

    def __init__(
        self,
        program: Path,
        folder: Path,
        port: int,
        jobs: Mapping[str, Mapping[str, Mapping[str, str]]],
        *,
        interval: str = "200ms",
        rules: Path | None = None,
    ) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._command = [
            *(str(program), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        configuration = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(rules)] if rules else [],
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

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of a PromQL expression, as of now; empty while Prometheus doesn't answer."""
        answer = self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        return [(each["metric"], float(each["value"][1])) for each in answer.get("result", ())]

    def firing(self) -> list[dict[str, str]]:
        """Return the labels of the alerts that fire."""
        return [each["labels"] for each in self._get("/api/v1/alerts").get("alerts", ()) if each["state"] == "firing"]

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self._url}{path}", timeout=10) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it still starts
                return {}
            raise AssertionError(f"{path}: {error.read().decode()}") from error
        except OSError:
            return {}
