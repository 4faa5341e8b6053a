"""The operator as a process of its own, as a container's entry point starts it, with what it says and how it ends."""

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
"""What a pod would read from its service account's folder."""

_COMPLAINTS = (
    *("Traceback", '"level": "error"', '"level": "critical"'),
    *("Not enough permissions", 'User \\"system:serviceaccount:', 'User "system:serviceaccount:'),
)
"""What no operator should ever log: an error nobody thought of, Kopf's and the API server's words for a right that is missing."""
_OF_A_NEW_CRD = "storage is (re)initializing"
"""What the API server may answer in the first second of a CRD; Kopf, which asks again, calls that an error."""


class OperatorProcess:
    """``command`` is what comes before the options; ``folder`` takes the log, and is where the process runs unless said otherwise."""

    def __init__(
        self,
        command: Sequence[str],
        kubeconfig: Path,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        working_directory: Path | None = None,
    ) -> None:
        health, self._port = free_ports(2)
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "operator.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--metrics-port={self._port}", f"--health-port={health}"],
                env={**(os.environ if environment is None else environment), "KUBECONFIG": str(kubeconfig), **_AS_IN_A_POD},
                cwd=working_directory or folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def is_ready(self) -> bool:
        """Whether it says that it knows the cluster."""
        try:
            # Not by the liveness probe, whose answers Kopf keeps for ten seconds.
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def has_decided(self, gang: str, outcome: str) -> bool:
        """Whether it has logged a decision."""
        lines = (json.loads(line) for line in self.log().splitlines() if line.startswith("{") and line.endswith("}"))
        return any(line.get("gang") == gang and line.get("outcome") == outcome for line in lines)

    def wait_until(self, happens: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait for something; fail with the log when it doesn't happen."""
        deadline = time.monotonic() + seconds
        while not happens():
            assert self._process.poll() is None, f"ended: {self.log()}"
            assert time.monotonic() < deadline, f"waited in vain: {self.log()}"
            time.sleep(0.1)

    def stop(self) -> int:
        """Ask it to end, as the kubelet does, and return its exit status. One that doesn't end is killed: ``TimeoutExpired``."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def log(self) -> str:
        """All it has said."""
        return self._log.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """The lines of the log that no operator should write."""
        return complaints_in(self.log())


def complaints_in(said: str) -> list[str]:
    """The lines of what an operator has said that none should say."""
    return [line for line in said.splitlines() if any(words in line for words in _COMPLAINTS) and _OF_A_NEW_CRD not in line]


def shipped_arguments(deployment: Mapping[str, Any]) -> list[str]:
    """The options that the Deployment of config/ gives to the image's entry point."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return list(container["args"])
