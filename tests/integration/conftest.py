"""Fixtures: a cluster, and schedulers that run on it."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from allaboard.app import App
from allaboard.placement import SearchSettings
from allaboard.planning.search_processes import Searcher
from allaboard.records import partial_bind
from allaboard.scheduling import requeues
from allaboard.settings.options import load_settings
from tests.cluster import Cluster, Home
from tests.stories import gang_pod as gang_pod  # most tests here use it
from tests.webhooks import BIND_WEBHOOK

CONFIG = Path(__file__).parents[2] / "config"
PIPELINES = CONFIG / "components" / "pipelines"
NAMESPACE = "allaboard-system"

# Short pauses, which make the tests fast: the queue's own tests cover the defaults, and `test_gpu_metrics.py` covers GPU metrics.
QUICK: dict[str, object] = {
    "metrics_port": 0,
    "api_port": 0,
    "backoff_initial_seconds": 0.05,
    "backoff_max_seconds": 0.2,
    "resync_seconds": 1.0,
    "gpu_metrics": {"source": "off"},
}

StartApp = Callable[..., Awaitable[App]]
Kubectl = Callable[..., Awaitable[str]]


@pytest.fixture(scope="session")
def searcher() -> Iterator[Searcher]:
    """Yield one search process for all tests: it takes longer to start than most tests take to run."""
    with Searcher(SearchSettings()) as shared:
        yield shared


@pytest.fixture
async def cluster(home: Home) -> AsyncIterator[Cluster]:
    """Yield an empty cluster with the PodGroup CRD."""
    async with home.open() as opened:
        yield opened


def without_lease(cluster: Cluster) -> None:
    """Create the operator's namespace as it is shipped, and remove the Lease, so that no replica leads."""
    cluster.apply(yaml.safe_load((CONFIG / "namespace.yaml").read_text()))
    if cluster.get("leases", "allaboard", NAMESPACE):
        cluster.delete("leases", "allaboard", NAMESPACE)


@pytest.fixture
def kubeconfig(home: Home, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the operator's kubeconfig, name it in KUBECONFIG, and return its path."""
    path = tmp_path / "operator.kubeconfig"
    home.write_operator_kubeconfig(cluster, path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def pipeline_rights(cluster: Cluster) -> Iterator[None]:
    """Grant the operator the rights that pipelines need, until the test ends."""
    manifests = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(PIPELINES.glob("cluster-*.yaml"))]
    assert manifests
    for manifest in manifests:
        cluster.apply(manifest)
    yield
    for manifest in manifests:
        cluster.delete(f"{manifest['kind'].lower()}s", manifest["metadata"]["name"])


@pytest.fixture
def watched_binds(cluster: Cluster) -> Iterator[None]:
    """Configure a webhook that matches binds, so that these are dry-run first."""
    cluster.apply(BIND_WEBHOOK)
    yield
    cluster.delete("validatingwebhookconfigurations", BIND_WEBHOOK["metadata"]["name"])


@pytest.fixture
async def start_app(cluster: Cluster, kubeconfig: Path, searcher: Searcher) -> AsyncIterator[StartApp]:
    """Yield a function that starts a scheduler, without Kopf, and returns the scheduler once it makes decisions."""
    async with AsyncExitStack() as stack:

        async def start(**settings: object) -> App:
            options = {**QUICK, **settings}
            app = App(load_settings(options), searcher)
            await app.start()
            stack.push_async_callback(app.stop)
            async with asyncio.timeout(50):
                await app.scheduling.wait()
            return app

        yield start


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the deadline for completing partially bound gangs; a test still has time to see them."""
    monkeypatch.setattr(partial_bind, "FORWARD_SECONDS", 1.0)
    monkeypatch.setattr(requeues, "RETRY_SECONDS", 0.05)


@pytest.fixture
async def app(start_app: StartApp) -> App:
    """Start a scheduler with default settings, except for shorter pauses."""
    return await start_app()


@pytest.fixture
def kubectl_binary() -> str:
    """Return the path of the real kubectl. If it isn't installed, the test is skipped, or fails under CI."""
    binary = shutil.which("kubectl")
    if binary is not None:
        return binary
    if os.environ.get("CI"):
        pytest.fail("CI must have kubectl: nothing else proves that users' commands work")
    pytest.skip("kubectl is not installed")


@pytest.fixture
def kubectl(kubectl_binary: str, cluster: Cluster, tmp_path: Path) -> Kubectl:
    """Return a function that runs kubectl as the cluster's administrator and returns its output."""
    path = tmp_path / "admin.kubeconfig"
    cluster.write_kubeconfig(path)

    async def run(*arguments: str, stdin: str = "", check: bool = True) -> str:
        process = await asyncio.create_subprocess_exec(
            kubectl_binary,
            *arguments,
            env={**os.environ, "KUBECONFIG": str(path), "KUBECACHEDIR": str(tmp_path / "cache")},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(50):
            output, errors = await process.communicate(stdin.encode())
        if check and process.returncode:
            pytest.fail(f"kubectl {' '.join(arguments)} exited with {process.returncode}: {errors.decode()}")
        return output.decode()

    return run
