"""The whole operator, including Kopf, on clusters with missing CRDs, deleted objects and foreign writes."""

import copy
import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from allaboard.cli import bundled
from allaboard.cli.embedded import OperatorEndedError, operator
from allaboard.cli.run import _JsonLines
from allaboard.cli.stories import manifest
from tests.cluster import Cluster, Home
from tests.stories import (
    a_job_whose_operator_makes_the_pod_group,
    a_pod_group_that_is_deleted,
    gang_pod,
    gpu_nodes,
    pod_group_crd,
    running,
    status_of,
)

from .conftest import Kubectl, StartApp

UPSTREAM_STATUS = ("phase", "occupiedBy", "running", "succeeded", "failed", "scheduleStartTime")


def upstream_crd() -> dict[str, Any]:
    """Return the PodGroup CRD without our additions to the status, which behaves like the CRD of scheduler-plugins."""
    crd = copy.deepcopy(pod_group_crd())
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for field in set(status) - set(UPSTREAM_STATUS):
        del status[field]
    return crd


async def test_job_whose_pod_group_its_operator_creates_is_scheduled_whole(home: Home, tmp_path: Path) -> None:
    async with home.open(gang_scheduler_name="allaboard") as cluster:
        home.write_operator_kubeconfig(cluster, tmp_path / "kubeconfig")
        async with operator(tmp_path / "kubeconfig"):
            await a_job_whose_operator_makes_the_pod_group(cluster)


@pytest.mark.parametrize("order", [("upstream",), ("upstream", "ours"), ("ours", "upstream")], ids="+".join)
async def test_operator_works_with_the_upstream_crd_and_ours_in_any_order(order: tuple[str, ...], home: Home, tmp_path: Path) -> None:
    async with home.open(crds=False) as cluster:
        for which in order:
            cluster.apply(upstream_crd() if which == "upstream" else pod_group_crd())
        gpu_nodes(cluster)
        home.write_operator_kubeconfig(cluster, tmp_path / "kubeconfig")
        async with operator(tmp_path / "kubeconfig"):
            cluster.create(manifest("tfjob-smoke-gpu.yaml")[0])
            await cluster.wait_for(lambda s: running(s) == 5)
            await cluster.wait_for(lambda s: ((s.get("podgroups", "tf-smoke-gpu") or {}).get("status") or {}).get("running") == 5)


async def test_gangs_that_labels_define_need_no_crd(home: Home, tmp_path: Path) -> None:
    async with home.open(crds=False) as cluster:
        gpu_nodes(cluster)
        home.write_operator_kubeconfig(cluster, tmp_path / "kubeconfig")
        async with operator(tmp_path / "kubeconfig"):
            cluster.create(manifest("tfjob-smoke-gpu.yaml")[0])
            await cluster.wait_for(lambda s: running(s) == 5)


async def test_deleted_pod_group_releases_no_pod_and_holds_later_pods(cluster: Cluster, kubeconfig: Path) -> None:
    async with operator(kubeconfig):
        await a_pod_group_that_is_deleted(cluster)


async def test_overwritten_pod_group_status_is_corrected(cluster: Cluster, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_RESYNC_SECONDS", "1")
    gpu_nodes(cluster)
    async with operator(kubeconfig):
        cluster.create(manifest("tfjob-smoke-gpu.yaml")[0])
        await cluster.wait_for(lambda s: running(s) == 5 and bool(s.list("podgroups")))
        name = cluster.list("podgroups")[0]["metadata"]["name"]
        await cluster.wait_for(lambda s: (s.get("podgroups", name) or {}).get("status", {}).get("phase") == "Running")
        cluster.patch("podgroups", name, {"status": {"phase": "Pending"}}, subresource="status")
        await cluster.wait_for(lambda s: (s.get("podgroups", name) or {}).get("status", {}).get("phase") == "Running")


async def test_job_recreated_under_its_name_is_scheduled_again(cluster: Cluster, kubeconfig: Path) -> None:
    gpu_nodes(cluster)
    async with operator(kubeconfig):
        for _ in range(3):
            cluster.create(manifest("tfjob-smoke-gpu.yaml")[0])
            await cluster.wait_for(lambda s: running(s) == 5)
            cluster.delete("tfjobs", "tf-smoke-gpu")
            await cluster.wait_for(lambda s: not s.list("pods") and not s.list("podgroups"), message="the PodGroup goes with its owner")


async def test_restarted_operator_knows_bound_pods_and_schedules_waiting_pods(cluster: Cluster, kubeconfig: Path) -> None:
    cluster.add_node("node-1", cpu="3")
    async with operator(kubeconfig):
        for name in "abc":
            cluster.create(gang_pod(name))
        await cluster.wait_for(lambda s: running(s) == 3)
    for name in "def":
        cluster.create(gang_pod(name, "later"))
    async with operator(kubeconfig):
        await cluster.wait_for(lambda s: "0 of 3" in ((s.get("podgroups", "later") or {}).get("status") or {}).get("message", ""))
        for name in "abc":
            cluster.delete("pods", name)
        await cluster.wait_for(lambda s: running(s) == 3)


async def test_metrics_and_health_report_binds_and_readiness(cluster: Cluster, kubeconfig: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cluster.add_node("node-1")
    async with operator(kubeconfig, metrics_port=port) as app:
        for name in "abc":
            cluster.create(gang_pod(name))
        await cluster.wait_for(lambda s: running(s) == 3)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            text = await response.text()
        assert 'allaboard_podgroup_schedule_attempts_total{result="scheduled"} 1.0' in text
        assert 'allaboard_binds_total{result="bound"} 3.0' in text
        assert 'allaboard_cache_size{type="nodes"} 1.0' in text
        assert not any("default/" in line or "gang=" in line for line in text.splitlines())
        assert app.health()["ready"] is True


# Kopf leaves one of its coroutines behind when a start-up handler fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_operator_does_not_start_if_the_metrics_port_is_taken(
    cluster: Cluster, kubeconfig: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104  # as the server binds
        taken.listen()
        with pytest.raises(OperatorEndedError):
            async with operator(kubeconfig, metrics_port=taken.getsockname()[1]):
                pass
    assert "ALLABOARD_METRICS_PORT" in caplog.text


async def test_pod_group_created_by_a_user_gets_no_owner(cluster: Cluster, start_app: StartApp) -> None:
    """The PodGroup must stay when the pods of its first run are gone."""
    cluster.add_node("node-1")
    await start_app()
    for obj in manifest("podgroup.yaml"):
        cluster.create(obj)
    await cluster.wait_for(lambda s: status_of(s, "trio").get("phase") == "Running", message="the PodGroup reports that all members run")
    assert "ownerReferences" not in cluster.list("podgroups")[0]["metadata"]


async def test_every_decision_is_logged_as_one_line_with_its_facts(
    cluster: Cluster, kubeconfig: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_node("node-1", cpu="2")
    caplog.set_level(logging.INFO, logger="allaboard.decisions")
    async with operator(kubeconfig):
        for name in "abc":
            cluster.create(gang_pod(name))
        await cluster.wait_for(lambda s: "2 of 3 members placeable" in status_of(s, "gang").get("message", ""))
    (record, *_) = [record for record in caplog.records if record.name == "allaboard.decisions"]
    assert "outcome=refused" in record.getMessage()
    line = json.loads(_JsonLines().format(record))
    assert line["gang"] == "default/gang"
    assert line["outcome"] == "refused"
    assert {"generations", "seedScore", "score", "stoppedBy", "durationMs", "reason"} <= line.keys()


@pytest.mark.kubectl
async def test_kubectl_runs_its_plug_in_allaboard(cluster: Cluster, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    gpu_nodes(cluster)
    printed = await kubectl("allaboard", "plan", "-f", str(bundled.example("tfjob-smoke-gpu.yaml")), "-o", "json")
    assert json.loads(printed)["gangs"][0]["feasible"] is True


@pytest.mark.kubectl
async def test_every_example_is_accepted_by_kubectl(cluster: Cluster, kubectl: Kubectl) -> None:
    for namespace in ("ml-faas", "openfaas-fn"):  # the pipeline example is a file of an earlier system, and doesn't create them
        await kubectl("create", "namespace", namespace)
    for example in bundled.examples():
        await kubectl("apply", "-f", str(example))
    stated = {
        (document["kind"], document["metadata"]["name"])
        for example in bundled.examples()
        for document in yaml.safe_load_all(example.read_text(encoding="utf-8"))
        if document
    }
    applied = {
        (obj["kind"], obj["metadata"]["name"])
        for kind in ("TFJob", "Deployment", "ReplicaSet", "StatefulSet", "Job", "PodGroup", "Pod", "MLFlow", "Namespace", "PriorityClass")
        for obj in ({**found, "kind": kind} for found in cluster.list(kind))
    }
    assert stated <= applied
