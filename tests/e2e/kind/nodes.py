"""The cluster's own nodes, which are docker's containers, and what the operators on them have said."""

import os
import subprocess

from tests.e2e.controlplane.operators import complaints_in

CLUSTER = os.environ.get("E2E_KIND", "")
"""Empty where ``make e2e-kind`` has not made one."""
WORKER, CONTROL_PLANE = f"{CLUSTER}-worker", f"{CLUSTER}-control-plane"
_KEPT = "/var/log/kept"
"""Where kept-logs.service has them."""


def docker(*words: str, stdin: str = "") -> str:
    """What ``docker`` prints."""
    done = subprocess.run(["docker", *words], input=stdin, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


class Logs:
    """Of all containers of the operator that there ever were, also of those that have been killed, and replaced."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def complaints(self) -> list[str]:
        """The lines that no operator should write, each told once."""
        said = [docker("exec", node, "find", _KEPT, "-name", "*.log", "-exec", "cat", "{}", "+") for node in (WORKER, CONTROL_PLANE)]
        assert any(said), "nothing is kept of what the operator has said"
        found = [line for text in said for line in complaints_in(text) if line not in self._told]
        self._told.update(found)
        return found
