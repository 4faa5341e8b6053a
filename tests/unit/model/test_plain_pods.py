"""Tests that reading a pod by its short text gives the same as reading the whole pod, whatever the pod contains."""

import copy
from unittest.mock import patch

from hypothesis import event, given
from hypothesis import strategies as st

from allaboard.model import plain_pods
from allaboard.model.constraints import readable_spec_from
from allaboard.model.limits import VOLUMES
from allaboard.model.plain_pods import spec_from

CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "side"])},
    optional={
        "image": st.sampled_from(["a", "b"]),
        "env": st.just([{"name": "TASK_INDEX", "value": "3"}]),
        "command": st.just(["sh"]),
        "ports": st.sampled_from([[{"containerPort": 80}], [{"hostPort": 80, "containerPort": 80}]]),
        "restartPolicy": st.just("Always"),
        "volumeMounts": st.just([{"name": "kube-api-access-x"}]),
        "resources": st.fixed_dictionaries(
            {
                "requests": st.dictionaries(
                    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "nvidia.com/gpumem"]), st.sampled_from(["1", "2", "x"]), max_size=3
                )
            }
        ),
    },
)
VOLUME_KINDS = st.sampled_from(
    [{"emptyDir": {}}, {"projected": {}}, {"persistentVolumeClaim": {"claimName": "c"}}, {"ephemeral": {"a": 1}}]
)
ANYTHING = st.sampled_from([None, 3, "x", [1], {"a": 1}])
TERM = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from(["p-0", "p-1"])},
            optional={
                "labels": st.just({"a": "b"}),
                "annotations": st.sampled_from([{}, {"note": "x"}, {"gpu-fraction": "0.5"}, {"gpu-memory": "100"}]),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS, min_size=1, max_size=2) | ANYTHING},
            optional={
                "initContainers": st.lists(CONTAINERS, max_size=1),
                "nodeName": st.just("n"),
                "hostname": st.just("p-0"),
                "hostNetwork": st.booleans(),
                "nodeSelector": st.just({"zone": "a"}) | ANYTHING,
                "tolerations": st.just([{"key": "a", "operator": "Exists"}]),
                "overhead": st.just({"cpu": "1"}),
                "volumes": st.lists(VOLUME_KINDS.map(lambda kind: {"name": "v", **kind}), max_size=2) | ANYTHING,
                "resourceClaims": st.just([{"name": "r", "resourceClaimName": "c"}]),
                "affinity": st.sampled_from([{}, {"podAntiAffinity": {REQUIRED: [TERM]}}, {"podAffinity": {REQUIRED: [TERM]}}]),
                "topologySpreadConstraints": st.just([{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **TERM}]),
            },
        )
        | ANYTHING,
    },
    optional={
        "status": st.fixed_dictionaries(
            {"phase": st.just("Running")},
            optional={
                "conditions": st.sampled_from([[], [{"type": "PodResizePending", "reason": "Infeasible"}], [{"type": "Ready"}]]),
                "containerStatuses": st.sampled_from(
                    [[{"name": "main"}], [{"name": "main", "allocatedResources": {"cpu": "7"}, "resources": {"requests": {"cpu": "5"}}}]]
                )
                | ANYTHING,
                "resources": st.just({"requests": {"cpu": "9"}}),
                "resourceClaimStatuses": st.just([{"name": "r", "resourceClaimName": "made"}]),
            },
        )
        | ANYTHING
    },
)


@given(raw=PODS, is_foreign=st.booleans())
def test_a_pod_is_read_by_its_text_as_it_is_read_whole(raw: dict[str, object], is_foreign: bool) -> None:
    before = copy.deepcopy(raw)
    text = plain_pods._text(raw)
    event(f"plain: {text is not None}")
    found, problems = spec_from(raw, is_foreign=is_foreign)
    expected, expected_problems = readable_spec_from(raw, is_foreign=is_foreign)
    assert (found, list(map(str, problems))) == (expected, list(map(str, expected_problems)))
    assert raw == before


def a_pod(name: str, **spec: object) -> dict[str, object]:
    container = {"name": "main", "env": [{"name": "RANK", "value": name}], "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": name, "labels": {"rank": name}}, "spec": {"containers": [container], **spec}}


def test_pods_that_differ_in_name_node_environment_and_token_are_read_once() -> None:
    plain_pods._read.cache_clear()
    for name in ("a", "b"):
        for node in ({}, {"nodeName": f"node-of-{name}"}):
            spec_from(a_pod(name, volumes=[{"name": f"kube-api-access-{name}", "projected": {}}], **node))
    assert plain_pods._read.cache_info().misses == 1


def test_a_long_pod_is_read_without_being_kept() -> None:
    plain_pods._read.cache_clear()
    spec_from(a_pod("long", nodeSelector={f"label-{number}": "x" * 60 for number in range(60)}))
    assert plain_pods._read.cache_info().currsize == 0


def test_more_volumes_than_are_read_are_an_error_of_a_plain_pod_too() -> None:
    volumes = [{"name": f"v{number}", "emptyDir": {}} for number in range(VOLUMES.most + 1)]
    with patch.object(plain_pods, "_LONGEST", 10**9):
        assert spec_from(a_pod("many", volumes=volumes))[1]
