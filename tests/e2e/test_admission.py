"""The shipped admission webhooks on a real API server, which calls them over loopback instead of through a Service."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from allaboard_sandbox import ApiError
from tests.cluster import Body, Cluster, Home
from tests.conftest import LogFolder
from tests.stories import MINIMUM, NAME, bound, gang_pod, gpu_nodes, pods, running, status_of

from .conftest import DEPLOYMENT
from .controlplane import existing
from .controlplane.operators import OperatorProcess, shipped_arguments
from .controlplane.processes import free_ports
from .workloads import deployment, job, stateful_set

CONFIG = Path(__file__).parents[2] / "config"
COMPONENT = CONFIG / "components" / "admission"
TFJOB = Path(__file__).with_name("tfjob-2020.yaml")
SECRET = "/api/v1/namespaces/allaboard-system/secrets/allaboard-admission"
SCHEDULE = "allaboard.dev/schedule"
_PATIENT_SECONDS = 10  # on a busy machine the shipped timeout of a second may pass, and the webhook would be ignored
_DEFAULT_TIMEOUT_SECONDS = 10  # the API server's timeout of a webhook that states none

Start = Callable[[], OperatorProcess]


@pytest.fixture(scope="module")
def installed(alone: None, home: Home, control_plane: Any) -> Iterator[None]:
    """Install the rights and webhook configurations of the admission component, and opt the namespace default in."""
    if existing.is_wanted():
        pytest.skip("the API server of an existing cluster can't call a process on this machine")
    home.prepare_crds()  # type: ignore[attr-defined]
    manifests = [yaml.safe_load(path.read_text()) for path in sorted(COMPONENT.glob("*.yaml"))]
    kinds = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    manifests = [manifest for manifest in manifests if manifest["kind"] in kinds]
    for manifest in manifests:
        control_plane.api.apply(_called_on_this_machine(manifest, _PATIENT_SECONDS))
    _label(control_plane, "default", "true")
    yield
    _label(control_plane, "default", None)
    for manifest in manifests:
        resource = control_plane.api.resource(manifest["kind"], manifest["apiVersion"])
        control_plane.api.request("DELETE", resource.path(manifest["metadata"].get("namespace"), manifest["metadata"]["name"]))


@pytest.fixture(scope="module")
def start(installed: None, home: Home, control_plane: Any, log_folder: LogFolder) -> Iterator[Start]:
    """Yield a function that starts the operator with the component's settings, and returns it once its webhooks are called."""
    folder = log_folder("operator")
    home.write_direct_operator_kubeconfig(folder / "kubeconfig")  # type: ignore[attr-defined]
    settings = {"ADMISSION_PORT": str(_port()), "ADMISSION_HOSTS": "127.0.0.1", "RESYNC_SECONDS": "1"}
    environment = {**os.environ, "PYTHONWARNINGS": "error", **{f"ALLABOARD_{name}": value for name, value in settings.items()}}
    command = [sys.executable, "-m", "allaboard", "run", *shipped_arguments(yaml.safe_load(DEPLOYMENT.read_text()))]
    started: list[OperatorProcess] = []

    def start() -> OperatorProcess:
        process = OperatorProcess(command, folder / "kubeconfig", folder / str(len(started)), environment)
        started.append(process)
        process.wait_until(process.is_ready)
        process.wait_until(lambda: _refuses(control_plane))
        return process

    yield start
    ends = [process.stop() for process in started]
    assert ends == [0] * len(started), "\n".join(process.log() for process in started)


@pytest.fixture(scope="module")
def operator(start: Start) -> OperatorProcess:
    return start()


@pytest.fixture
async def cluster(home: Home, operator: OperatorProcess) -> AsyncIterator[Cluster]:
    """Yield an empty cluster on which the operator serves webhooks, and assert that the operator logs no complaint."""
    async with home.open() as opened:
        yield opened
    assert operator.complaints() == []


def test_api_server_accepts_the_admission_component_without_a_warning(home: Home, control_plane: Any, tmp_path: Path) -> None:
    home.prepare_crds()  # type: ignore[attr-defined]
    folders = {"resources": CONFIG, "components": COMPONENT}
    overlay = {name: [os.path.relpath(path, tmp_path.resolve())] for name, path in folders.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    manifests = yaml.safe_load_all(_kubectl(control_plane, "kustomize", str(tmp_path)).stdout)
    changed = [each for each in manifests if each["kind"] == "Deployment" or each["metadata"]["name"] == "allaboard-admission"]

    words = ("--dry-run=server", "--warnings-as-errors", "--validate=strict")
    done = _kubectl(control_plane, "apply", "-f", "-", *words, stdin=yaml.safe_dump_all(changed))

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(list(COMPONENT.glob("*.yaml"))) - 1
    (container,) = next(each for each in changed if each["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {"name": "ALLABOARD_ADMISSION_PORT", "value": str(ports["admission"])} in container["env"]
    assert ports.keys() == {"metrics", "health", "admission"}


async def test_tfjob_manifest_of_2020_that_names_no_scheduler_is_scheduled_whole_without_changes(
    cluster: Cluster, control_plane: Any
) -> None:
    gpu_nodes(cluster)

    assert "created" in _kubectl(control_plane, "apply", "-f", str(TFJOB)).stdout

    await cluster.wait_for(lambda s: running(s, "tf-smoke-gpu") == 5, timeout=20, message="all five run")
    assert {pod["spec"]["schedulerName"] for pod in pods(cluster)} == {"allaboard"}
    assert len({pod["spec"]["nodeName"] for pod in pods(cluster)}) == 1
    await cluster.wait_for(
        lambda s: status_of(s, "tf-smoke-gpu").get("scheduled") == 5, message="the PodGroup's status counts five members"
    )
    (tfjob,) = cluster.list("tfjobs")
    assert not [role for role in tfjob["spec"]["tfReplicaSpecs"].values() if "schedulerName" in role["template"]["spec"]]


@pytest.mark.parametrize(
    ("minimum", "words"), [('"five"', "'five' is not a whole number of at least 1"), ('"0"', "'0' is not a whole number of at least 1")]
)
async def test_job_with_an_invalid_label_is_refused_with_the_field_when_it_is_applied(
    minimum: str, words: str, cluster: Cluster, control_plane: Any
) -> None:
    wrong = TFJOB.read_text().replace('min-available: "5"', f"min-available: {minimum}")

    done = _kubectl(control_plane, "apply", "-f", "-", stdin=wrong)

    assert done.returncode == 1
    assert f"spec.tfReplicaSpecs.PS.template.metadata.labels[{MINIMUM}]: {words}" in done.stderr
    assert not cluster.list("tfjobs")


@pytest.mark.parametrize("make", [deployment, stateful_set, job])
async def test_built_in_workload_with_an_invalid_label_is_refused_with_the_field(make: Callable[..., Body], cluster: Cluster) -> None:
    workload = make("web", 4, {"cpu": "1"}, **({"duration": "1s"} if make is job else {}))
    workload["spec"]["template"]["metadata"]["labels"][MINIMUM] = "four"

    with pytest.raises(ApiError, match=r"spec\.template\.metadata\.labels\[.*min-available\]: .*'four' is not a whole number") as caught:
        cluster.create(workload)

    assert caught.value.status == 422


async def test_workload_that_is_already_invalid_can_be_changed(cluster: Cluster, control_plane: Any) -> None:
    workload = deployment("web", 2, {"cpu": "1"})
    workload["spec"]["template"]["metadata"]["labels"][MINIMUM] = "two"
    with _opted_out(control_plane):
        cluster.create(workload)

    cluster.patch("deployments", "web", {"metadata": {"annotations": {"note": "x"}}})
    metadata = {"annotations": {"allaboard.dev/objective": "tetris"}, "labels": {MINIMUM: "2"}}
    with pytest.raises(ApiError, match="tetris"):
        cluster.patch("deployments", "web", {"spec": {"template": {"metadata": metadata}}})


async def test_webhook_changes_only_gang_pods_without_a_scheduler_in_opted_in_namespaces(cluster: Cluster) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
    alone = gang_pod("alone")
    alone["metadata"]["labels"] = {"app": "web"}
    given = {
        "names-none": cluster.create(_without_scheduler(alone)),
        "names-another": cluster.create(gang_pod("theirs", schedulerName="somebody-else")),
        "names-another-and-is-wrong": cluster.create(gang_pod("theirs-wrong", minimum="five", schedulerName="somebody-else")),
        "has-a-node": cluster.create(_without_scheduler(gang_pod("placed", nodeName="node-1"))),
        "not-opted-in": cluster.create(_without_scheduler(gang_pod("elsewhere", namespace="elsewhere"))),
        "not-opted-in-and-wrong": cluster.create(_without_scheduler(gang_pod("elsewhere-wrong", minimum="five", namespace="elsewhere"))),
    }

    assert {name: pod["spec"]["schedulerName"] for name, pod in given.items()} == {
        name: "somebody-else" if name.startswith("names-another") else "default-scheduler" for name in given
    }
    assert cluster.create(_without_scheduler(gang_pod("ours")))["spec"]["schedulerName"] == "allaboard"


async def test_new_certificate_is_served_without_a_restart_or_a_failed_request(
    cluster: Cluster, control_plane: Any, operator: OperatorProcess
) -> None:
    before = await asyncio.to_thread(_served)

    control_plane.api.request("DELETE", SECRET)

    missed = 0
    while await asyncio.to_thread(_served) == before:
        missed += not await asyncio.to_thread(_refuses, control_plane)
    for _ in range(20):
        missed += not await asyncio.to_thread(_refuses, control_plane)
    assert missed == 0
    assert operator.log().count("scheduling begins") == 1


async def test_pods_are_created_unchanged_and_without_delay_while_the_webhook_is_down(
    operator: OperatorProcess, start: Start, home: Home, control_plane: Any
) -> None:
    for configuration in COMPONENT.glob("*-webhook.yaml"):
        control_plane.api.apply(_called_on_this_machine(yaml.safe_load(configuration.read_text())))
    async with home.open() as cluster:
        assert await asyncio.to_thread(operator.stop) == 0
        # No process listens at the port.
        began = time.monotonic()
        unchecked = [await asyncio.to_thread(cluster.create, _without_scheduler(gang_pod("unchecked-1", minimum="five")))]
        # A process listens, and never answers.
        with socket.create_server(("127.0.0.1", _port())):
            unchecked.append(await asyncio.to_thread(cluster.create, _without_scheduler(gang_pod("unchecked-2", minimum="five"))))
        took = time.monotonic() - began

        assert [pod["spec"]["schedulerName"] for pod in unchecked] == ["default-scheduler"] * 2
        assert took < _DEFAULT_TIMEOUT_SECONDS / 2

        await asyncio.to_thread(start)
        cluster.add_node("node-1")
        for number in range(3):
            cluster.create(_without_scheduler(gang_pod(f"again-{number}", "again")))
        await cluster.wait_for(lambda s: len(bound(s, "again")) == 3, message="the gang is scheduled by the operator again")


@cache
def _port() -> int:
    """Return the port at which the webhooks are served."""
    return free_ports(1)[0]


def _called_on_this_machine(manifest: Body, seconds: int | None = None) -> Body:
    """Return a manifest whose webhooks, if any, are called on this machine; ``seconds`` replaces the shipped timeout."""
    webhooks = [
        {
            **webhook,
            "clientConfig": {"url": f"https://127.0.0.1:{_port()}{webhook['clientConfig']['service']['path']}"},
            "timeoutSeconds": seconds or webhook["timeoutSeconds"],
        }
        for webhook in manifest.get("webhooks", ())
    ]
    return {**manifest, **({"webhooks": webhooks} if webhooks else {})}


def _without_scheduler(pod: Body) -> Body:
    return {**pod, "spec": {key: value for key, value in pod["spec"].items() if key != "schedulerName" or value != "allaboard"}}


def _refuses(plane: Any) -> bool:
    """Return whether two webhooks work: one must refuse an invalid pod, the other an invalid ReplicaSet."""
    template = {"metadata": {"labels": {NAME: "probe"}}, "spec": {"containers": [{"name": "main", "image": "pause"}]}}
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "probe", **template["metadata"]}}
    group = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "probe"}}
    group["spec"] = {"selector": {"matchLabels": {NAME: "probe"}}, "template": template}
    return all(_is_refused(plane, obj) for obj in (pod, group))


def _is_refused(plane: Any, obj: Body) -> bool:
    resource = plane.api.resource(obj["kind"], obj["apiVersion"])
    try:
        plane.api.request("POST", resource.path("default"), obj, {"dryRun": "All"})
    except ApiError as error:
        assert "allaboard.dev" in error.message, error
        return True
    return False


def _served() -> str:
    """Return the certificate that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", _port()), timeout=5)


def _label(plane: Any, namespace: str, value: str | None) -> None:
    body = {"metadata": {"labels": {SCHEDULE: value}}}
    plane.api.request("PATCH", f"/api/v1/namespaces/{namespace}", body, content_type="application/merge-patch+json")


@contextmanager
def _opted_out(plane: Any) -> Iterator[None]:
    """Opt the namespace default out during the context. Wait at both ends, since the API server sees a changed label with a delay."""
    _label(plane, "default", None)
    while _refuses(plane):
        time.sleep(0.05)
    yield
    _label(plane, "default", "true")
    while not _refuses(plane):
        time.sleep(0.05)


def _kubectl(plane: Any, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("kubectl")
    assert program, "kubectl is not installed"
    command = [program, "--kubeconfig", str(plane.kubeconfig), *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
