"""Draws small clusters and a pod: with affinity, topology spread, ports, taints and selectors that often matter."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

Body = dict[str, Any]

NODES = tuple(f"node-{number}" for number in range(5))
APPS = ("a", "b")
LABELS = ("app", "tier")
KEYS = ("zone", "rack", "kubernetes.io/hostname")
NAMESPACES = {"near": {"team": "a"}, "far": {"team": "b"}}
"""Namespaces of bound pods beside the default one, and their labels."""

_IN_DEFAULT = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default"]}]}


@dataclass(frozen=True, slots=True)
class Case:
    """Labels, taints and whether it is cordoned for each node; pods that are bound, and the pod that waits.

    ``storage`` are storage classes, volumes, claims and other objects that decide where volumes are.
    """

    nodes: dict[str, Body] = field(default_factory=dict)
    storage: list[Body] = field(default_factory=list)
    bound: list[Body] = field(default_factory=list)
    pod: Body = field(default_factory=dict)
    rules: frozenset[str] = frozenset()


def draw(seed: int, rule: str = "") -> Case:
    """Return the case of a seed, whose pod has rules of the kind ``rule`` and perhaps of another kind; of any kinds without ``rule``."""
    rng = Random(seed)
    nodes = {name: _node(rng) for name in NODES}
    bound = []
    for number in range(rng.randint(0, 8)):
        spec: Body = {"nodeName": rng.choice(NODES), "namespace": rng.choice(["default", "default", "default", *NAMESPACES])}
        if rng.random() < 0.3:
            spec["affinity"] = {"podAntiAffinity": {_REQUIRED: [_term(rng)]}}
        bound.append(_pod(f"bound-{number}", rng, spec, cpu=rng.choice([100, 500, 1000])))
    rules = frozenset(rng.sample(sorted(RULES), rng.choice([1, 1, 2])))
    if rule and rule not in rules:
        rules = frozenset([rule, *sorted(rules)[1:]])
    spec = {}
    for each in sorted(rules):
        RULES[each](rng, spec)
    storage = spec.pop("storage", [])
    if bound and rng.random() < 0.2 and (claims := [each for each in storage if each["kind"] == "PersistentVolumeClaim"]):
        bound[0]["spec"]["volumes"] = [_mounted(claims[0]["metadata"]["name"])]
    return Case(nodes, storage, bound, _pod("pod", rng, spec, cpu=rng.choice([100, 100, 1500, 3000])), rules)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _node(rng: Random) -> Body:
    labels: Body = {}
    if rng.random() < 0.85:
        labels["zone"] = rng.choice(["x", "y", "z"])
    if rng.random() < 0.6:
        labels["rack"] = rng.choice(["1", "2"])
    taints = (
        [{"key": "dedicated", "value": "t", "effect": rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])}]
        if rng.random() < 0.15
        else []
    )
    return {"labels": labels, "taints": taints, "unschedulable": rng.random() < 0.08}


def _pod(name: str, rng: Random, spec: Body, *, cpu: int) -> Body:
    labels = {"app": rng.choice(APPS)} | ({"tier": rng.choice(["t1", "t2"])} if rng.random() < 0.4 else {})
    container: Body = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    if (ports := spec.pop("ports", None)) is not None:
        container["ports"] = ports
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": spec.pop("namespace", "default"), "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def _selector(rng: Random) -> Body:
    kind = rng.random()
    if kind < 0.6:
        return {"matchLabels": {"app": rng.choice(APPS)}}
    if kind < 0.8:
        return {"matchExpressions": [{"key": "tier", "operator": rng.choice(["Exists", "DoesNotExist"])}]}
    if kind < 0.85:
        return {}
    return {"matchExpressions": [{"key": "app", "operator": rng.choice(["In", "NotIn"]), "values": [rng.choice(APPS)]}]}


def _term(rng: Random, key: str = "") -> Body:
    term: Body = {"topologyKey": key or rng.choice(KEYS)}
    if rng.random() < 0.95:
        term["labelSelector"] = _selector(rng)
    if rng.random() < 0.15:
        term["namespaces"] = rng.choice([["default"], ["near"]])
    if rng.random() < 0.25:
        term["namespaceSelector"] = rng.choice([{}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "b"}}, _IN_DEFAULT])
    if "tier" not in str(term) and "labelSelector" in term and rng.random() < 0.15:
        term[rng.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["tier"]
    return term


def _affinity(rng: Random, spec: Body) -> None:
    key = rng.choice([*KEYS, ""])  # each term has a key of its own without one
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


def _mounted(claim: str) -> Body:
    return {"name": claim, "persistentVolumeClaim": {"claimName": claim}}


def _volumes(rng: Random, spec: Body) -> None:
    """Give the pod one or two claims: bound ones, ones that wait for a node, and now and then one that can't get a volume."""
    names = ["static", "dynamic", "tracked"]
    classes = [
        _cluster_wide("storage.k8s.io/v1", "StorageClass", name, provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer")
        for name, provisioner in zip(names, ("kubernetes.io/no-provisioner", "csi.example.com", "tracked.example.com"), strict=True)
    ]
    classes.append(_cluster_wide("storage.k8s.io/v1", "StorageClass", "immediate", provisioner="csi.example.com"))
    if rng.random() < 0.5:
        expression = {"key": "zone", "values": rng.sample(["x", "y", "z"], rng.choice([1, 2]))}
        classes[1]["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    driver = _cluster_wide("storage.k8s.io/v1", "CSIDriver", "tracked.example.com", spec={"storageCapacity": True, "attachRequired": False})
    volumes = [_volume(f"volume-{number}", rng, rng.choice(["static", "static", "dynamic"])) for number in range(rng.randint(0, 4))]
    capacities = [_capacity(f"capacity-{number}", rng) for number in range(rng.randint(0, 2))]
    # If a node lacks storage for one claim and a free volume for another, kube-scheduler counts the reason of the smaller claim.
    if rng.random() < 0.3:
        names = ["tracked"]
    else:
        names.remove("tracked")
    claims = []
    for number in range(rng.choice([1, 1, 2])):
        name, kind = f"claim-{number}", rng.choice([*names, *names, "bound", "bound"])
        if rng.random() < 0.05:
            kind = "immediate"
        claim = _claim(name, rng, kind if kind != "bound" else rng.choice(["", "static"]))
        if kind == "bound":
            volume = _volume(f"of-{name}", rng, claim["spec"]["storageClassName"])
            volume["spec"]["claimRef"] = {"namespace": "default", "name": name}
            if rng.random() < 0.4:
                volume["metadata"]["labels"] = {"topology.kubernetes.io/zone": rng.choice(["x", "y", "x__y"])}
            claim["spec"]["volumeName"] = volume["metadata"]["name"]
            volumes.append(volume)
        elif rng.random() < 0.15:
            claim["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": rng.choice(NODES)}
        claims.append(claim)
    spec["storage"] = [*spec.get("storage", []), *classes, driver, *volumes, *capacities, *claims]
    spec["volumes"] = [_mounted(claim["metadata"]["name"]) for claim in claims]


def _cluster_wide(version: str, kind: str, name: str, **fields: Any) -> Body:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def _volume(name: str, rng: Random, storage_class: str) -> Body:
    spec: Body = {
        "capacity": {"storage": rng.choice(["1Gi", "2Gi", "5Gi"])},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "csi": {"driver": "csi.example.com", "volumeHandle": name},
    }
    key, values = rng.choice([("kubernetes.io/hostname", NODES), ("zone", ("x", "y", "z"))])
    if rng.random() < 0.85:
        expression = {"key": key, "operator": "In", "values": [rng.choice(values)]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    volume = _cluster_wide("v1", "PersistentVolume", name, spec=spec)
    volume["metadata"]["labels"] = {"tier": rng.choice(["t1", "t2"])}
    return volume


def _claim(name: str, rng: Random, storage_class: str) -> Body:
    modes = ["ReadWriteOncePod"] if rng.random() < 0.15 else ["ReadWriteOnce"]
    size = {"requests": {"storage": rng.choice(["1Gi", "2Gi", "4Gi"])}}
    spec: Body = {"accessModes": modes, "storageClassName": storage_class, "resources": size}
    if storage_class == "static" and rng.random() < 0.2:
        spec["selector"] = {"matchLabels": {"tier": rng.choice(["t1", "t2"])}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _capacity(name: str, rng: Random) -> Body:
    topology = {"matchLabels": {"zone": rng.choice(["x", "y"])}} if rng.random() < 0.8 else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": "tracked",
        "nodeTopology": topology,
        "capacity": rng.choice(["1Gi", "3Gi", "10Gi"]),
    }


def _resource_claims(rng: Random, spec: Body) -> None:
    """Give the pod one or two resource claims that are allocated, on some nodes or on each node."""
    claims = []
    for number in range(rng.choice([1, 1, 2])):
        key, values = rng.choice([("kubernetes.io/hostname", NODES), ("zone", ("x", "y", "z"))])
        expression = {"key": key, "operator": "In", "values": [rng.choice(values)]}
        device = {"request": "gpu", "driver": "gpu.example.com", "pool": "pool", "device": f"gpu-{number}"}
        allocation: Body = {"devices": {"results": [device]}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
        if rng.random() < 0.8:
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        # Another pod uses the claim, too: kube-scheduler would give up the allocation of a claim that no one uses.
        users = [{"resource": "pods", "name": "another", "uid": "another"}]
        claims.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"devices-{number}", "namespace": "default"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
                "status": {"allocation": allocation, "reservedFor": users},
            }
        )
    spec["storage"] = [*spec.get("storage", []), *claims]
    names = [claim["metadata"]["name"] for claim in claims]
    spec["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in names]


def _node_affinity(rng: Random, spec: Body) -> None:
    if rng.random() < 0.5:
        spec["nodeSelector"] = {"zone": rng.choice(["x", "y"])}
        return
    expression = {"key": rng.choice(["zone", "rack"]), "operator": rng.choice(["Exists", "DoesNotExist"])}
    spec.setdefault("affinity", {})["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _tolerations(rng: Random, spec: Body) -> None:
    everything: Body = {"operator": "Exists"}
    cordoned = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    dedicated = {"key": "dedicated", "operator": "Equal", "value": rng.choice(["t", "u"])}
    if rng.random() < 0.3:
        dedicated["effect"] = rng.choice(["NoSchedule", "NoExecute"])
    spec["tolerations"] = rng.choice([[everything], [cordoned], [dedicated], [dedicated, cordoned]])


def _requests(rng: Random, spec: Body) -> None:
    """Give the pod init containers, sidecars and requests of the pod as a whole."""

    def container(name: str, **fields: Any) -> Body:
        cpu = rng.choice(["200m", "700m", "1200m", "1900m"])
        return {"name": name, "image": "pause", "resources": {"requests": {"cpu": cpu}}, **fields}

    first = [container(f"first-{number}") for number in range(rng.randint(0, 2))]
    sidecars = [container(f"sidecar-{number}", restartPolicy="Always") for number in range(rng.randint(0, 1))]
    spec["initContainers"] = rng.sample([*first, *sidecars], len(first) + len(sidecars))
    if rng.random() < 0.3:
        spec["resources"] = {"requests": {"memory": rng.choice(["1Gi", "70Gi"])}}


RULES = {
    "affinity": _affinity,
    "anti-affinity": _anti_affinity,
    "spread": _spread,
    "ports": _ports,
    "node affinity": _node_affinity,
    "tolerations": _tolerations,
    "volumes": _volumes,
    "requests": _requests,
    "resource claims": _resource_claims,
}
"""Functions that give a pod rules of one kind."""
