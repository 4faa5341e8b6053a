"""Compare this scheduler with kube-scheduler's own gang scheduling on random gangs whose members restrict each other's nodes.

Each case has four nodes and a gang of two to five pods with affinity, anti-affinity and topology spread. A gang is *possible* if
kube-scheduler's filters admit its pods one after another, in some order on some nodes. This is found out by trying all of them. Pods that
require each other aren't possible in this sense, though a placement can keep all rules at once.
"""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.node import node_from
from allaboard.model.pod import pod_from
from allaboard.placement import NodeFilters, SearchSettings, search
from allaboard.planning.gang_problem import Packings, problem_of
from allaboard.planning.resolve import resolve
from allaboard_sandbox.sandbox import NodeShape, node_object

from ..controlplane.client import Api
from ..controlplane.controlplane import ControlPlane, Options

Body = dict[str, Any]

_OPTIONS = Options(
    feature_gates=("GenericWorkload",),
    apiserver_flags=("--runtime-config=scheduling.k8s.io/v1beta1=true",),
    controllers=("serviceaccount-controller",),
    has_kubelets=False,
)
_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
_PODS = "/api/v1/namespaces/default/pods"
_CPU = 4  # of each node
_NODES = tuple(f"node-{number}" for number in range(4))
_SECONDS = 4.0  # for an answer of kube-scheduler
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def draw(seed: int) -> tuple[dict[str, str], list[Body]]:
    """Return the zone of each node, and the pods of a gang."""
    rng = random.Random(seed)
    zones = {name: rng.choice("ab") for name in _NODES}
    roles = ["x", "y"][: rng.choice([1, 2, 2])]
    specs = {role: {"cpu": rng.choice([1, 2, 3]), "rules": _rules(rng, roles)} for role in roles}
    members = [roles[number % len(roles)] for number in range(rng.randint(2, 5))]
    return zones, [_pod(f"gang-{number}", role, specs[role]) for number, role in enumerate(members)]


def _rules(rng: random.Random, roles: Sequence[str]) -> Body:
    """Return a spec with one or two rules, each about the pods of a role."""
    spec: Body = {}
    for kind in rng.sample(["near", "apart", "spread"], rng.choice([1, 1, 2])):
        selector = {"matchLabels": {"app": rng.choice(roles)}}
        key = rng.choice(["zone", "kubernetes.io/hostname"])
        if kind == "spread":
            skew = {"maxSkew": rng.choice([1, 2]), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
            spec["topologySpreadConstraints"] = [skew]
        else:
            name = "podAffinity" if kind == "near" else "podAntiAffinity"
            spec.setdefault("affinity", {})[name] = {_REQUIRED: [{"topologyKey": key, "labelSelector": selector}]}
    return spec


def _pod(name: str, role: str, spec: Body) -> Body:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": str(spec["cpu"])}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": role}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "schedulingGroup": {"podGroupName": "gang"},
            **spec["rules"],
        },
    }


def is_possible(zones: Mapping[str, str], pods: Sequence[Body]) -> bool:
    """Return whether kube-scheduler's filters admit all pods one after another, in some order on some nodes."""
    seen: set[frozenset[tuple[int, str]]] = set()

    def goes_on(placed: frozenset[tuple[int, str]]) -> bool:
        if len(placed) == len(pods):
            return True
        if placed in seen:
            return False
        seen.add(placed)
        waiting = set(range(len(pods))) - {number for number, _ in placed}
        return any(
            _admits(pods, placed, number, node, zones) and goes_on(placed | {(number, node)}) for number in waiting for node in _NODES
        )

    return goes_on(frozenset())


def _admits(pods: Sequence[Body], placed: frozenset[tuple[int, str]], number: int, node: str, zones: Mapping[str, str]) -> bool:
    """Return whether a node admits a pod beside the pods that are placed: by cpu, and by the filters of kube-scheduler."""
    pod = pods[number]
    taken = sum(_cpu(pods[other]) for other, where in placed if where == node)
    if taken + _cpu(pod) > _CPU:
        return False
    others = [(pods[other], where) for other, where in placed]
    affinity = pod["spec"].get("affinity") or {}
    for term in affinity.get("podAffinity", {}).get(_REQUIRED, ()):
        matched = [where for other, where in others if _selects(term, other)]
        if not matched and _selects(term, pod):
            continue  # the first pod of a group may go anywhere
        if not any(_is_near(term, node, where, zones) for where in matched):
            return False
    for holder, subject, where in [(pod, other, where) for other, where in others] + [(other, pod, where) for other, where in others]:
        for term in (holder["spec"].get("affinity") or {}).get("podAntiAffinity", {}).get(_REQUIRED, ()):
            if _selects(term, subject) and _is_near(term, node, where, zones):
                return False
    for constraint in pod["spec"].get("topologySpreadConstraints", ()):
        domains = {_domain(constraint, name, zones): 0 for name in _NODES}
        for other, where in others:
            domains[_domain(constraint, where, zones)] += _selects(constraint, other)
        here = domains[_domain(constraint, node, zones)] + _selects(constraint, pod)
        if here - min(domains.values()) > constraint["maxSkew"]:
            return False
    return True


def _cpu(pod: Body) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _selects(term: Body, pod: Body) -> bool:
    return bool(term["labelSelector"]["matchLabels"]["app"] == pod["metadata"]["labels"]["app"])


def _domain(term: Body, node: str, zones: Mapping[str, str]) -> str:
    return zones[node] if term["topologyKey"] == "zone" else node


def _is_near(term: Body, node: str, other: str, zones: Mapping[str, str]) -> bool:
    return _domain(term, node, zones) == _domain(term, other, zones)


def placed_by_kube_scheduler(api: Api, zones: Mapping[str, str], pods: Sequence[Body]) -> bool:
    """Return whether kube-scheduler binds all pods of the gang."""
    for name, zone in zones.items():
        node = api.request("GET", f"/api/v1/nodes/{name}")
        node["metadata"]["labels"]["zone"] = zone
        node["spec"] = {**node["spec"], "taints": []}  # the API server taints a new node as not ready
        api.request("PUT", f"/api/v1/nodes/{name}", node)
    group = {"metadata": {"name": "gang"}, "spec": {"schedulingPolicy": {"gang": {"minCount": len(pods)}}}}
    api.request("POST", _GROUPS, group)
    for pod in pods:
        api.request("POST", _PODS, pod)
    try:
        return _answer(api, len(pods))
    finally:
        for pod in pods:
            api.request("DELETE", f"{_PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        api.request("PATCH", f"{_GROUPS}/gang", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
        api.request("DELETE", f"{_GROUPS}/gang")
        while list(api.items("/api/v1/pods")) or api.find(f"{_GROUPS}/gang") is not None:
            time.sleep(0.02)


def _answer(api: Api, total: int) -> bool:
    ends = time.monotonic() + _SECONDS
    refused = 0
    while time.monotonic() < ends:
        pods = list(api.items(_PODS))
        if sum(bool(pod["spec"].get("nodeName")) for pod in pods) == total:
            return True
        conditions = [each for pod in pods for each in (pod.get("status") or {}).get("conditions") or ()]
        is_refused = sum(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions) == total
        refused = refused + 1 if is_refused else 0
        if refused > 25:  # some seconds: a refusal may be tried again
            return False
        time.sleep(0.04)
    return False


def placed_by_ours(zones: Mapping[str, str], pods: Sequence[Body]) -> bool | None:
    """Return whether this scheduler finds a placement; None if it neither finds one nor proves that there is none."""
    view = ClusterView()
    for name, zone in zones.items():
        raw = node_object(name, NodeShape(str(_CPU)))
        raw["metadata"]["labels"] = {"zone": zone, "kubernetes.io/hostname": name}
        view.upsert_node(node_from(raw))
    members = []
    for pod in pods:
        raw = {
            **pod,
            "metadata": {**pod["metadata"], "uid": pod["metadata"]["name"], "resourceVersion": "1"},
            "status": {"phase": "Pending"},
        }
        members.append(pod_from({**raw, "spec": {**raw["spec"], "schedulerName": "allaboard"}}))
        view.upsert_pod(members[-1])
    gang = Gang(GangKey("default", "gang"), len(pods), tuple(members), 0, 0.0, Objective.BINPACK, 60)
    gang = resolve(gang, view.volumes, view)
    plan = search(problem_of(gang, len(pods), view.snapshot(), NodeFilters(), Packings().of(gang)), SearchSettings(), 1)
    return plan.feasible


@click.command(help=__doc__)
@click.option("--cases", default=100, show_default=True, help="How many gangs are played.")
@click.option("--first", default=0, show_default=True, help="The seed of the first gang; the next gangs have the next seeds.")
def main(cases: int, first: int) -> None:
    """Play gangs on a control plane, and say how many of the possible ones each scheduler places."""
    found: Counter[tuple[bool, bool | None, bool]] = Counter()
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), _OPTIONS) as plane:
        for name in _NODES:
            plane.api.request("POST", "/api/v1/nodes", node_object(name, NodeShape(str(_CPU))))
        plane.start_scheduler()
        for seed in track(range(first, first + cases), console=Console(stderr=True), description="gangs", transient=True):
            zones, pods = draw(seed)
            answers = is_possible(zones, pods), placed_by_ours(zones, pods), placed_by_kube_scheduler(plane.api, zones, pods)
            found[answers] += 1
            if answers[0] and not (answers[1] and answers[2]):
                click.echo(f"gang {seed} is possible; placed by this scheduler: {answers[1]}, by kube-scheduler: {answers[2]}")
    table = Table("possible pod by pod", "this scheduler", "kube-scheduler", "gangs", box=None)
    for answers, number in sorted(found.items(), key=str):
        table.add_row(*map(str, (*answers, number)))
    Console().print(table)


if __name__ == "__main__":
    main()
