"""An autoscaler is asked for the nodes of a whole gang on a real control plane, with cluster-autoscaler's CRD and the shipped rights."""

import os
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
import yaml

from tests import autoscaler
from tests.autoscaler import CLASS, answer, consumed, provision, requests
from tests.cluster import Cluster, Home
from tests.conftest import LogFolder
from tests.stories import bound, gang_pod, running, status_of

from .conftest import DEPLOYMENT
from .controlplane import binaries
from .controlplane.operators import OperatorProcess, shipped_arguments

# Only its CRD is used, from the version that Kueue 0.19 requires; the module has no program.
AUTOSCALER = binaries.Program(
    "cluster-autoscaler-apis", "0.0.0-20240830133931-adfbe7e45277", "k8s.io/autoscaler/cluster-autoscaler/apis/cmd/none"
)
CRD = "config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml"


@pytest.fixture
async def cluster(alone: None, home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster that serves ProvisioningRequests, with one small node, on which no operator runs yet."""
    async with home.open() as opened:
        opened.apply(yaml.safe_load(binaries.module_file(AUTOSCALER, CRD).read_text()))
        opened.add_node("small", cpu="2")
        autoscaler.grant(opened)
        yield opened
        autoscaler.revoke(opened)


@pytest.fixture
def operator(cluster: Cluster, home: Home, log_folder: LogFolder) -> Iterator[OperatorProcess]:
    """Yield the operator as it is shipped, with the setting ``provisioning_class``."""
    folder = log_folder("provisioning-operator")
    home.write_direct_operator_kubeconfig(folder / "kubeconfig")
    environment = {
        **os.environ,
        "PYTHONWARNINGS": "error",
        "ALLABOARD_PROVISIONING_CLASS": CLASS,
        "ALLABOARD_PROVISIONING_PARAMETERS": "ValidUntilSeconds=600",
        "ALLABOARD_PROVISIONING_BACKOFF_SECONDS": "5",
    }
    command = [sys.executable, "-m", "allaboard", "run", *shipped_arguments(yaml.safe_load(DEPLOYMENT.read_text()))]
    process = OperatorProcess(command, folder / "kubeconfig", folder / "operator", environment)
    try:
        process.wait_until(process.is_ready)
        yield process
    finally:
        assert process.stop() == 0
    assert process.complaints() == []


def message_of(cluster: Cluster) -> str:
    return str(status_of(cluster, "gang").get("message", ""))


async def test_gang_gets_its_nodes_after_a_first_request_failed(cluster: Cluster, operator: OperatorProcess) -> None:
    for number in range(4):
        pod = gang_pod(
            f"gang-{number}", "gang", 4, requests={"cpu": "1" if number else "3"}, nodeSelector={"pool": "gpu"} if number else {}
        )
        cluster.create(pod)
    await cluster.wait_for(
        lambda s: bool(requests(s)) and consumed(s) == {each["metadata"]["name"] for each in requests(s)}, message="the request is made"
    )
    (first,) = requests(cluster)
    assert first["spec"]["parameters"] == {"ValidUntilSeconds": "600"}
    assert sorted(each["count"] for each in first["spec"]["podSets"]) == [1, 3]
    answer(cluster, first, Accepted="accepted", Failed="out of quota")
    await cluster.wait_for(lambda s: "was given up, Failed: out of quota" in message_of(s), message="the message says why")
    await cluster.wait_for(
        lambda s: [each["metadata"]["uid"] for each in requests(s)] not in ([], [first["metadata"]["uid"]]), message="it is made again"
    )
    (second,) = requests(cluster)
    assert second["metadata"]["name"] == first["metadata"]["name"]
    assert bound(cluster) == []
    answer(cluster, second, Accepted="accepted")
    await cluster.wait_for(lambda s: "Accepted, not yet provisioned" in message_of(s), message="the answer is shown")
    for number in range(3):
        cluster.add_node(f"gpu-{number}", cpu="2", labels={"pool": "gpu"})
    assert provision(cluster, second) == 4
    await cluster.wait_for(lambda s: running(s) == 4, message="the gang runs")
    await cluster.wait_for(lambda s: not requests(s) and not s.list("podtemplates"), message="nothing is left")
