"""A real Prometheus reads a real operator: queries of the dashboard and alerts return data, and each alert fires for its cause."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from allaboard.model.limits import LABELS
from allaboard.model.pod import WALLTIME
from allaboard.report.metric_definitions import DEFINITIONS
from tests.cluster import Cluster, Home
from tests.conftest import LogFolder
from tests.exporters import dcgm, served
from tests.monitoring.alerts import ALERTS
from tests.monitoring.cases import CASES, unit_tests
from tests.monitoring.files import RULES
from tests.monitoring.panels import ROWS
from tests.prometheus import Prometheus, located
from tests.stories import bound, gang_pod, running, status_of

from .conftest import DEPLOYMENT
from .controlplane.operators import OperatorProcess, shipped_arguments
from .controlplane.processes import free_ports
from .shipped import ROOT

GPU = "nvidia.com/gpu"
QUERIES = dict.fromkeys(
    (
        *(query.expression for row in ROWS for panel in row.panels for query in panel.queries),
        *(condition.query for alert in ALERTS for condition in alert.conditions),
    )
)


@pytest.fixture(scope="module")
def program() -> Path:
    """Return the path of Prometheus. If it is missing, the test is skipped, or fails under CI."""
    return located()


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the alerts of config/, as Prometheus reads it."""
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load((ROOT / RULES).read_text(encoding="utf-8"))["spec"]), encoding="utf-8")
    return path


def promtool(program: Path, *words: str | Path) -> str:
    """Run promtool, which must succeed, and return its output."""
    done = subprocess.run([program.with_name("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_alerts(program: Path, rules: Path) -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool(program, "check", "rules", "--lint-fatal", rules)


def test_each_alert_fires_for_its_cause_after_its_time_and_no_other_alert_does(program: Path, rules: Path) -> None:
    assert {case.alert for case in CASES} == {alert.name for alert in ALERTS}
    path = rules.with_name("tests.yaml")
    path.write_text(yaml.safe_dump(unit_tests(rules.name)), encoding="utf-8")
    assert "SUCCESS" in promtool(program, "test", "rules", path)


@dataclass(frozen=True, slots=True)
class Monitored:
    """A running operator, its configuration file, the Prometheus that reads it, and the port of an exporter of GPU metrics."""

    operator: OperatorProcess
    configuration: Path
    prometheus: Prometheus
    exporter_port: int


@pytest.fixture(scope="module")
def monitored(alone: None, home: Home, program: Path, rules: Path, log_folder: LogFolder) -> Iterator[Monitored]:
    """Yield an operator with the shipped options, which reads the metrics of GPUs from the Prometheus that reads the operator."""
    home.prepare_crds()  # type: ignore[attr-defined]
    folder, (port, exporter) = log_folder("monitored"), free_ports(2)
    home.write_direct_operator_kubeconfig(folder / "kubeconfig")  # type: ignore[attr-defined]
    configuration = folder / "settings.yaml"
    configuration.write_text("objective: fragmentation\n", encoding="utf-8")
    arguments = shipped_arguments(yaml.safe_load(DEPLOYMENT.read_text()))
    environment = {
        **os.environ,
        "ALLABOARD_CONFIG": str(configuration),
        "ALLABOARD_GPU_METRICS__URL": f"http://127.0.0.1:{port}",
        "ALLABOARD_GPU_METRICS__INTERVAL_SECONDS": "1",
        "ALLABOARD_STRATEGIES": "bestfit",
    }
    with ExitStack() as stack:
        operator = OperatorProcess([sys.executable, "-m", "allaboard", "run", *arguments], folder / "kubeconfig", folder, environment)
        stack.callback(operator.stop)
        jobs = {
            "allaboard-metrics": {f"127.0.0.1:{operator.metrics_port}": {"namespace": "allaboard-system"}},
            "nvidia-dcgm-exporter": {f"127.0.0.1:{exporter}": {"pod": "exporter-x", "namespace": "gpu-operator"}},
        }
        prometheus = Prometheus(program, folder, port, jobs, interval="500ms", rules=rules)
        prometheus.start()
        stack.callback(prometheus.kill)
        operator.wait_until(operator.is_ready)
        yield Monitored(operator, configuration, prometheus, exporter)


@pytest.fixture
async def cluster(monitored: Monitored, home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster with two nodes of four GPUs, on which the operator of ``monitored`` schedules."""
    async with home.open() as opened:
        for name in ("n1", "n2"):
            opened.add_node(name, cpu="8", gpus=4)
        yield opened


def create_gang(cluster: Cluster, name: str, size: int, gpus: int, **options: str) -> None:
    """Create a gang of bare pods with so many GPUs each; ``options`` are annotations."""
    for number in range(size):
        pod = gang_pod(f"{name}-{number}", name, size, annotations=options)
        resources = {"cpu": "1", GPU: str(gpus)}
        pod["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": {GPU: str(gpus)}}
        cluster.create(pod)


def without_numbers(prometheus: Prometheus) -> list[str]:
    """Return the queries of dashboard and alerts for which Prometheus has no number."""
    return [query for query in QUERIES if not any(math.isfinite(value) for _, value in prometheus.query(query))]


async def test_every_query_of_dashboard_and_alerts_returns_data_of_a_running_operator(cluster: Cluster, monitored: Monitored) -> None:
    prometheus = monitored.prometheus
    await cluster.wait_for(lambda _: bool(prometheus.query("allaboard_leader")), message="Prometheus reads the operator")
    create_gang(cluster, "first", 2, 4, **{WALLTIME: "1h"})
    await cluster.wait_for(lambda s: running(s, "first") == 2, message="the first gang runs")
    create_gang(cluster, "second", 2, 3)
    await cluster.wait_for(lambda s: bool(status_of(s, "second").get("expectedStart")), message="the second gang has an expected start")
    for pod in bound(cluster, "first"):
        cluster.finish_pod(pod["metadata"]["name"])
    await cluster.wait_for(lambda s: running(s, "second") == 2, message="the second gang runs, earlier than expected")
    create_gang(cluster, "third", 2, 4)

    async with served(lambda: dcgm("n1", 2), port=monitored.exporter_port):
        await cluster.wait_for(lambda _: not without_numbers(prometheus), message="each query returns a number")

    gpus = {labels["state"]: value for labels, value in prometheus.query("allaboard_gpus")}
    assert (gpus["allocatable"], gpus["used"], gpus["free"]) == (8.0, 6.0, 2.0)
    scraped = {labels["__name__"] for labels, _ in prometheus.query('{__name__=~"allaboard_.*"}')}
    assert scraped == {series for definition in DEFINITIONS for series in definition.series}
    assert prometheus.firing() == []


async def test_alert_on_a_refused_configuration_fires_when_the_file_is_broken(cluster: Cluster, monitored: Monitored) -> None:
    before = monitored.configuration.read_text(encoding="utf-8")
    monitored.configuration.write_text("objective: fragmantation\n", encoding="utf-8")
    await cluster.wait_for(lambda _: fires(monitored, "AllaboardConfigurationIsRefused"), message="the alert fires")
    monitored.configuration.write_text(before, encoding="utf-8")


async def test_alert_on_limits_fires_when_a_pod_has_too_many_labels(cluster: Cluster, monitored: Monitored) -> None:
    pod = gang_pod("large", "large", 1)
    pod["metadata"]["labels"] |= {f"example.com/label-{number}": "x" for number in range(LABELS.most)}
    cluster.create(pod)
    await cluster.wait_for(lambda _: fires(monitored, "AllaboardLimitsAreExceeded", what=LABELS.name), message="the alert fires")


async def test_alert_on_failed_searches_fires_when_search_processes_are_killed(cluster: Cluster, monitored: Monitored) -> None:
    in_process = {"allaboard.dev/strategy": "bestfit"}  # the default search places such a small gang within the operator
    create_gang(cluster, "before", 2, 1, **in_process)
    await cluster.wait_for(lambda s: running(s, "before") == 2, message="the search processes have started")
    for pid in search_processes(monitored.operator.pid):
        os.kill(pid, signal.SIGKILL)
    create_gang(cluster, "after", 2, 1, **in_process)
    await cluster.wait_for(lambda s: running(s, "after") == 2, message="the gang is tried again")
    await cluster.wait_for(lambda _: fires(monitored, "AllaboardSearchesFail", reason="died"), message="the alert fires")


def fires(monitored: Monitored, alert: str, **labels: str) -> bool:
    """Return whether an alert with ``labels`` fires."""
    wanted = {"alertname": alert, **labels}.items()
    return any(wanted <= each.items() for each in monitored.prometheus.firing())


def search_processes(operator: int) -> list[int]:
    """Return the numbers of the operator's search processes: its children that Python's multiprocessing has spawned."""
    children = [int(pid) for task in Path(f"/proc/{operator}/task").iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in children if b"multiprocessing.spawn" in Path(f"/proc/{pid}/cmdline").read_bytes()]
