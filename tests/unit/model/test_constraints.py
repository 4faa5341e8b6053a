"""Tests reading the part of a pod's spec that decides which nodes can take the pod."""

import re
from typing import Any

import pytest

from allaboard.model.constraints import HostPort, NodeSelectorTerm, Requirement, SchedulingSpec, Toleration, readable_spec_from
from allaboard.model.errors import MalformedError
from allaboard.model.podterms import LabelExpression, PodTerm, SpreadConstraint

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # how Kubernetes writes it
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def read(**spec: Any) -> SchedulingSpec:
    found, problems = readable_spec_from({"spec": {"containers": [{"name": "main"}], **spec}})
    if problems:
        raise problems[0]
    return found


def node_affinity(terms: Any) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def test_pods_with_equal_specs_are_one_role_whatever_the_order_of_keys() -> None:
    one = read(nodeSelector={"a": "1", "b": "2"}, tolerations=[{"key": "gpu", "operator": "Exists"}])
    other = read(tolerations=[{"operator": "Exists", "key": "gpu"}], nodeSelector={"b": "2", "a": "1"})
    assert one == other
    assert hash(one) == hash(other)


def test_a_spec_gives_the_requested_amount_of_a_resource() -> None:
    spec = read(containers=[{"name": "main", "resources": {"requests": {"cpu": 2}}}])
    assert (spec.amount("cpu"), spec.amount("memory"), spec.amount("pods")) == (2000, 0, 1)


def test_a_spec_without_required_node_affinity_has_no_affinity() -> None:
    assert read().affinity is None
    assert read(affinity=None).affinity is None
    assert read(affinity={"nodeAffinity": {REQUIRED: None, PREFERRED: [{"weight": 1}]}}).affinity is None


def test_a_required_node_affinity_without_terms_is_kept_because_it_matches_no_node() -> None:
    assert read(affinity=node_affinity([])).affinity == ()
    assert read(affinity=node_affinity([{}])).affinity == (NodeSelectorTerm(),)


def test_node_selector_terms_keep_their_expressions_and_fields() -> None:
    terms = [
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "gpu", "operator": "Exists"}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}],
        },
        {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]},
    ]
    assert read(affinity=node_affinity(terms)).affinity == (
        NodeSelectorTerm(
            expressions=(Requirement("zone", "In", ("a", "b")), Requirement("gpu", "Exists")),
            fields=(Requirement("metadata.name", "NotIn", ("node-1",)),),
        ),
        NodeSelectorTerm(expressions=(Requirement("cores", "Gt", ("8",)),)),
    )


def test_an_unknown_operator_is_reported_with_its_path() -> None:
    with pytest.raises(MalformedError) as caught:
        read(affinity=node_affinity([{"matchExpressions": [{"key": "zone", "operator": "in"}]}]))
    assert caught.value.field == f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator"


def test_the_default_operator_of_a_toleration_is_equal() -> None:
    assert read(tolerations=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"operator": "Exists"}]).tolerations == (
        Toleration("gpu", "Equal", "yes", "NoSchedule"),
        Toleration("", "Exists", "", ""),
    )


def with_ports(*ports: dict[str, Any], **spec: Any) -> SchedulingSpec:
    return read(containers=[{"name": "main", "ports": list(ports)}], **spec)


def test_host_ports_are_those_of_containers_and_sidecars_without_repeats() -> None:
    sidecars = [
        {"name": "log", "restartPolicy": "Always", "ports": [{"containerPort": 9, "hostPort": 9, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
        {"name": "init", "ports": [{"containerPort": 7, "hostPort": 7}]},
    ]
    spec = with_ports({"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 8080}, initContainers=sidecars)
    assert spec.host_ports == (HostPort(ANY_ADDRESS, "TCP", 8080), HostPort("10.0.0.1", "UDP", 9))


def test_a_container_port_takes_no_port_of_the_node() -> None:
    assert with_ports({"containerPort": 80}).host_ports == ()


def test_on_the_host_network_every_container_port_is_a_host_port() -> None:
    assert with_ports({"containerPort": 80}, hostNetwork=True).host_ports == (HostPort(ANY_ADDRESS, "TCP", 80),)
    assert with_ports({"containerPort": 80}, hostNetwork=False).host_ports == ()


def test_claims_are_the_names_of_persistent_volume_claims() -> None:
    volumes = [
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "a", "persistentVolumeClaim": {"claimName": "cache"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "cfg", "persistentVolumeClaim": None},
    ]
    assert read(volumes=volumes).claims == ("cache", "data")


def test_names_of_resource_claims_come_from_the_spec_or_from_the_status_of_the_pod() -> None:
    claims = [{"name": "own", "resourceClaimName": "gpus"}, *({"name": name, "resourceClaimTemplateName": "t"} for name in ("a", "b", "c"))]
    statuses = [{"name": "a", "resourceClaimName": "pod-a-x7"}, {"name": "b"}]
    spec, problems = readable_spec_from({"spec": {"resourceClaims": claims}, "status": {"resourceClaimStatuses": statuses}})
    assert not problems
    assert spec.resource_claims == (("a", "pod-a-x7"), ("c", ""), ("own", "gpus"))


def test_pod_affinity_and_topology_spread_are_read() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    spread = {**term, "maxSkew": 2, "minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    found = read(
        affinity={"podAffinity": {REQUIRED: [term]}},
        topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway", **term}, {"maxSkew": 1, "topologyKey": "host"}, spread],
    )
    selector = (LabelExpression("a", "In", ("b",)),)
    assert found.pod_affinity == (PodTerm("zone", selector),)
    nothing, some = found.spread
    assert (nothing.topology_key, nothing.max_skew, nothing.min_domains, nothing.honors_affinity, nothing.honors_taints) == (
        "host", 1, 1, True, False
    )  # fmt: skip
    assert not nothing.term.matches({"": "", "a": "b"})
    assert some == SpreadConstraint("zone", selector, 2, 3, honors_affinity=False, honors_taints=True)


def test_preferences_do_not_count_as_unsupported() -> None:
    affinity = {"podAffinity": {PREFERRED: [{"weight": 1}], REQUIRED: []}, "podAntiAffinity": {PREFERRED: [{"weight": 1}]}}
    assert (
        read(
            affinity=affinity, topologySpreadConstraints=[{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}], resourceClaims=[]
        ).unsupported
        == ()
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nodeSelector": {"zone": 1}}, "spec.nodeSelector[zone]"),
        ({"nodeSelector": {1: "zone"}}, "spec.nodeSelector"),
        ({"nodeSelector": ["zone"]}, "spec.nodeSelector"),
        ({"affinity": "zone"}, "spec.affinity"),
        ({"affinity": node_affinity({"a": 1})}, f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"),
        ({"tolerations": [{"key": 1}]}, "spec.tolerations[0].key"),
        ({"hostNetwork": "yes"}, "spec.hostNetwork"),
        ({"containers": [{"ports": [{"hostPort": "80"}]}]}, "spec.containers[0].ports[0].hostPort"),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": 5}}]}, "spec.volumes[0].persistentVolumeClaim.claimName"),
        ({"topologySpreadConstraints": 1}, "spec.topologySpreadConstraints"),
        ({"resourceClaims": "gpu"}, "spec.resourceClaims"),
    ],
)
def test_a_wrong_type_is_reported_with_its_path(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedError) as caught:
        read(**spec)
    assert caught.value.field == field


_SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([{**_SPREAD, "maxSkew": 0}], "[0].maxSkew: 0 is less than 1"),
        ([{**_SPREAD, "minDomains": 0}], "[0].minDomains: 0 is less than 1"),
        ([{**_SPREAD, "whenUnsatisfiable": "Never"}], "[0].whenUnsatisfiable: 'Never' is not one of DoNotSchedule, ScheduleAnyway"),
        ([{**_SPREAD, "nodeTaintsPolicy": "honor"}], "[0].nodeTaintsPolicy: 'honor' is not one of Ignore, Honor"),
        (
            [{**_SPREAD, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}}],
            "[0].labelSelector.matchExpressions[0].values: must be stated with operator In",
        ),
        (
            [{**_SPREAD, "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}],
            "[0].labelSelector.matchExpressions[0].values: must be absent with operator Exists",
        ),
    ],
)
def test_a_spread_constraint_that_no_api_server_stores_is_refused(wrong: list[dict[str, object]], message: str) -> None:
    with pytest.raises(MalformedError, match=re.escape(f"spec.topologySpreadConstraints{message}")):
        read(topologySpreadConstraints=wrong)
