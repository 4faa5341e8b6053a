"""Tests that only a cluster with real kubelets passes: ``make e2e-kind`` says by its variables that it has made one."""

import os
import subprocess

import pytest

CLUSTER = os.environ.get("E2E_KIND", "")
collect_ignore_glob = [] if CLUSTER else ["test_*.py"]


@pytest.fixture(scope="session")
def worker() -> str:
    """The node that has only what everybody's nodes have."""
    return f"{CLUSTER}-worker"


@pytest.fixture(scope="session")
def control_plane_node() -> str:
    """The node whose kubelet runs the API server, from files."""
    return f"{CLUSTER}-control-plane"


def docker(*words: str, stdin: str = "") -> str:
    """What ``docker`` prints; nodes are its containers."""
    done = subprocess.run(["docker", *words], input=stdin, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout
