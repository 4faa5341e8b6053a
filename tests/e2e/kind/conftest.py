"""Tests that need real kubelets; they are collected only if ``make e2e-kind`` has created a cluster and named it in a variable."""

import pytest

from . import nodes

collect_ignore_glob = [] if nodes.CLUSTER else ["test_*.py"]


@pytest.fixture(scope="session")
def worker() -> str:
    """Return the name of the worker, the node without the control plane."""
    return nodes.WORKER


@pytest.fixture(scope="session")
def control_plane_node() -> str:
    """Return the name of the node whose kubelet runs the API server as a static pod."""
    return nodes.CONTROL_PLANE
