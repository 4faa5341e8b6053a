"""Tests that only a cluster with real kubelets passes: ``make e2e-kind`` says by its variables that it has made one."""

import pytest

from . import nodes

collect_ignore_glob = [] if nodes.CLUSTER else ["test_*.py"]


@pytest.fixture(scope="session")
def worker() -> str:
    """The node that has only what everybody's nodes have."""
    return nodes.WORKER


@pytest.fixture(scope="session")
def control_plane_node() -> str:
    """The node whose kubelet runs the API server, from files."""
    return nodes.CONTROL_PLANE
