"""The nodes of the kind cluster, which are docker containers, and the logs of the operators on them."""

import os
import subprocess

from tests.e2e.controlplane.operators import complaints_in

CLUSTER = os.environ.get("E2E_KIND", "")
"""Name of the kind cluster; empty unless ``make e2e-kind`` has created one."""
WORKER, CONTROL_PLANE = f"{CLUSTER}-worker", f"{CLUSTER}-control-plane"
_KEPT = "/var/log/kept"
"""Folder on a node in which kept-logs.service keeps the logs of operators."""


def docker(*words: str, stdin: str = "") -> str:
    """Run ``docker`` and return its output."""
    done = subprocess.run(["docker", *words], input=stdin, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


class Logs:
    """Logs of all containers of the operator, including those that were killed or replaced."""

    def __init__(self) -> None:
        self._returned: set[str] = set()

    def complaints(self) -> list[str]:
        """Return the lines that no operator should write, each line only once."""
        logs = [docker("exec", node, "find", _KEPT, "-name", "*.log", "-exec", "cat", "{}", "+") for node in (WORKER, CONTROL_PLANE)]
        assert any(logs), "no log of the operator is kept"
        found = [line for text in logs for line in complaints_in(text) if line not in self._returned]
        self._returned.update(found)
        return found
