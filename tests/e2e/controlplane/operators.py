"""Runs the operator in a process of its own, like a container's entry point, and reads its log and exit status."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .processes import free_ports

START_SECONDS = 90.0
STOP_SECONDS = 20.0
_AS_IN_A_POD = {"ALLABOARD_LEASE_NAMESPACE": "allaboard-system"}
"""Settings that a pod would read from the folder of its service account."""

_COMPLAINTS = (
    *("Traceback", '"level": "error"', '"level": "critical"'),
    *("Not enough permissions", 'User \\"system:serviceaccount:', 'User "system:serviceaccount:'),
)
"""Texts that no operator should log: unexpected errors, and messages of Kopf and the API server about missing rights."""
_OF_A_NEW_CRD = "storage is (re)initializing"
"""Answer of the API server in the first second of a CRD, which Kopf logs as an error before it retries."""


class OperatorProcess:
    """A running operator. ``command`` lacks only the options of ports; ``folder`` is for the log, and the default working directory.

    ``has_api`` is false for an older version without the option of the API's port.
    """

    def __init__(
        self,
        command: Sequence[str],
        kubeconfig: Path,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        working_directory: Path | None = None,
        *,
        has_api: bool = True,
    ) -> None:
        health, self._port = free_ports(2)
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "operator.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--metrics-port={self._port}", f"--health-port={health}", *(["--api-port=0"] if has_api else [])],
                env={**(os.environ if environment is None else environment), "KUBECONFIG": str(kubeconfig), **_AS_IN_A_POD},
                cwd=working_directory or folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def metrics_port(self) -> int:
        """The port on which the operator serves its metrics."""
        return self._port

    @property
    def pid(self) -> int:
        """The number of the operator's process."""
        return self._process.pid

    def is_ready(self) -> bool:
        """Return whether the operator reports that it has read the cluster."""
        try:
            # The liveness probe isn't used, because Kopf caches its answers for ten seconds.
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def has_decided(self, gang: str, outcome: str) -> bool:
        """Return whether the operator has logged a decision on ``gang`` with ``outcome``."""
        lines = (json.loads(line) for line in self.log().splitlines() if line.startswith("{") and line.endswith("}"))
        return any(line.get("gang") == gang and line.get("outcome") == outcome for line in lines)

    def wait_until(self, happens: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait until ``happens()``; fail with the log if the operator ends or ``seconds`` pass first."""
        deadline = time.monotonic() + seconds
        while not happens():
            assert self._process.poll() is None, f"ended: {self.log()}"
            assert time.monotonic() < deadline, f"timed out: {self.log()}"
            time.sleep(0.1)

    def stop(self) -> int:
        """Terminate the operator as a kubelet does, and return its exit status. Raises ``TimeoutExpired`` after a kill."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def log(self) -> str:
        """Return all that the operator has logged."""
        return self._log.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """Return the lines of the log that no operator should write."""
        return complaints_in(self.log())


def complaints_in(log: str) -> list[str]:
    """Return the lines of a log that no operator should write."""
    return [line for line in log.splitlines() if any(words in line for words in _COMPLAINTS) and _OF_A_NEW_CRD not in line]


def shipped_arguments(deployment: Mapping[str, Any]) -> list[str]:
    """Return the options that the Deployment of config/ passes to the image's entry point."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return list(container["args"])
