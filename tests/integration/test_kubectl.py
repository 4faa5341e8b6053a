"""The real kubectl works with the sandbox and with a real control plane, including tables, watches and waits."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import Cluster, Home
from tests.stories import has_pods

pytestmark = pytest.mark.kubectl

Body = dict[str, Any]
CRDS = Path(__file__).parents[2] / "crds"
SECONDS = 50.0


class Kubectl:
    """Runs kubectl in a subprocess, whose requests this event loop answers."""

    def __init__(self, binary: str, folder: Path, cluster: Cluster) -> None:
        self._binary = binary
        self._folder = folder
        self._kubeconfig = folder / "kubeconfig"
        cluster.write_kubeconfig(self._kubeconfig)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start kubectl and leave it running, as for ``get --watch``."""
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "KUBECACHEDIR": str(self._folder / "cache")}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(self._binary, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)

    async def attempt(self, *arguments: str, manifest: Body | None = None) -> tuple[int, str, str]:
        """Run kubectl and return its exit code, output and errors."""
        process = await self.start(*arguments)
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate(json.dumps(manifest).encode() if manifest else None)
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, *arguments: str, manifest: Body | None = None) -> str:
        """Run kubectl, which must succeed, and return its output."""
        code, out, err = await self.attempt(*arguments, manifest=manifest)
        assert code == 0, f"kubectl {' '.join(arguments)}: {err}"
        return out


@pytest.fixture
def kubectl(kubectl_binary: str, cluster: Cluster, tmp_path: Path) -> Kubectl:
    return Kubectl(kubectl_binary, tmp_path, cluster)


def is_running(cluster: Cluster, name: str) -> bool:
    return (cluster.get("pods", name) or {"status": {}})["status"].get("phase") == "Running"


def pod(name: str = "p", labels: Body | None = None, **spec: Any) -> Body:
    containers = [{"name": "main", "image": "busybox:1", "resources": {"limits": {"cpu": "1"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": containers, **spec},
    }


def deployment(replicas: int, image: str = "web:1") -> Body:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def tfjob(workers: int = 2) -> Body:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "tf:1"}]}}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": workers, "template": template}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "mnist"}, "spec": spec}


def pod_group(minimum: Any = 2) -> Body:
    group_version = "scheduling.x-k8s.io/v1alpha1"
    return {"apiVersion": group_version, "kind": "PodGroup", "metadata": {"name": "gang"}, "spec": {"minMember": minimum}}


def rows(output: str) -> list[list[str]]:
    """Return a printed table as lists of words; a column of several words becomes several entries."""
    return [line.split() for line in output.splitlines()]


async def test_kubectl_lists_nodes_in_its_normal_and_in_its_wide_table(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1", gpus=4)
    cluster.add_node("node-2", ready=False)
    header, first, second = rows(await kubectl("get", "nodes"))
    assert header == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert (first[:2], second[:2]) == (["node-1", "Ready"], ["node-2", "NotReady"])
    assert "CONTAINER-RUNTIME" in await kubectl("get", "nodes", "-o", "wide")


async def test_kubectl_lists_pods_of_the_sandbox_like_those_of_a_real_cluster(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1")
    cluster.create(pod("running", {"app": "x"}, nodeName="node-1"))
    cluster.create(pod("waiting", {"app": "y"}))
    await cluster.wait_for(lambda home: is_running(home, "running"))
    header, running, waiting = rows(await kubectl("get", "pods"))
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert running[:4] == ["running", "1/1", "Running", "0"]
    assert waiting[:4] == ["waiting", "0/1", "Pending", "0"]
    wide = rows(await kubectl("get", "pods", "-o", "wide", "--no-headers"))
    assert [row[6] for row in wide] == ["node-1", "<none>"]
    assert await kubectl("get", "pods", "-l", "app=x", "-o", "name") == "pod/running\n"
    assert await kubectl("get", "pods", "--field-selector", "spec.nodeName=", "-o", "name") == "pod/waiting\n"
    assert rows(await kubectl("get", "pods", "-A", "--no-headers"))[0][:2] == ["default", "running"]


async def test_objects_are_printed_as_json_and_yaml(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.create(pod())
    single = json.loads(await kubectl("get", "pod", "p", "-o", "json"))
    assert (single["kind"], single["apiVersion"], single["spec"]["schedulerName"]) == ("Pod", "v1", "default-scheduler")
    listed = yaml.safe_load(await kubectl("get", "pods", "-o", "yaml"))
    assert [(item["kind"], item["metadata"]["name"]) for item in listed["items"]] == [("Pod", "p")]


async def test_missing_object_is_named_in_the_error(kubectl: Kubectl) -> None:
    code, _, err = await kubectl.attempt("get", "pod", "nope")
    assert (code, err) == (1, 'Error from server (NotFound): pods "nope" not found\n')


async def test_many_objects_are_listed_in_pages(cluster: Cluster, kubectl: Kubectl) -> None:
    for number in range(7):
        cluster.create(pod(f"p{number}"))
    out = await kubectl("get", "pods", "--chunk-size=3", "-o", "name")
    assert out.split() == [f"pod/p{number}" for number in range(7)]


@pytest.fixture
async def bare(home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster without the PodGroup CRD."""
    async with home.open(crds=False) as opened:
        yield opened


async def test_applied_custom_resource_definition_is_served(bare: Cluster, kubectl_binary: str, tmp_path: Path) -> None:
    kubectl = Kubectl(kubectl_binary, tmp_path, bare)
    assert "podgroups.scheduling.x-k8s.io created" in await kubectl("apply", "-f", str(CRDS))
    await kubectl("wait", "--for=condition=Established", "crd/podgroups.scheduling.x-k8s.io")
    assert "podgroup.scheduling.x-k8s.io/gang created" in await kubectl("apply", "-f", "-", manifest=pod_group())
    bare.patch(
        "podgroups",
        "gang",
        {"status": {"phase": "Pending", "scheduled": 0, "reason": "Held", "summary": "waits", "message": "waits long"}},
        subresource="status",
    )
    header, row = rows(await kubectl("get", "pg"))
    assert header == ["NAME", "PHASE", "MIN", "SCHEDULED", "RUNNING", "REASON", "EXPECTED", "AGE", "MESSAGE"]
    assert (row[:5], row[-1]) == (["gang", "Pending", "2", "0", "Held"], "waits")
    described = await kubectl("describe", "podgroup", "gang")
    assert "Min Member:  2" in described


async def test_invalid_pod_group_is_refused_with_the_field(kubectl: Kubectl) -> None:
    code, _, err = await kubectl.attempt("apply", "-f", "-", manifest=pod_group(0))
    assert code == 1
    assert "spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal to 1" in err
    unknown = pod_group()
    unknown["spec"]["bogus"] = 1
    code, _, err = await kubectl.attempt("create", "-f", "-", manifest=unknown)
    assert code == 1
    assert 'strict decoding error: unknown field "spec.bogus"' in err


UNKNOWN = [
    pytest.param("example.com/v1", "Widget", id="of-a-group-that-is-not-served"),
    pytest.param("apps/v1beta1", "Deployment", id="in-a-version-that-is-not-served"),
    pytest.param("v1", "Widget", id="of-a-group-that-is-served"),
    pytest.param(
        "batch/v1", "CronJob", id="that-the-sandbox-has-no-use-for", marks=pytest.mark.sandbox_only("a real cluster has CronJobs")
    ),
]


@pytest.mark.parametrize("verb", ["apply", "create", "delete"])
@pytest.mark.parametrize(("group_version", "kind"), UNKNOWN)
async def test_manifest_of_a_kind_that_is_not_served_is_rejected(verb: str, group_version: str, kind: str, kubectl: Kubectl) -> None:
    manifest = {"apiVersion": group_version, "kind": kind, "metadata": {"name": "x"}, "spec": {}}
    code, out, err = await kubectl.attempt(verb, "-f", "-", manifest=manifest)
    assert (code, out) == (1, "")
    assert f'no matches for kind "{kind}" in version "{group_version}"' in err


async def test_resource_that_is_not_served_is_reported_as_unknown(kubectl: Kubectl) -> None:
    code, out, err = await kubectl.attempt("get", "widgets")
    assert (code, out, err) == (1, "", 'error: the server doesn\'t have a resource type "widgets"\n')


@pytest.mark.sandbox_only("a real cluster has CronJobs")
async def test_object_of_a_kind_that_is_not_served_cannot_be_created(kubectl: Kubectl) -> None:
    code, out, err = await kubectl.attempt("create", "cronjob", "x", "--image=busybox:1", "--schedule=@daily")
    assert (code, out, err) == (1, "", "error: failed to create cronjob: the server could not find the requested resource\n")


async def test_kubectl_applies_a_list_of_objects(kubectl: Kubectl) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [pod("one"), pod("two"), pod_group()]}
    said = await kubectl("apply", "-f", "-", manifest=listed)
    assert said.splitlines() == ["pod/one created", "pod/two created", "podgroup.scheduling.x-k8s.io/gang created"]


async def test_kubectl_apply_creates_an_object_and_later_changes_only_what_differs(cluster: Cluster, kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", manifest=deployment(2)) == "deployment.apps/web created\n"
    assert await kubectl("apply", "-f", "-", manifest=deployment(2)) == "deployment.apps/web unchanged\n"
    assert await kubectl("apply", "-f", "-", manifest=deployment(3, "web:2")) == "deployment.apps/web configured\n"
    changed = cluster.get("deployments", "web")
    assert changed is not None
    assert (changed["spec"]["replicas"], changed["spec"]["template"]["spec"]["containers"][0]["image"]) == (3, "web:2")
    assert "web configured (server dry run)" in await kubectl("apply", "--dry-run=server", "-f", "-", manifest=deployment(5))
    assert cluster.get("deployments", "web")["spec"]["replicas"] == 3  # type: ignore[index]


async def test_pods_can_be_applied_and_a_change_of_the_spec_is_refused(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", manifest=pod()) == "pod/p created\n"
    assert await kubectl("apply", "-f", "-", manifest=pod(labels={"a": "b"})) == "pod/p configured\n"
    code, _, err = await kubectl.attempt("apply", "-f", "-", manifest=pod(priorityClassName="system-node-critical"))
    assert code == 1
    assert "pod updates may not change fields other than" in err


async def test_server_side_apply_works(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "--server-side", "-f", "-", manifest=deployment(1)) == "deployment.apps/web serverside-applied\n"


@pytest.fixture
async def kubeflow(home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster whose training-operator creates a PodGroup for each job."""
    async with home.open(gang_scheduler_name="allaboard") as opened:
        yield opened


async def test_tfjob_creates_pods_services_and_a_pod_group(kubeflow: Cluster, kubectl_binary: str, tmp_path: Path) -> None:
    kubectl = Kubectl(kubectl_binary, tmp_path, kubeflow)
    assert await kubectl("apply", "-f", "-", manifest=tfjob()) == "tfjob.kubeflow.org/mnist created\n"
    await kubeflow.wait_for(partial(has_pods, "mnist"))
    created = {"Created pod: mnist-worker-0", "Created pod: mnist-worker-1"}
    await kubeflow.wait_for(lambda home: created <= {event["message"] for event in home.list("events", "default")})
    await kubeflow.wait_for(lambda home: bool((home.get("tfjobs", "mnist") or {}).get("status", {}).get("conditions")))
    assert rows(await kubectl("get", "tfjobs", "--no-headers"))[0][:2] == ["mnist", "Created"]
    out = await kubectl("get", "pods,services,podgroups", "-o", "name")
    assert set(out.split()) >= {"pod/mnist-worker-0", "pod/mnist-worker-1", "service/mnist-worker-0", "podgroup.scheduling.x-k8s.io/mnist"}
    described = await kubectl("describe", "tfjob", "mnist")
    assert "Created pod: mnist-worker-0" in described
    assert "tfjob.kubeflow.org/mnist unchanged" in await kubectl("apply", "-f", "-", manifest=tfjob())
    await kubectl("delete", "tfjob", "mnist")
    await kubeflow.wait_for(lambda home: not home.list("pods") and not home.list("podgroups"))


async def test_pod_is_described_with_its_events(cluster: Cluster, kubectl: Kubectl) -> None:
    created = cluster.create(pod())
    involved = {"kind": "Pod", "name": "p", "namespace": "default", "uid": created["metadata"]["uid"]}
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "p.1"},
            "involvedObject": involved,
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": "0/1 nodes are available",
            "source": {"component": "allaboard"},
            "lastTimestamp": created["metadata"]["creationTimestamp"],
        }
    )
    described = await kubectl("describe", "pod", "p")
    assert "Status:           Pending" in described
    assert "FailedScheduling" in described
    header, row = rows(await kubectl("get", "events"))
    assert header == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:4] == ["Warning", "FailedScheduling", "pod/p"]


async def test_node_is_described_with_the_requests_of_its_pods(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1", gpus=4)
    cluster.create(pod(nodeName="node-1"))
    described = await kubectl("describe", "node", "node-1")
    assert "nvidia.com/gpu:     4" in described
    assert "Non-terminated Pods:          (1 in total)" in described
    assert "cpu                1 (6%)" in described


@pytest.mark.sandbox_only("a real control plane has kubelets, of whatever kind")
async def test_kubectl_commands_that_need_containers_are_rejected(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1")
    cluster.create(pod(nodeName="node-1"))
    await cluster.wait_for(lambda home: is_running(home, "p"))
    missing = {
        "logs p": "has no logs",
        "logs -f p": "has no logs",
        "exec p -- true": "can't run a command",
        "attach p": "has nothing to attach to",
        "port-forward pod/p :80": "listens on no port",
    }
    for command, problem in missing.items():
        code, _, err = await kubectl.attempt(*command.split())
        assert code == 1
        assert f'pod "p" {problem}: the sandbox runs no containers\n' in err
    _, _, err = await kubectl.attempt("logs", "nope")
    assert '(NotFound): pods "nope" not found' in err


@pytest.mark.sandbox_only("the nodes of a real control plane are registered without kubelets of their own")
async def test_each_node_that_kubectl_shows_has_its_own_address(cluster: Cluster, kubectl: Kubectl) -> None:
    for name in ("node-1", "node-2"):
        cluster.add_node(name)
    assert [row[5] for row in rows(await kubectl("get", "nodes", "-o", "wide", "--no-headers"))] == ["10.0.0.1", "10.0.0.2"]


async def test_objects_are_labelled_annotated_and_patched(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.create(pod())
    await kubectl("label", "pod", "p", "a=b")
    await kubectl("annotate", "pod", "p", "c=d")
    await kubectl("patch", "pod", "p", "-p", '{"metadata":{"labels":{"e":"f"}}}')
    await kubectl("patch", "pod", "p", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/a"}]')
    metadata = cluster.get("pods", "p")["metadata"]  # type: ignore[index]
    assert (metadata["labels"], metadata["annotations"]) == ({"e": "f"}, {"c": "d"})


async def test_nodes_are_cordoned_and_uncordoned(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1")
    assert await kubectl("cordon", "node-1") == "node/node-1 cordoned\n"
    assert "Ready,SchedulingDisabled" in await kubectl("get", "node", "node-1")
    assert await kubectl("uncordon", "node-1") == "node/node-1 uncordoned\n"
    assert not cluster.get("nodes", "node-1")["spec"].get("unschedulable")  # type: ignore[index]


async def test_drained_node_is_empty(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1")
    cluster.create(pod(nodeName="node-1"))
    await cluster.wait_for(lambda home: is_running(home, "p"))
    assert "node/node-1 drained" in await kubectl("drain", "node-1", "--force")
    assert cluster.list("pods") == []


async def test_deployment_is_scaled(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.create(deployment(1))
    assert await kubectl("scale", "deployment", "web", "--replicas=3") == "deployment.apps/web scaled\n"
    await cluster.wait_for(lambda home: len(home.list("pods")) == 3)


async def test_rollout_is_followed_to_its_end(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1")
    placed = deployment(2)
    placed["spec"]["template"]["spec"]["nodeName"] = "node-1"
    cluster.create(placed)
    assert 'deployment "web" successfully rolled out' in await kubectl("rollout", "status", "deployment", "web", "--timeout=50s")


async def test_deleting_waits_until_the_object_is_gone(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1")
    cluster.create(pod(nodeName="node-1"))
    cluster.create(deployment(1))
    await cluster.wait_for(lambda home: is_running(home, "p"))
    assert (await kubectl("delete", "pod", "p")).startswith('pod "p" deleted')
    assert cluster.get("pods", "p") is None
    assert (await kubectl("delete", "-f", "-", manifest=deployment(1))).startswith('deployment.apps "web" deleted')
    await cluster.wait_for(lambda home: not home.list("replicasets") and not home.list("pods"))


async def test_watch_prints_each_change(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.add_node("node-1")
    cluster.create(pod("first"))
    process = await kubectl.start("get", "pods", "--watch")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            assert (await process.stdout.readline()).split()[0] == b"NAME"
            assert (await process.stdout.readline()).split()[:3] == [b"first", b"0/1", b"Pending"]
            cluster.create(pod("second", nodeName="node-1"))
            states = [(await process.stdout.readline()).split()[:3] for _ in range(2)]
        assert states == [[b"second", b"0/1", b"Pending"], [b"second", b"1/1", b"Running"]]
    finally:
        process.terminate()
        await process.communicate()


async def test_waiting_for_a_condition_ends_when_it_holds(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.create(pod())
    process = await kubectl.start("wait", "--for=condition=PodScheduled", "pod/p", "--timeout=50s")
    condition = {"type": "PodScheduled", "status": "True"}
    cluster.patch("pods", "p", {"status": {"conditions": [condition]}}, subresource="status")
    out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"pod/p condition met\n", b"")


# Objects that kubectl builds itself instead of reading a manifest; it sends them as protobuf.
MADE = {
    "serviceaccount made": "serviceaccount/made",
    "configmap made --from-literal=a=b": "configmap/made",
    "secret generic made --from-literal=a=b": "secret/made",
    "deployment made --image=web:1 --replicas=2 --port=80": "deployment.apps/made",
    "job made --image=busybox:1 -- true": "job.batch/made",
    "poddisruptionbudget made --selector=app=web --min-available=50%": "poddisruptionbudget.policy/made",
    "role made --verb=get --resource=pods": "role.rbac.authorization.k8s.io/made",
    "rolebinding made --clusterrole=view --serviceaccount=made:made": "rolebinding.rbac.authorization.k8s.io/made",
    "quota made --hard=cpu=1,pods=3": "resourcequota/made",
    "ingress made --rule=example.com/*=web:80": "ingress.networking.k8s.io/made",
    "service clusterip made --tcp=80:8080": "service/made",
}


async def test_objects_that_kubectl_create_builds_are_created(kubectl: Kubectl) -> None:
    assert await kubectl("create", "namespace", "made") == "namespace/made created\n"
    for command, name in MADE.items():
        words = command.split()
        assert await kubectl("-n", "made", "create", *words) == f"{name} created\n"
        assert await kubectl("-n", "made", "get", name, "-o", "name") == f"{name}\n"
    code, _, err = await kubectl.attempt("create", "namespace", "made")
    assert (code, err) == (1, 'Error from server (AlreadyExists): namespaces "made" already exists\n')


async def test_cluster_wide_objects_that_kubectl_create_builds_are_created(cluster: Cluster, kubectl: Kubectl) -> None:
    assert await kubectl("create", "priorityclass", "made", "--value=-5") == "priorityclass.scheduling.k8s.io/made created\n"
    assert cluster.get("priorityclasses", "made", "")["value"] == -5  # type: ignore[index]
    for kind, words in {"clusterrole": "--verb=get --resource=pods", "clusterrolebinding": "--clusterrole=view --user=me"}.items():
        assert await kubectl("create", kind, "made", *words.split()) == f"{kind}.rbac.authorization.k8s.io/made created\n"
        await kubectl("delete", kind, "made")


async def test_deployment_that_kubectl_create_builds_has_the_given_options(cluster: Cluster, kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "web", "--image=web:1", "--replicas=2", "--port=80")
    spec = cluster.get("deployments", "web")["spec"]  # type: ignore[index]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], spec["selector"], spec["strategy"]["type"]) == (2, {"matchLabels": {"app": "web"}}, "RollingUpdate")
    assert (container["image"], container["ports"]) == ("web:1", [{"containerPort": 80, "protocol": "TCP"}])
    await cluster.wait_for(lambda home: len(home.list("pods")) == 2)
    await kubectl("create", "service", "clusterip", "web", "--tcp=80:web")
    (port,) = cluster.get("services", "web")["spec"]["ports"]  # type: ignore[index]
    assert (port["port"], port["targetPort"], port["protocol"]) == (80, "web", "TCP")


async def test_deployment_can_be_created_as_a_dry_run(cluster: Cluster, kubectl: Kubectl) -> None:
    said = await kubectl("create", "deployment", "web", "--image=web:1", "--dry-run=server")
    assert said == "deployment.apps/web created (server dry run)\n"
    assert cluster.get("deployments", "web") is None


async def test_administrator_may_do_everything(kubectl: Kubectl) -> None:
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert ["*.*", "[]", "[]", "[*]"] in rows(await kubectl("auth", "can-i", "--list"))
    assert "system:masters" in await kubectl("auth", "whoami")


@pytest.mark.sandbox_only("a real cluster enforces quotas")
async def test_creating_a_quota_warns_that_it_is_not_enforced(kubectl: Kubectl) -> None:
    _, _, err = await kubectl.attempt("create", "quota", "made", "--hard=pods=3")
    assert err == "Warning: the sandbox keeps quotas and enforces none\n"


@pytest.mark.sandbox_only("a real cluster calls them")
@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])
async def test_applying_webhooks_warns_that_they_are_not_called(kind: str, kubectl: Kubectl, tmp_path: Path) -> None:
    made = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "made"}, "webhooks": []}
    (tmp_path / "made.json").write_text(json.dumps(made))
    _, _, err = await kubectl.attempt("apply", "-f", str(tmp_path / "made.json"))
    assert err == "Warning: the sandbox keeps webhook configurations and calls no webhook\n"


@pytest.mark.sandbox_only("a real cluster makes their pods")
async def test_creating_a_workload_without_a_controller_warns(kubectl: Kubectl, tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"app": "made"}}, "spec": {"containers": [{"name": "main", "image": "web"}]}}
    spec = {"selector": {"matchLabels": {"app": "made"}}, "template": template}
    (tmp_path / "made.json").write_text(
        json.dumps({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "made"}, "spec": spec})
    )
    _, _, err = await kubectl.attempt("create", "-f", str(tmp_path / "made.json"))
    assert err == "Warning: the sandbox has no controller of DaemonSets: its pods are not created\n"


async def test_kubectl_lists_the_resources_that_are_served(kubectl: Kubectl) -> None:
    out = await kubectl("api-resources", "--no-headers")
    kinds = {line.split()[-1] for line in out.splitlines()}
    assert kinds >= {"Pod", "Node", "Event", "Deployment", "Job", "PodDisruptionBudget", "PriorityClass", "Lease", "TFJob"}
    assert re.search(r"^Server Version: v1\.\d+\.\d+", await kubectl("version"), re.MULTILINE)
