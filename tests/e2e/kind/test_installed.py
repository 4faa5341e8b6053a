"""The operator's own pods come and go by kubectl and by Helm, by the commands of docs/, while a gang of real containers runs through it."""

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
"""Of config/, as it was installed from."""
SCHEDULE = "allaboard.dev/schedule"
KINDS = (
    "deployments,replicasets,pods,services,configmaps,secrets,leases,jobs,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,"
    "priorityclasses,mutatingwebhookconfigurations,validatingwebhookconfigurations"
)

Run = Callable[[str], str]

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
async def installed_again(cluster: Cluster) -> AsyncIterator[None]:
    """At the end what was installed at first is there, and no namespace is opted in."""
    try:
        yield
    finally:
        cluster.patch("namespaces", "default", {"metadata": {"labels": {SCHEDULE: None}}})
        await asyncio.to_thread(play, f"kubectl apply -k {OVERLAY}")
        await cluster.wait_for(is_deployed_whole, 2 * PATIENCE, "the operator is there again")


@pytest.fixture
def with_admission(tmp_path: Path) -> Path:
    """An overlay of what was installed at first, with the webhooks."""
    folders = {"resources": OVERLAY, "components": ROOT / "config" / "components" / "admission"}
    overlay = {key: [os.path.relpath(path, tmp_path.resolve())] for key, path in folders.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return tmp_path


@pytest.fixture
def helm() -> Iterator[Run]:
    """Plays commands of Helm's; its release goes at the end."""
    play_helm = partial(play, path=ensure([HELM], Console(stderr=True))["helm"].parent)
    yield play_helm
    play_helm(f"helm uninstall allaboard --namespace {NAMESPACE} --ignore-not-found --wait")


@pytest.fixture
def uncordoned(cluster: Cluster, worker: str) -> Iterator[None]:
    """A node takes pods that tolerate nothing."""
    play(f"kubectl uncordon {worker}")
    yield
    play(f"kubectl cordon {worker}")


async def test_webhooks_are_called_through_their_service_and_go_with_the_operator_while_gangs_run_on(
    cluster: Cluster, worker: str, control_plane_node: str, logs: Logs, installed_again: None, with_admission: Path
) -> None:
    both = (worker, control_plane_node)

    await asyncio.to_thread(play, f"kubectl apply -k {with_admission}")
    cluster.patch("namespaces", "default", {"metadata": {"labels": {SCHEDULE: "true"}}})
    await cluster.wait_for(lambda _: "schedulerName: allaboard" in play(a_try()), PATIENCE, "a pod that names no scheduler gets ours")

    cluster.create(unnamed("stays", 2, both))
    await cluster.wait_for(lambda s: running(s, "stays") == 2, PATIENCE, "a gang that names no scheduler runs")
    with pytest.raises(ApiError, match=f"{re.escape(MINIMUM)}.*'two' is not a whole number"):
        cluster.create(unnamed("wrong", "two", both))
    stays = seats(cluster, "stays")

    await remove(cluster, logs, play, f"kubectl delete -k {with_admission} --ignore-not-found")

    # What it has made itself stays, as docs/install.md says.
    assert ours() == {"Lease/allaboard", "Secret/allaboard-admission"}
    cluster.create(unnamed("wrong", "two", both))
    await cluster.wait_for(lambda s: len(pods(s, "wrong")) == 2, PATIENCE, "pods are let in as they are")
    assert {pod["spec"]["schedulerName"] for pod in pods(cluster, "wrong")} == {"default-scheduler"}
    assert seats(cluster, "stays") == stays


async def test_helm_installs_an_operator_that_passes_its_test_with_real_pods_and_removes_it_while_gangs_run_on(
    cluster: Cluster, worker: str, logs: Logs, installed_again: None, helm: Run, uncordoned: None
) -> None:
    install, test = commands_under("Install", "helm")
    (uninstall,) = commands_under("Remove", "helm")
    before = ours()
    await remove(cluster, logs, play, f"kubectl delete -k {OVERLAY} --ignore-not-found")

    await asyncio.to_thread(helm, f"{install.replace('REGISTRY/', '').replace('=TAG', '=e2e')} --wait")
    await asyncio.to_thread(helm, test)

    # The two were seated by us, and were containers.
    assert told("Scheduled", "allaboard-test-") == told("Started", "allaboard-test-") == 2
    cluster.create(deployment_of("stays", 2, template("stays", 2, ("pause",), [worker], TINY)))
    await cluster.wait_for(lambda s: running(s, "stays") == 2, PATIENCE, "a gang runs")
    stays = seats(cluster, "stays")

    await remove(cluster, logs, helm, f"{uninstall} --wait")

    assert ours() == {each for each in before if each.startswith(("Lease/", "Secret/"))}
    assert seats(cluster, "stays") == stays


async def remove(cluster: Cluster, logs: Logs, run: Run, command: str) -> None:
    """Have the operator removed, its Deployment first, as the document has it: its pods end while they have their rights."""
    await asyncio.to_thread(play, commands_under("Remove", "kubectl")[0])
    await cluster.wait_for(lambda s: not s.list("pods", NAMESPACE), PATIENCE, "the operator's pods have ended")
    await asyncio.to_thread(run, command)
    assert logs.complaints() == []


def a_try() -> str:
    """The command of docs/admission.md that shows whether webhooks are called, of the namespace that the tests have."""
    (command,) = re.findall(
        r"```sh\n(kubectl apply -n ml --dry-run=server .*?)```", (ROOT / "docs" / "admission.md").read_text(), re.DOTALL
    )
    return str(command).replace("-n ml", "-n default").replace("| grep schedulerName", "")


def unnamed(name: str, minimum: int | str, nodes: tuple[str, ...]) -> Body:
    """A Deployment of two pods that name their gang, and no scheduler."""
    pod = template(name, 2, ("pause",), nodes, TINY)
    pod["metadata"]["labels"][MINIMUM] = str(minimum)
    del pod["spec"]["schedulerName"]
    return deployment_of(name, 2, pod)


def seats(cluster: Cluster, name: str) -> dict[str, tuple[str, str]]:
    """Phase and node of each pod of a gang, by UID."""
    return {pod["metadata"]["uid"]: (pod["status"]["phase"], pod["spec"].get("nodeName", "")) for pod in pods(cluster, name)}


def ours() -> set[str]:
    """Kind and name of whatever is named after us, of what an installation may leave."""
    found: list[dict[str, Any]] = json.loads(play(f"kubectl get {KINDS} --all-namespaces --output json"))["items"]
    return {f"{each['kind']}/{each['metadata']['name']}" for each in found if "allaboard" in each["metadata"]["name"].replace(CLUSTER, "")}


def told(reason: str, prefix: str) -> int:
    """Of how many pods of the operator's namespace an event tells."""
    events = json.loads(play(f"kubectl get events --namespace {NAMESPACE} --field-selector reason={reason} --output json"))["items"]
    names = (each["involvedObject"]["name"] for each in events if each["involvedObject"]["kind"] == "Pod")
    return len({name for name in names if name.startswith(prefix)})
