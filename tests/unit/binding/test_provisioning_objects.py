"""Tests of the objects that ask an autoscaler for nodes: what they contain, and that equal contents have equal names."""

from dataclasses import replace
from typing import Any

from allaboard.binding.provisioning_objects import pod_template, provisioning_request
from allaboard.model.gang import GangKey
from allaboard.model.provisioning import MADE_FOR, is_our_name
from tests.unit.scheduling.test_decide import a_gang

GANG = GangKey("ml", "train")
MEMBERS = replace(a_gang(waiting=2), key=GANG)


def a_pod(name: str = "train-0", **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "example/train:1",
        "command": ["train"],
        "env": [{"name": "TOKEN", "value": f"secret of {name}"}],
        "resources": {"requests": {"cpu": "1"}},
        "volumeMounts": [{"name": f"kube-api-access-{name}", "mountPath": "/var"}],
    }
    labels = {"app": "train", "batch.kubernetes.io/job-completion-index": name[-1], "statefulset.kubernetes.io/pod-name": name}
    volumes = [{"name": f"kube-api-access-{name}", "projected": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    stated = {
        "containers": [container],
        "hostname": name,
        "serviceAccountName": "trainer",
        "tolerations": [{"key": "gpu"}],
        "volumes": volumes,
    }
    return {"metadata": {"name": name, "labels": labels, "annotations": {"a": "b"}}, "spec": {**stated, **spec}}


def test_pod_template_has_what_decides_on_which_nodes_pods_fit_and_nothing_else() -> None:
    made = pod_template(GANG, "u", a_pod(nodeSelector={"pool": "gpu"}, schedulingGates=[{"name": "kueue"}]))
    assert made["template"] == {
        "metadata": {"labels": {"app": "train"}},
        "spec": {
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [{"name": "main", "image": "example/train:1", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


def test_pods_of_one_template_lead_to_the_same_pod_template() -> None:
    one, other = pod_template(GANG, "u", a_pod("train-0")), pod_template(GANG, "u", a_pod("train-1"))
    assert one == other
    assert is_our_name(one["metadata"]["name"])
    assert pod_template(GANG, "another PodGroup", a_pod())["metadata"]["name"] != one["metadata"]["name"]
    assert pod_template(GANG, "u", a_pod(nodeSelector={"pool": "gpu"}))["metadata"]["name"] != one["metadata"]["name"]


def test_request_is_named_by_its_content() -> None:
    def name(*arguments: Any) -> str:
        return str(provisioning_request(MEMBERS, *arguments)["metadata"]["name"])

    first = name("u", "class", {}, [("a", 2)])
    assert first == name("u", "class", {}, [("a", 2)])
    others = {
        name("v", "class", {}, [("a", 2)]),
        name("u", "other", {}, [("a", 2)]),
        name("u", "class", {"ValidUntilSeconds": "60"}, [("a", 2)]),
        name("u", "class", {}, [("a", 3)]),
        name("u", "class", {}, [("b", 2)]),
    }
    assert len(others | {first}) == 6


def test_request_belongs_to_the_pod_group_of_its_gang() -> None:
    made = provisioning_request(MEMBERS, "u", "class", {"ValidUntilSeconds": "60"}, [("a", 2), ("b", 1)])
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "name": "train", "uid": "u"}
    ]
    assert made["metadata"]["annotations"] == {MADE_FOR: "allaboard"}
    assert made["spec"] == {
        "provisioningClassName": "class",
        "podSets": [{"podTemplateRef": {"name": "a"}, "count": 2}, {"podTemplateRef": {"name": "b"}, "count": 1}],
        "parameters": {"ValidUntilSeconds": "60"},
    }
