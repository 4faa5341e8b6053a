"""The operator is installed and removed with the documented commands of kubectl and Helm, while a gang of real containers runs on."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from allaboard_sandbox import ApiError
from tests.cluster import Body, Cluster
from tests.e2e.controlplane.binaries import HELM, ensure
from tests.e2e.document import commands_under
from tests.e2e.workloads import deployment_of
from tests.stories import MINIMUM, pods, running

from .nodes import CLUSTER, Logs
from .real import PATIENCE, ROOT, TINY, is_deployed_whole, play, template

NAMESPACE = "allaboard-system"
OVERLAY = Path(os.environ["E2E_KIND_KUBECONFIG"]).parent
"""Overlay of config/ from which the operator was installed."""
SCHEDULE = "allaboard.dev/schedule"
KINDS = (
    "deployments,replicasets,pods,services,configmaps,secrets,leases,jobs,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,"
    "priorityclasses,mutatingwebhookconfigurations,validatingwebhookconfigurations"
)

Run = Callable[[str], str]

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
async def installed_again(cluster: Cluster) -> AsyncIterator[None]:
    """At the end of a test, install the operator again as it was installed before the tests, and opt the namespace default out."""
    try:
        yield
    finally:
        cluster.patch("namespaces", "default", {"metadata": {"labels": {SCHEDULE: None}}})
        await asyncio.to_thread(play, f"kubectl apply -k {OVERLAY}")
        await cluster.wait_for(is_deployed_whole, 2 * PATIENCE, "the operator is deployed again")


@pytest.fixture
def with_admission(tmp_path: Path) -> Path:
    """Return an overlay of the first installation with the webhooks."""
    folders = {"resources": OVERLAY, "components": ROOT / "config" / "components" / "admission"}
    overlay = {key: [os.path.relpath(path, tmp_path.resolve())] for key, path in folders.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return tmp_path


@pytest.fixture
def helm() -> Iterator[Run]:
    """Yield a function that runs commands of Helm, and remove the release at the end."""
    play_helm = partial(play, path=ensure([HELM], Console(stderr=True))["helm"].parent)
    yield play_helm
    play_helm(f"helm uninstall allaboard --namespace {NAMESPACE} --ignore-not-found --wait")


@pytest.fixture
def uncordoned(cluster: Cluster, worker: str) -> Iterator[None]:
    """Uncordon the worker during the test, for pods without tolerations."""
    play(f"kubectl uncordon {worker}")
    yield
    play(f"kubectl cordon {worker}")


async def test_webhooks_are_called_through_their_service_and_are_removed_with_the_operator_while_gangs_run(
    cluster: Cluster, worker: str, control_plane_node: str, logs: Logs, installed_again: None, with_admission: Path
) -> None:
    both = (worker, control_plane_node)

    await asyncio.to_thread(play, f"kubectl apply -k {with_admission}")
    cluster.patch("namespaces", "default", {"metadata": {"labels": {SCHEDULE: "true"}}})
    await cluster.wait_for(
        lambda _: "schedulerName: allaboard" in play(trial_command()), PATIENCE, "a pod that names no scheduler gets ours"
    )

    cluster.create(without_scheduler("stays", 2, both))
    await cluster.wait_for(lambda s: running(s, "stays") == 2, PATIENCE, "a gang that names no scheduler runs")
    with pytest.raises(ApiError, match=f"{re.escape(MINIMUM)}.*'two' is not a whole number"):
        cluster.create(without_scheduler("wrong", "two", both))
    stays = phases_and_nodes(cluster, "stays")

    await remove(cluster, logs, play, f"kubectl delete -k {with_admission} --ignore-not-found")

    # Objects that the operator has created stay, as docs/install.md says.
    assert ours() == {"Lease/allaboard", "Secret/allaboard-admission"}
    cluster.create(without_scheduler("wrong", "two", both))
    await cluster.wait_for(lambda s: len(pods(s, "wrong")) == 2, PATIENCE, "pods are admitted unchanged")
    assert {pod["spec"]["schedulerName"] for pod in pods(cluster, "wrong")} == {"default-scheduler"}
    assert phases_and_nodes(cluster, "stays") == stays


async def test_operator_can_be_installed_tested_and_removed_by_helm_while_gangs_run(
    cluster: Cluster, worker: str, logs: Logs, installed_again: None, helm: Run, uncordoned: None
) -> None:
    install, test = commands_under("Install", "helm")
    (uninstall,) = commands_under("Remove", "helm")
    before = ours()
    await remove(cluster, logs, play, f"kubectl delete -k {OVERLAY} --ignore-not-found")

    await asyncio.to_thread(helm, f"{install.replace('REGISTRY/', '').replace('=TAG', '=e2e')} --wait")
    await asyncio.to_thread(helm, test)

    # Both pods were bound by our scheduler, and their containers were started.
    assert pods_with_event("Scheduled", "allaboard-test-") == pods_with_event("Started", "allaboard-test-") == 2
    cluster.create(deployment_of("stays", 2, template("stays", 2, ("pause",), [worker], TINY)))
    await cluster.wait_for(lambda s: running(s, "stays") == 2, PATIENCE, "a gang runs")
    stays = phases_and_nodes(cluster, "stays")

    await remove(cluster, logs, helm, f"{uninstall} --wait")

    assert ours() == {each for each in before if each.startswith(("Lease/", "Secret/"))}
    assert phases_and_nodes(cluster, "stays") == stays


async def remove(cluster: Cluster, logs: Logs, run: Run, command: str) -> None:
    """Remove the operator as documented, its Deployment first: its pods must end while they have their rights."""
    await asyncio.to_thread(play, commands_under("Remove", "kubectl")[0])
    await cluster.wait_for(lambda s: not s.list("pods", NAMESPACE), PATIENCE, "the operator's pods have ended")
    await asyncio.to_thread(run, command)
    assert logs.complaints() == []


def trial_command() -> str:
    """Return the command of docs/admission.md that shows whether webhooks are called, for the namespace of the tests."""
    (command,) = re.findall(
        r"```sh\n(kubectl apply -n ml --dry-run=server .*?)```", (ROOT / "docs" / "admission.md").read_text(), re.DOTALL
    )
    return str(command).replace("-n ml", "-n default").replace("| grep schedulerName", "")


def without_scheduler(name: str, minimum: int | str, nodes: tuple[str, ...]) -> Body:
    """Return a Deployment of two pods that name their gang and no scheduler."""
    pod = template(name, 2, ("pause",), nodes, TINY)
    pod["metadata"]["labels"][MINIMUM] = str(minimum)
    del pod["spec"]["schedulerName"]
    return deployment_of(name, 2, pod)


def phases_and_nodes(cluster: Cluster, name: str) -> dict[str, tuple[str, str]]:
    """Return the phase and node of each pod of a gang, by the pod's UID."""
    return {pod["metadata"]["uid"]: (pod["status"]["phase"], pod["spec"].get("nodeName", "")) for pod in pods(cluster, name)}


def ours() -> set[str]:
    """Return kind and name of each object of the kinds ``KINDS`` whose name contains ``allaboard``."""
    found: list[dict[str, Any]] = json.loads(play(f"kubectl get {KINDS} --all-namespaces --output json"))["items"]
    return {f"{each['kind']}/{each['metadata']['name']}" for each in found if "allaboard" in each["metadata"]["name"].replace(CLUSTER, "")}


def pods_with_event(reason: str, prefix: str) -> int:
    """Return the number of pods in the operator's namespace that have an event with ``reason``."""
    events = json.loads(play(f"kubectl get events --namespace {NAMESPACE} --field-selector reason={reason} --output json"))["items"]
    names = (each["involvedObject"]["name"] for each in events if each["involvedObject"]["kind"] == "Pod")
    return len({name for name in names if name.startswith(prefix)})
