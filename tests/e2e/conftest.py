"""Fixtures: the operator as it is shipped, in a process of its own, and the cluster that it schedules."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from allaboard.cli.stories import Objects, Stage
from tests.cluster import Cluster, Home
from tests.conftest import LogFolder

from .controlplane import existing
from .controlplane.operators import OperatorProcess, shipped_arguments
from .kind.nodes import CLUSTER, Logs

HERE = Path(__file__).parent
DEPLOYMENT = HERE.parents[1] / "config" / "operator" / "deployment.yaml"

StartOperator = Callable[[], OperatorProcess]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--home") == "sandbox" and any(item.path.is_relative_to(HERE) for item in items):
        raise pytest.UsageError("the end-to-end tests need a real control plane: add --home=controlplane, or run `make e2e`")
    if existing.is_operator_deployed() and not existing.is_wanted():
        raise pytest.UsageError("E2E_OPERATOR=deployed is for an existing cluster: set E2E_EXISTING=1 and KUBECONFIG as well")
    if existing.is_operator_deployed():
        chosen = [item for item in items if "alone" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.fixture(scope="session")
def is_deployed() -> bool:
    """Return whether an operator already runs on the cluster of the tests."""
    return existing.is_operator_deployed()


@pytest.fixture(scope="module")
def alone() -> None:
    """Mark tests in which only operators that the test starts may schedule; they are deselected where an operator is deployed."""


@pytest.fixture(scope="module")
def start_operator(alone: None, home: Home, log_folder: LogFolder) -> Iterator[StartOperator]:
    """Yield a function that starts the operator, and returns it once it makes decisions.

    The operator has the shipped options and rights, and connects to the API server without the fault proxy.
    """
    folder = log_folder("operator")
    arguments = shipped_arguments(yaml.safe_load(DEPLOYMENT.read_text()))
    home.write_direct_operator_kubeconfig(folder / "kubeconfig")
    with _stopped_at_the_end() as started:

        def start() -> OperatorProcess:
            command = [sys.executable, "-m", "allaboard", "run", *arguments]
            environment = {**os.environ, "PYTHONWARNINGS": "error"}
            process = OperatorProcess(command, folder / "kubeconfig", folder / str(len(started)), environment)
            started.append(process)
            process.wait_until(process.is_ready)
            return process

        yield start


@pytest.fixture(scope="session")
def logs() -> Logs | None:
    """Return the logs of operators that the tests haven't started; None where they aren't kept."""
    return Logs() if CLUSTER else None


@pytest.fixture(scope="module")
def operator(request: pytest.FixtureRequest, home: Home, is_deployed: bool, logs: Logs | None) -> Iterator[OperatorProcess | None]:
    """Yield the operator that schedules while a module's tests run; None if the tests haven't started it."""
    home.prepare_crds()
    yield None if is_deployed else request.getfixturevalue("start_operator")()
    assert logs is None or logs.complaints() == []


@pytest.fixture
async def cluster(home: Home, operator: OperatorProcess | None) -> AsyncIterator[Cluster]:
    """Yield an empty cluster on which the operator runs, and assert that the operator logs no complaint."""
    async with home.open() as opened:
        yield opened
    if operator is not None:
        assert operator.complaints() == []


@pytest.fixture
def stage(cluster: Cluster) -> Stage:
    """Return a stage for the demo's stories, which applies objects through ``cluster``."""

    async def apply(objects: Objects) -> None:
        for obj in objects:
            cluster.apply(obj)

    return Stage(cluster, apply)


@contextmanager
def _stopped_at_the_end() -> Iterator[list[Any]]:
    """Yield a list for started operators; at the end stop each, and assert that all exit with 0."""
    started: list[OperatorProcess] = []
    try:
        yield started
    finally:
        ends = []
        for process in started:
            try:
                ends.append(process.stop())
            except subprocess.TimeoutExpired:
                ends.append(-9)
    assert ends == [0] * len(started), "\n".join(process.log() for process in started)
