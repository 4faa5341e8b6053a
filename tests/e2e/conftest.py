"""The operator as it is shipped, in a process of its own, and the cluster it schedules."""

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
        raise pytest.UsageError("E2E_OPERATOR=deployed is for a cluster that is there: set E2E_EXISTING=1 too, and KUBECONFIG")
    if existing.is_operator_deployed():
        chosen = [item for item in items if "alone" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.fixture(scope="session")
def is_deployed() -> bool:
    """Whether an operator runs already on the cluster that the tests were given."""
    return existing.is_operator_deployed()


@pytest.fixture(scope="module")
def alone() -> None:
    """Nobody schedules but whom the test starts: beside an operator that is deployed such tests are left out."""


@pytest.fixture(scope="module")
def start_operator(alone: None, home: Home, log_folder: LogFolder) -> Iterator[StartOperator]:
    """Starts the operator with the shipped options and rights, straight at the API server; returns it when it makes decisions."""
    folder = log_folder("operator")
    arguments = shipped_arguments(yaml.safe_load(DEPLOYMENT.read_text()))
    home.write_direct_operator_kubeconfig(folder / "kubeconfig")
    with _ended() as started:

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
    """What operators have said that tests have not started, where that is kept."""
    return Logs() if CLUSTER else None


@pytest.fixture(scope="module")
def operator(request: pytest.FixtureRequest, home: Home, is_deployed: bool, logs: Logs | None) -> Iterator[OperatorProcess | None]:
    """The operator that schedules while a module's tests run; None is one that the tests have not started."""
    home.furnish()
    yield None if is_deployed else request.getfixturevalue("start_operator")()
    assert logs is None or logs.complaints() == []


@pytest.fixture
async def cluster(home: Home, operator: OperatorProcess | None) -> AsyncIterator[Cluster]:
    """An empty cluster, on which the operator runs and has nothing to complain of."""
    async with home.open() as opened:
        yield opened
    if operator is not None:
        assert operator.complaints() == []


@pytest.fixture
def stage(cluster: Cluster) -> Stage:
    """Where the demo's stories play."""

    async def apply(objects: Objects) -> None:
        for obj in objects:
            cluster.apply(obj)

    return Stage(cluster, apply)


@contextmanager
def _ended() -> Iterator[list[Any]]:
    """Operators that are told to end at last, and must end well."""
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
