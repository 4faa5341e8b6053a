"""Test that a plan on a live cluster starts from the nodes, pods and other objects that its API server lists."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allaboard.cli.bundled import crds
from allaboard.gpu.errors import SourceError
from allaboard.gpu.gathering import Reading as Measured
from allaboard.gpu.sources import NoneFoundError
from allaboard.kube.client import ApiError, CredentialsError, load_credentials
from allaboard.model.gpus import Measure
from allaboard.model.pod import PLAIN, Reading
from allaboard.settings.options import load_settings
from allaboard.whatif.live import read_cards, read_live_cluster
from allaboard_sandbox import Sandbox

GROUP = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 2}}

PRIORITY_CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "m", "image": "i"}], **spec}}


def point_at(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))


async def test_nodes_pods_and_pod_groups_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sandbox() as sandbox:
        for manifest in (*crds(), pod("a", nodeName="n1"), pod("b", schedulerName="allaboard"), GROUP, PRIORITY_CLASS):
            sandbox.apply(manifest)
        sandbox.add_node("n1", cpu="4")
        point_at(sandbox, tmp_path, monkeypatch)
        notes: list[str] = []
        found = await read_live_cluster(notes, PLAIN)
    assert [node.name for node in found.nodes] == ["n1"]
    assert sorted((pod.key, pod.node_name) for pod in found.pods) == [("default/a", "n1"), ("default/b", "")]
    assert [group.raw["metadata"]["name"] for group in found.pod_groups] == ["g"]
    assert found.priorities.by_class["high"] == 7
    assert notes == []


async def test_pods_are_read_according_to_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function, labelled = pod("function", schedulerName="allaboard"), pod("labelled", schedulerName="allaboard")
    function["metadata"]["annotations"] = {"com.openfaas.function.spec": '{"requests": {"cpu": "3"}}'}
    labelled["metadata"]["labels"] = {"genius/gpu-number": "2"}
    labelled["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    theirs = copy.deepcopy(labelled)
    theirs["metadata"]["name"], theirs["spec"]["schedulerName"] = "theirs", "theirs"
    async with Sandbox() as sandbox:
        for each in (function, labelled, theirs):
            sandbox.apply(each)
        point_at(sandbox, tmp_path, monkeypatch)
        for charged in (True, False):
            reading = Reading(("allaboard",), openfaas=True, charged_by_label=charged)
            found = await read_live_cluster([], reading)
            asked = {each.name: dict(each.spec.requests) for each in found.pods}
            assert found.reading == reading
            assert asked["function"]["cpu"] == 3000
            assert asked["labelled"]["nvidia.com/gpu"] == (2 if charged else 1)
            assert asked["theirs"]["nvidia.com/gpu"] == 1


async def test_crds_priority_classes_runtime_classes_namespaces_and_jobs_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"completions": 3, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "i"}]}}},
    }
    training = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "t"},
        "spec": {"runPolicy": {"activeDeadlineSeconds": 60}},
    }
    async with Sandbox(controllers=False) as sandbox:
        for manifest in (*crds(), job, training):
            sandbox.apply(manifest)
        point_at(sandbox, tmp_path, monkeypatch)
        found = await read_live_cluster([], PLAIN)
    assert {definition["spec"]["names"]["kind"] for definition in found.definitions} >= {"PodGroup", "TFJob"}
    assert (found.has_all_definitions, found.priorities.are_all, found.runtimes.are_all) == (True, True, True)
    assert found.namespaces is not None
    assert {"default", "kube-system"} <= found.namespaces
    assert found.jobs["default/j"].completions == 3
    assert [owner.walltime for owner in found.owners] == [60.0]


async def test_cluster_without_the_crd_of_pod_groups_has_no_pod_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sandbox() as sandbox:
        point_at(sandbox, tmp_path, monkeypatch)
        found = await read_live_cluster([], PLAIN)
    assert found.pod_groups == []


async def test_unreachable_api_server_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sandbox() as sandbox:
        point_at(sandbox, tmp_path, monkeypatch)
    with pytest.raises(ApiError, match="can't be reached"):
        await read_live_cluster([], PLAIN)


async def test_missing_kubeconfig_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(CredentialsError, match="no cluster to connect to"):
        await read_live_cluster([], PLAIN)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "there is no such file"), ("", "it is no kubeconfig"), ("hello", "it is no kubeconfig"), ("- a", "it is no kubeconfig")],
)
async def test_invalid_kubeconfig_is_reported_with_its_path(
    content: str | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(CredentialsError) as caught:
        await load_credentials()
    assert f"kubeconfig {path} can't be used ({problem})" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (None, []),
        (NoneFoundError("none"), []),
        (SourceError("no answer"), ["GPU metrics can't be read, so GPUs are planned by node labels: no answer"]),
    ],
)
async def test_gpu_metrics_are_read_as_the_operator_reads_them(
    error: SourceError | None, note: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Source:
        async def read(self) -> Measured:
            if error:
                raise error
            values = np.full((len(Measure), 1, 1), np.nan, dtype=np.float32)
            return Measured(("n1",), (("0",),), (), np.full((1, 1), -1, dtype=np.int32), values, np.array([1.0]))

    async def find(*_: object) -> Source:
        return Source()

    monkeypatch.setattr("allaboard.whatif.live.find", find)
    notes: list[str] = []
    async with Sandbox() as sandbox:
        point_at(sandbox, tmp_path, monkeypatch)
        cards = await read_cards(load_settings(), {"n1"}, notes)
    assert (list(cards.rows), notes) == ([] if error else ["n1"], note)
