"""Draws small clusters and a pod: with affinity, topology spread, ports, taints and selectors that often matter."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

Body = dict[str, Any]

NODES = tuple(f"node-{number}" for number in range(5))
APPS = ("a", "b")
LABELS = ("app", "tier")
KEYS = ("zone", "rack", "kubernetes.io/hostname")


@dataclass(frozen=True, slots=True)
class Case:
    """Labels, taints and whether it is cordoned for each node; pods that are bound, and the pod that waits."""

    nodes: dict[str, Body] = field(default_factory=dict)
    bound: list[Body] = field(default_factory=list)
    pod: Body = field(default_factory=dict)
    rules: frozenset[str] = frozenset()


def draw(seed: int) -> Case:
    """Return the case of a seed."""
    rng = Random(seed)
    nodes = {name: _node(rng) for name in NODES}
    bound = []
    for number in range(rng.randint(0, 8)):
        spec: Body = {"nodeName": rng.choice(NODES)}
        if rng.random() < 0.3:
            spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [_term(rng)]}}
        bound.append(_pod(f"bound-{number}", rng, spec, cpu=rng.choice([100, 500, 1000])))
    rules = frozenset(rng.sample(sorted(_RULES), rng.choice([1, 1, 2])))
    spec = {}
    for rule in sorted(rules):
        _RULES[rule](rng, spec)
    return Case(nodes, bound, _pod("pod", rng, spec, cpu=rng.choice([100, 100, 1500, 3000])), rules)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _node(rng: Random) -> Body:
    labels: Body = {}
    if rng.random() < 0.85:
        labels["zone"] = rng.choice(["x", "y", "z"])
    if rng.random() < 0.6:
        labels["rack"] = rng.choice(["1", "2"])
    taints = [{"key": "dedicated", "value": "t", "effect": rng.choice(["NoSchedule", "PreferNoSchedule"])}] if rng.random() < 0.15 else []
    return {"labels": labels, "taints": taints, "unschedulable": rng.random() < 0.08}


def _pod(name: str, rng: Random, spec: Body, *, cpu: int) -> Body:
    labels = {"app": rng.choice(APPS)} | ({"tier": rng.choice(["t1", "t2"])} if rng.random() < 0.4 else {})
    container: Body = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    if (ports := spec.pop("ports", None)) is not None:
        container["ports"] = ports
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def _selector(rng: Random) -> Body:
    kind = rng.random()
    if kind < 0.6:
        return {"matchLabels": {"app": rng.choice(APPS)}}
    if kind < 0.8:
        return {"matchExpressions": [{"key": "tier", "operator": rng.choice(["Exists", "DoesNotExist"])}]}
    return {"matchExpressions": [{"key": "app", "operator": rng.choice(["In", "NotIn"]), "values": [rng.choice(APPS)]}]}


def _term(rng: Random, key: str = "") -> Body:
    term: Body = {"topologyKey": key or rng.choice(KEYS)}
    if rng.random() < 0.95:
        term["labelSelector"] = _selector(rng)
    if rng.random() < 0.15:
        term["namespaces"] = rng.choice([["default"], ["elsewhere"]])
    if rng.random() < 0.1:
        term["namespaceSelector"] = {}
    if "tier" not in str(term) and "labelSelector" in term and rng.random() < 0.15:
        term[rng.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["tier"]
    return term


def _affinity(rng: Random, spec: Body) -> None:
    key = rng.choice(KEYS)
    terms = [_term(rng, key) for _ in range(rng.choice([1, 1, 2]))]
    spec.setdefault("affinity", {})["podAffinity"] = {_REQUIRED: terms}


def _anti_affinity(rng: Random, spec: Body) -> None:
    spec.setdefault("affinity", {})["podAntiAffinity"] = {_REQUIRED: [_term(rng) for _ in range(rng.choice([1, 1, 2]))]}


def _spread(rng: Random, spec: Body) -> None:
    keys = rng.sample(KEYS, rng.choice([1, 1, 2]))
    spec["topologySpreadConstraints"] = [_constraint(rng, key) for key in keys]


def _constraint(rng: Random, key: str) -> Body:
    found: Body = {"topologyKey": key, "maxSkew": rng.choice([1, 1, 2]), "whenUnsatisfiable": "DoNotSchedule"}
    if rng.random() < 0.95:
        found["labelSelector"] = _selector(rng)
    if rng.random() < 0.3:
        found["minDomains"] = rng.randint(1, 4)
    if rng.random() < 0.3:
        found["nodeAffinityPolicy"] = rng.choice(["Honor", "Ignore"])
    if rng.random() < 0.3:
        found["nodeTaintsPolicy"] = rng.choice(["Honor", "Ignore"])
    if "tier" not in str(found) and "labelSelector" in found and rng.random() < 0.2:
        found["matchLabelKeys"] = ["tier"]
    return found


def _ports(rng: Random, spec: Body) -> None:
    addresses = ("", "0.0.0.0", "127.0.0.1", "10.0.0.1")  # noqa: S104
    ports = [
        {"containerPort": port, "hostPort": port, "protocol": rng.choice(["TCP", "UDP"])}
        for port in rng.sample([80, 81], rng.choice([1, 2]))
    ]
    for port in ports:
        if address := rng.choice(addresses):
            port["hostIP"] = address
    spec["ports"] = ports


def _node_affinity(rng: Random, spec: Body) -> None:
    if rng.random() < 0.5:
        spec["nodeSelector"] = {"zone": rng.choice(["x", "y"])}
        return
    expression = {"key": rng.choice(["zone", "rack"]), "operator": rng.choice(["Exists", "DoesNotExist"])}
    spec.setdefault("affinity", {})["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _tolerations(rng: Random, spec: Body) -> None:
    spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]


_RULES = {
    "affinity": _affinity,
    "anti-affinity": _anti_affinity,
    "spread": _spread,
    "ports": _ports,
    "node affinity": _node_affinity,
    "tolerations": _tolerations,
}
