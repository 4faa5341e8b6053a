"""Defines settings that all tests share, and the two homes of the suite: the sandbox, and a real control plane."""

import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from allaboard.cli import bundled
from allaboard_sandbox import Sandbox
from tests.cluster import Home

# Shared CI machines stall now and then, so a deadline for each example would fail without a defect.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

# Processes that tests start can be interrupted, also where nohup or a background shell lets them ignore the signal.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

HOMES = ("sandbox", "controlplane")
VERSIONS = pytest.StashKey[str]()
VERSIONS_OUTPUT = "ran_on"
LOGS = pytest.StashKey[list[Path]]()
"""Folders with logs of the processes that tests have started."""
_LINES_REPORTED = 40

LogFolder = Callable[[str], Path]


class SandboxHome:
    """Lends each test a new sandbox."""

    @contextlib.asynccontextmanager
    async def open(self, *, crds: bool = True, **options: Any) -> AsyncIterator[Sandbox]:
        async with Sandbox(**options) as cluster:
            for crd in bundled.crds() if crds else ():
                cluster.apply(crd)
            yield cluster

    def write_operator_kubeconfig(self, cluster: Sandbox, path: Path) -> None:
        """Write the sandbox's kubeconfig: every client may do everything."""
        cluster.write_kubeconfig(path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--home", choices=HOMES, default="sandbox", help="The cluster that the suite runs on.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--home") == "sandbox" or shutil.which("kubectl"):
        return
    from tests.e2e.controlplane import binaries

    if built := binaries.locate(binaries.KUBECTL):
        os.environ["PATH"] = f"{os.environ['PATH']}{os.pathsep}{built.parent}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # in a worker process: long tests come first, so that no worker ends with the longest
        items.sort(key=lambda item: item.get_closest_marker("timeout") is None)
    if config.getoption("--home") == "sandbox":
        return
    for item in items:
        if marker := item.get_closest_marker("sandbox_only"):
            item.add_marker(pytest.mark.skip(reason=f"sandbox only: {marker.args[0]}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Append the logs of other processes to the report of a failed test."""
    report = yield
    if report.failed:
        own = getattr(item, "funcargs", {}).get("tmp_path")
        folders = [*item.config.stash.get(LOGS, []), *([own] if own else [])]
        for log in (log for folder in folders for log in sorted(folder.rglob("*.log")) if log.stat().st_mtime >= call.start):
            lines = log.read_text(errors="replace").splitlines()[-_LINES_REPORTED:]
            report.sections.append((f"the end of {log.parent.name}/{log.name}", "\n".join(lines)))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[VERSIONS_OUTPUT] = session.config.stash.get(VERSIONS, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the versions that worker processes ran on."""
    parts = (node.config.stash.get(VERSIONS, ""), getattr(node, "workeroutput", {}).get(VERSIONS_OUTPUT, ""))
    node.config.stash[VERSIONS] = ", ".join(dict.fromkeys(each for part in parts for each in part.split(", ") if each))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if versions := config.stash.get(VERSIONS, ""):
        terminalreporter.write_sep("=", "ran on")
        terminalreporter.write_line(versions)


@pytest.fixture(scope="session")
def log_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LogFolder:
    """Return a function that makes folders for processes; the logs in them are appended to the report of a failed test."""
    folders = request.config.stash.setdefault(LOGS, [])

    def make(name: str) -> Path:
        folders.append(tmp_path_factory.mktemp(name))
        return folders[-1]

    return make


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, log_folder: LogFolder) -> Iterator[Any]:
    """Lend a real control plane: a booted one, or with ``E2E_EXISTING`` the cluster that ``KUBECONFIG`` names."""
    # Imported here, since tests on the sandbox don't need these modules.
    from tests.e2e.controlplane import access, controlplane, existing

    folder = log_folder("controlplane")
    try:
        if existing.is_wanted():
            lent: Any = existing.ExistingCluster(folder, is_operator_deployed=existing.is_operator_deployed())
        else:
            lent = controlplane.ControlPlane(folder)
        with lent as plane:
            # The variable may name a user's cluster; only this fixture uses it.
            os.environ.pop("KUBECONFIG", None)
            yield plane
            request.config.stash[VERSIONS] = plane.describe()
    except access.UnusableError as error:
        pytest.exit(f"E2E_EXISTING: {error}", returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(autouse=True, scope="session")
def kubectl_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give kubectl a new cache: it caches what a cluster serves by its port, and an earlier cluster may have had that port."""
    os.environ["KUBECACHEDIR"] = str(tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(autouse=True)
def is_new_enough(request: pytest.FixtureRequest) -> None:
    """Skip a test for which the cluster's Kubernetes is too old; the sandbox behaves as the newest release."""
    marker = request.node.get_closest_marker("needs_kubernetes")
    if marker is None or request.config.getoption("--home") == "sandbox":
        return
    from tests.e2e.controlplane import existing, releases

    minor, why = marker.args
    version = request.getfixturevalue("control_plane").version
    if releases.order(version)[:2] < releases.order(minor):
        reason = f"needs Kubernetes {minor}, and this is {version}: {why}"
        if os.environ.get("CI") and not releases.is_stated() and not existing.is_wanted():
            pytest.fail(f"{reason}; the newest should be there where no other was asked for")
        pytest.skip(reason)


@pytest.fixture(scope="session")
def home(request: pytest.FixtureRequest) -> Home:
    """Return the object that lends clusters: ``async with home.open() as cluster``."""
    if request.config.getoption("--home") == "sandbox":
        return SandboxHome()
    from tests.e2e.controlplane import existing, guest, home

    lends = guest.GuestHome if existing.is_wanted() else home.ControlPlaneHome
    return lends(request.getfixturevalue("control_plane"), bundled.crds())
