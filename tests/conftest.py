"""Settings all tests share, and the two homes of the suite: the sandbox, and a real control plane."""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from allaboard.cli import bundled
from allaboard.sandbox import Sandbox
from tests.cluster import Home

# Shared CI machines stall now and then; a deadline per example would fail for that alone.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

HOMES = ("sandbox", "controlplane")
VERSIONS = pytest.StashKey[str]()


class SandboxHome:
    """A new sandbox for each test."""

    @contextlib.asynccontextmanager
    async def open(self, *, crds: bool = True, **options: Any) -> AsyncIterator[Sandbox]:
        async with Sandbox(**options) as cluster:
            for crd in bundled.crds() if crds else ():
                cluster.apply(crd)
            yield cluster

    def write_operator_kubeconfig(self, cluster: Sandbox, path: Path) -> None:
        """The sandbox lets everybody do everything."""
        cluster.write_kubeconfig(path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--home", choices=HOMES, default="sandbox", help="The cluster that the suite runs on.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--home") == "sandbox":
        return
    for item in items:
        if marker := item.get_closest_marker("sandbox_only"):
            item.add_marker(pytest.mark.skip(reason=f"sandbox only: {marker.args[0]}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if versions := config.stash.get(VERSIONS, ""):
        terminalreporter.write_sep("=", "ran on")
        terminalreporter.write_line(versions)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real control plane, for all tests that want one."""
    # Imported here: whoever runs the tests on the sandbox needs nothing of it.
    from tests.e2e.controlplane.controlplane import ControlPlane

    if os.environ.get("E2E_EXISTING"):
        pytest.fail("E2E_EXISTING: the tests can't use a cluster that is there yet, they boot their own; unset it")
    with ControlPlane(tmp_path_factory.mktemp("controlplane")) as plane:
        yield plane
        request.config.stash[VERSIONS] = plane.describe()


@pytest.fixture(scope="session")
def home(request: pytest.FixtureRequest) -> Home:
    """Lends clusters: ``async with home.open() as cluster``."""
    if request.config.getoption("--home") == "sandbox":
        return SandboxHome()
    from tests.e2e.controlplane.home import ControlPlaneHome

    # A cluster that the variable may name is somebody's; this suite has its own.
    os.environ.pop("KUBECONFIG", None)
    return ControlPlaneHome(request.getfixturevalue("control_plane"), bundled.crds())
