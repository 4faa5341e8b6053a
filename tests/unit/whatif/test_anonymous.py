"""Tests that an anonymous snapshot keeps no name, and that the scheduler decides about it as about the cluster."""

import json
import random
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from allaboard.gangs.membership import GANG_LABELS, GANG_NAME_LABEL, MIN_AVAILABLE_LABEL, POD_GROUP_LABEL, object_name
from allaboard.model.foreign_gang_labels import FOREIGN_GANG_LABELS, foreign_gang_labels_in
from allaboard.model.gpu_sharing import DRIVERS, shared_by, taken_by
from allaboard.model.kueue import GROUP_NAME, GROUP_TOTAL
from allaboard.model.openfaas import FUNCTION_SPEC, function_demand
from allaboard.model.pod import ROLE_LABELS, STAMP, pod_from
from allaboard.settings.options import load_settings
from allaboard.whatif.anonymous import anonymized
from allaboard.whatif.board import StoredBoard
from allaboard.whatif.collected import KINDS
from allaboard.whatif.public_words import KEY_BEGINNINGS, KEYS
from allaboard.whatif.snapshots import read_cluster

Raw = dict[str, Any]
SECRET = "hunter"
TABLE = json.loads((files("allaboard.whatif") / "fields.json").read_text(encoding="utf-8"))
TYPES = {name: fields.split() for part in TABLE for name, fields in part["types"].items()}
TYPE_OF_KIND = {key: name for part in TABLE for key, name in part["kinds"].items()}
EVERY_FIELD = {
    *(field.partition(":")[0] for fields in TYPES.values() for field in fields),
    *("addresses", "hostIP", "podIP", "podIPs", "nodeInfo", "images", "message", "reason", "conditions", "containerStatuses"),
    *("nominatedNodeName", "phase", "allocation", "reservedFor", "resourceClaimStatuses", "expectedStart", "hard", "used", "unknownField"),
} - {"status", "spec", "metadata"}


def planted(kind: str, plant: Callable[[], Any]) -> Raw:
    """Return an object with all fields that Kubernetes knows. ``plant`` gives the content of a field without fields of its own."""

    def filled(name: str, depth: int = 0) -> Any:
        if name not in TYPES or depth > 12:
            return plant()
        found = {}
        for entry in TYPES[name]:
            field, _, of = entry.partition(":")
            inner = filled(of.removeprefix("[]").removeprefix("{}"), depth + 1)
            found[field] = [inner] if of.startswith("[]") else {secret(): inner} if of.startswith("{}") else inner
        return found

    everything = {field: plant() for field in sorted(EVERY_FIELD)}
    return {**everything, "spec": everything, **filled(kind), "status": everything}


numbers = count()


def secret() -> str:
    return f"{SECRET}{next(numbers)}.acme.com/x"


def texts(value: Any) -> Iterator[str]:
    """Yield all texts and keys in ``value``."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("plant", [secret, lambda: [secret(), secret()], lambda: {secret(): secret(), "name": secret(), "key": secret()}])
def test_no_text_of_an_object_of_any_kind_survives(plant: Callable[[], Any]) -> None:
    for resource in KINDS:
        name = TYPE_OF_KIND.get(f"{resource.api_version} {resource.kind}", "Pod")
        raw = {**planted(name, plant), "apiVersion": resource.api_version, "kind": resource.kind}
        assert sum(SECRET in text for text in texts(raw)) > 60
        found = anonymized([raw])
        assert [text for text in texts(found) if SECRET in text.lower()] == []
        assert found[0]["kind"] == resource.kind


def test_no_value_of_a_known_label_or_annotation_survives_nor_the_rest_of_a_key() -> None:
    for metadata in ("labels", "annotations"):
        for value in (
            SECRET,
            f"{SECRET}=2,worker=1",
            f"rack@{SECRET}",
            json.dumps({"limits": {SECRET: SECRET}, SECRET: 1, "name": SECRET}),
        ):
            stated = {key: f"{value}{number}" for number, key in enumerate(sorted((*KEYS, *(each + SECRET for each in KEY_BEGINNINGS))))}
            found = anonymized([{"kind": "Pod", "metadata": {"name": "p", metadata: stated}}])
            assert SECRET not in json.dumps(found)
            assert found[0]["metadata"][metadata].keys() >= KEYS


def test_names_that_look_like_numbers_are_replaced() -> None:
    found = anonymized(
        [
            {
                "kind": "Node",
                "metadata": {
                    "name": "10.1.2.3",
                    "labels": {"kubernetes.io/hostname": "10.1.2.3", "team": "4711", "kueue.x-k8s.io/queue-name": "42"},
                },
            },
            {"kind": "Pod", "metadata": {"name": "815", "namespace": "42"}, "spec": {"nodeName": "10.1.2.3", "priority": 7}},
        ]
    )
    assert not re.search(r"10\.1|4711|815|42", json.dumps(found))
    assert found[0]["metadata"]["labels"]["kubernetes.io/hostname"] == found[1]["spec"]["nodeName"] == found[0]["metadata"]["name"]
    assert found[1]["spec"]["priority"] == 7


def test_every_key_that_the_code_names_is_kept() -> None:
    source = Path(__file__).parents[3] / "operator" / "allaboard"
    paths = (path for part in ("model", "gangs", "cluster", "binding", "placement", "whatif") for path in (source / part).rglob("*.py"))
    code = "\n".join(path.read_text() for path in paths if path.name != "public_words.py")
    named = set(re.findall(r'"([a-z0-9]+(?:[.-][a-z0-9]+)*/[A-Za-z0-9][A-Za-z0-9._-]*)"', code))
    named = {key for key in named if not re.fullmatch(r".+/v[0-9]+(alpha|beta)?[0-9]*", key)}
    values = {"kubernetes.io/job-controller", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator", "kubernetes.io/no-provisioner"}
    left_out = {"kubectl.kubernetes.io/last-applied-configuration", "pods/binding"}  # the latter is a subresource
    assert len(named) > 80
    kept = anonymized([{"metadata": {"labels": dict.fromkeys(named, "x")}}])[0]["metadata"]["labels"]
    missing = named - kept.keys() - values - left_out
    assert [key for key in sorted(missing) if not any(known.startswith(f"{key}-") for known in KEYS)] == []
    assert {*GANG_LABELS, *ROLE_LABELS, *FOREIGN_GANG_LABELS} <= KEYS


def test_keys_of_selectors_taints_and_expressions_are_replaced_as_those_of_labels() -> None:
    mine = "acme.io/pool"
    raw = {
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {mine: "v", "batch.kubernetes.io/job-completion-index": "3"}},
        "spec": {
            "nodeSelector": {mine: "v"},
            "tolerations": [{"key": mine, "value": "v", "operator": "Equal"}],
            "topologySpreadConstraints": [
                {
                    "topologyKey": mine,
                    "matchLabelKeys": [mine],
                    "labelSelector": {
                        "matchLabels": {mine: "v"},
                        "matchExpressions": [{"key": mine, "operator": "In", "values": ["v", "3"]}],
                    },
                }
            ],
        },
    }
    node = {"kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [{"key": mine, "value": "v", "effect": "NoSchedule"}]}}
    pod, node = anonymized([raw, node])
    (key, value), *_ = pod["metadata"]["labels"].items()
    assert (key, value) == ("key-1", "value-2")
    spread = pod["spec"]["topologySpreadConstraints"][0]
    assert (spread["topologyKey"], spread["matchLabelKeys"]) == (key, [key])
    assert spread["labelSelector"] == {
        "matchLabels": {key: value},
        "matchExpressions": [{"key": key, "operator": "In", "values": [value, "value-1"]}],
    }
    assert pod["spec"]["nodeSelector"] == {key: value}
    assert pod["spec"]["tolerations"] == [{"key": key, "value": value, "operator": "Equal"}]
    assert node["spec"]["taints"] == [{"key": key, "value": value, "effect": "NoSchedule"}]
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "3"


def test_resources_have_one_name_in_requests_nodes_and_quotas() -> None:
    pod, node, quota = anonymized(
        [
            {"kind": "Pod", "spec": {"containers": [{"resources": {"requests": {"acme.com/fpga": "1", "cpu": "1"}}}]}},
            {"kind": "Node", "status": {"allocatable": {"acme.com/fpga": "2", "nvidia.com/mig-1g.5gb": "3"}}},
            {"kind": "ResourceQuota", "spec": {"hard": {"requests.acme.com/fpga": "5", "acme-gold.storageclass.storage.k8s.io/x": "1"}}},
        ]
    )
    renamed = next(iter(pod["spec"]["containers"][0]["resources"]["requests"]))
    assert renamed == "example.com/resource-2"  # still an extended resource
    assert node["status"]["allocatable"] == {renamed: "2", "nvidia.com/mig-1g.5gb": "3"}
    assert quota["spec"]["hard"] == {f"requests.{renamed}": "5", "example.com/resource-1": "1"}


def test_schedulers_and_owners_stay_distinguishable() -> None:
    names = ("allaboard", "default-scheduler", "acme-a", "acme-b")
    found = anonymized([{"kind": "Pod", "metadata": {"name": f"p{name}"}, "spec": {"schedulerName": name}} for name in names])
    assert [raw["spec"]["schedulerName"] for raw in found] == ["allaboard", "default-scheduler", "scheduler-1", "scheduler-2"]
    owners = [{"apiVersion": "acme.com/v1", "kind": "AcmeJob", "uid": "u"}, {"apiVersion": "batch/v1", "kind": "Job", "uid": "j"}]
    shown = anonymized([{"kind": "Pod", "metadata": {"name": "p", "ownerReferences": owners}}])[0]["metadata"]["ownerReferences"]
    assert [owner["kind"] for owner in shown] == ["kind-1", "Job"]


def test_names_keep_their_order() -> None:
    nodes = [{"kind": "Node", "metadata": {"name": name, "annotations": {"acme.io/a": "b"}}} for name in ("n9", "n10")]
    found = anonymized([*nodes, {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n9"}}])
    assert [raw["metadata"]["name"] for raw in found[:2]] == ["node-2", "node-1"]
    assert found[2]["spec"]["nodeName"] == "node-2"
    assert found[0]["metadata"]["annotations"] == {}


def test_a_gang_is_named_as_its_pods_name_it() -> None:
    for label in (*GANG_LABELS[:2], GANG_NAME_LABEL):
        pod, group = anonymized(
            [
                {"kind": "Pod", "metadata": {"name": "p", "labels": {label: "Acme_Train"}}},
                {"kind": "PodGroup", "metadata": {"name": object_name("Acme_Train")}},
            ]
        )
        assert pod["metadata"]["labels"] == {label: group["metadata"]["name"]} == {label: "gang-1"}


def test_a_volume_of_several_zones_names_those_of_nodes() -> None:
    zone = "topology.kubernetes.io/zone"
    node, volume = anonymized(
        [
            {"kind": "Node", "metadata": {"name": "n", "labels": {zone: "acme-east"}}},
            {"kind": "PersistentVolume", "metadata": {"name": "v", "labels": {zone: "acme-east__acme-west"}}},
        ]
    )
    assert volume["metadata"]["labels"][zone].split("__")[0] == node["metadata"]["labels"][zone]


def test_the_stamp_of_a_bind_is_kept_and_nothing_like_it() -> None:
    stamps = [
        anonymized([{"metadata": {"annotations": {STAMP: text}}}])[0]["metadata"]["annotations"][STAMP]
        for text in ("0af/3/whole", "acme/3")
    ]
    assert stamps == ["0af/3/whole", "key-1"]


def test_fields_that_no_command_reads_are_left_out() -> None:
    status = {"podIP": "10.0.0.1", "hostIP": "10.0.0.2", "addresses": [{"address": "10.0.0.3"}], "phase": "Running", "message": "acme"}
    container = {"name": "c", "image": "acme", "args": ["acme"], "envFrom": [{"configMapRef": {"name": "acme"}}], "command": ["acme"]}
    (pod,) = anonymized([{"kind": "Pod", "spec": {"containers": [container], "serviceAccountName": "acme"}, "status": status}])
    assert pod["status"] == {"hostIP": "value-1", "phase": "Running", "message": "left out"}  # ``hostIP`` is also a field of ports
    assert pod["spec"] == {"containers": [{"name": "object-1"}]}


def test_ranks_in_names_of_pods_keep_their_order() -> None:
    names = ["w-10-a", "w-2-a", "w-2-b", "chief"]
    found = [raw["metadata"]["name"] for raw in anonymized([{"kind": "Pod", "metadata": {"name": name}} for name in names])]
    assert sorted(range(4), key=found.__getitem__) == sorted(range(4), key=names.__getitem__)
    assert [re.findall("[0-9]+", name) for name in found] == [["1"], ["0"], ["0"], []]


def test_a_claim_made_for_a_pod_is_still_found() -> None:
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    pod, claim = anonymized(
        [
            {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"volumes": [volume]}},
            {"kind": "PersistentVolumeClaim", "metadata": {"name": "p-scratch"}},
        ]
    )
    assert pod_from(pod).spec.claims == (claim["metadata"]["name"],)


def test_parts_of_gpus_are_still_read() -> None:
    hami, volcano = DRIVERS["HAMi"], DRIVERS["Volcano"]
    listing = json.dumps([{"id": f"GPU-{SECRET}", "count": 10, "devmem": 32768, "health": True, "mode": "hami-core", "type": SECRET}])
    columns = f"GPU-{SECRET},10,32768,{SECRET},true:"
    node, other, gone, pod = anonymized(
        [
            {"kind": "Node", "metadata": {"annotations": {hami.register: listing, hami.handshake: f"Requesting_{SECRET}"}}},
            {"kind": "Node", "metadata": {"annotations": {volcano.register: columns}}},
            {"kind": "Node", "metadata": {"annotations": {hami.register: listing, hami.handshake: "Deleted_2024.01.01 00:00:00"}}},
            {"kind": "Pod", "metadata": {"annotations": {hami.holds: f"GPU-{SECRET},NVIDIA,3000,30:;"}}},
        ]
    )
    shared, columns_of = (shared_by(raw["metadata"]["annotations"]) for raw in (node, other))
    assert shared is not None
    assert columns_of is not None
    assert [each[1:] for each in (*shared.devices, *columns_of.devices)] == [(32768, 10, True)] * 2
    taken = taken_by(pod["metadata"]["annotations"])
    assert (taken[0].uuid, taken[0].memory, taken[0].cores) == (shared.devices[0].uuid, 3000, 30)
    left = shared_by(gone["metadata"]["annotations"])
    assert left is not None
    assert left.devices == ()


def test_requests_of_functions_are_still_read() -> None:
    text = json.dumps({"name": SECRET, "requests": {"cpu": "2", "memory": "1Gi"}, "environment": {"a": f'"{SECRET}"'}})
    (pod,) = anonymized([{"kind": "Pod", "metadata": {"annotations": {FUNCTION_SPEC: text}}}])
    assert function_demand(pod["metadata"]["annotations"][FUNCTION_SPEC]) == function_demand(text)


def test_demands_on_other_schedulers_stay_demands() -> None:
    for key in (*FOREIGN_GANG_LABELS, *(f"{beginning}acme" for beginning in KEY_BEGINNINGS)):
        for value in ("mine", "2", "Strict"):
            before = foreign_gang_labels_in({key: value, MIN_AVAILABLE_LABEL: "2"}, {})
            (pod,) = anonymized([{"metadata": {"labels": {key: value, MIN_AVAILABLE_LABEL: "2"}}}])
            after = foreign_gang_labels_in(pod["metadata"]["labels"], {})
            assert [name.replace("acme", "key-1") for name in before] == list(after)


GANG_DIALECTS: tuple[Callable[[str, int], tuple[Raw, Raw]], ...] = (
    *((lambda name, size, label=label: ({label: name}, {})) for label in GANG_LABELS[:2]),
    *(
        (lambda name, size, pair=pair: ({f"{pair}/name": name, f"{pair}/min-available": str(size)}, {}))
        for pair in (GANG_NAME_LABEL.rpartition("/")[0], "pod-group.scheduling.x-k8s.io")
    ),
    lambda name, size: ({"kueue.x-k8s.io/queue-name": "acme-queue"}, {GROUP_NAME: name, GROUP_TOTAL: str(size)}),
)
HELD: tuple[Raw, ...] = ({"gang.scheduling.koordinator.sh/name": "acme"}, {"volcano.sh/task-topology-acme": "x"}, {"genius/gpu-nmber": "2"})
ANNOTATIONS: tuple[Raw, ...] = (
    *({},) * 8,
    {"allaboard.dev/required-topology": "acme.io/rack"},
    {"allaboard.dev/topology": "required=rack, segment=2@acme.io/rack"},
    {"allaboard.dev/topology": "preferred=zone"},
    {"kueue.x-k8s.io/podset-required-topology": "acme.io/rack"},
    {"allaboard.dev/objective": "spread", "allaboard.dev/strategy": "bestfit"},
    {"allaboard.dev/strategy": "acme"},
    {"allaboard.dev/walltim": "2h"},
    {"allaboard.dev/gpu-model": r"\bA100\b|acme-card"},
    {"allaboard.dev/min-members": "AcmeChief=1,acmeworker=1"},
    {"allaboard.dev/min-members": "AcmeChief=1,acmeworker=9"},
)
SPECS: tuple[Raw, ...] = (
    *({},) * 4,
    {"nodeSelector": {"acme.io/pool": "a"}},
    {"tolerations": [{"key": "acme.io/only", "operator": "Exists"}]},
    {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "acme.io/generation", "operator": "Gt", "values": ["3"]}]}]}}}},
    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"acme.io/app": "x"}}}]}}},
    {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "acme.io/rack", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [{"key": "acme.io/app", "operator": "Exists"}]}}]},
    {"schedulerName": "acme-scheduler"},
    {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "acme-data"}}]},
)  # fmt: skip


def a_cluster(seed: int) -> list[Raw]:
    """Return nodes that are partly used, and gangs of all dialects that wait on them, with names in all places that decide something."""
    of = random.Random(seed)
    found: list[Raw] = [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "acme-disks"}, "provisioner": "acme.com/disk"},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "acme-pv"}, "spec": {
            "capacity": {"storage": "1Gi"}, "storageClassName": "acme-disks", "claimRef": {"namespace": "acme", "name": "acme-data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "acme.io/pool", "operator": "In", "values": ["a"]}]}]}}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "acme-data", "namespace": "acme"},
         "spec": {"volumeName": "acme-pv", "storageClassName": "acme-disks"}, "status": {"phase": "Bound"}},
    ]  # fmt: skip
    for number in range(6):
        name = f"acme-{of.randint(0, 99)}-{number}"
        labels = {
            "kubernetes.io/hostname": name,
            "topology.kubernetes.io/zone": of.choice(("acme-east", "acme-west")),
            of.choice(("acme.io/rack", "topology.kubernetes.io/rack")): of.choice("xyz"),
            "acme.io/pool": of.choice("ab"),
            "acme.io/generation": of.choice(("2", "3", "10")),
            "nvidia.com/gpu.product": of.choice(("NVIDIA-A100-SXM4-80GB", "Acme-Card", "NVIDIA-L40S")),
        }
        has = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4", "acme.com/fpga": "1"}
        taints = [{"key": "acme.io/only", "value": "x", "effect": "NoSchedule"}] if of.random() < 0.2 else []
        found.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "uid": name, "labels": labels},
                "spec": {"taints": taints},
                "status": {"allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]},
            }
        )
    for number in range(8):
        name = of.choice(("acme-train", "Acme_Train", "train.acme", "b")) + str(number)
        dialect, size = of.choice(GANG_DIALECTS), of.randint(1, 4)
        labels, annotations = of.choice((*HELD, {})) | {}, {}
        if not labels or of.random() < 0.7:
            labels, annotations = dialect(name, size)
        asked, more, spec = of.choice(ANNOTATIONS), of.choice(ROLE_LABELS), of.choice(SPECS)
        if POD_GROUP_LABEL in labels or GANG_LABELS[1] in labels:
            found.append(
                {
                    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": {"name": name.lower().replace("_", "-"), "namespace": "acme", "annotations": asked},
                    "spec": {
                        **({"networkTopology": {"mode": "acme"}} if of.random() < 0.1 else {}),
                        "minMember": size,
                        "minResources": {"acme.com/fpga": "1"} if of.random() < 0.2 else {},
                    },
                }
            )
        asked = of.choice((asked, {}))
        requests = {"cpu": of.choice(("1", "4", "7")), of.choice(("nvidia.com/gpu", "acme.com/fpga")): of.choice(("1", "2"))}
        bound = {"nodeName": found[3 + of.randrange(6)]["metadata"]["name"]} if of.random() < 0.4 else {}
        for index in range(size):
            role = "AcmeChief" if index == 0 else "acmeworker"
            found.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": f"{name.lower().replace('_', '-')}-{index}",
                        "namespace": "acme",
                        "uid": f"{number}-{index}",
                        "creationTimestamp": f"2026-01-01T00:00:{number:02}Z",
                        "labels": {"acme.io/app": "x", more: role, **labels},
                        "annotations": {**annotations, **asked},
                    },
                    "spec": {
                        "schedulerName": "allaboard",
                        "containers": [{"name": "c", "resources": {"requests": requests}}],
                        **spec,
                        **bound,
                    },
                    "status": {"phase": "Running" if bound else "Pending"},
                }
            )
    return found


def written(objects: list[Raw], file: Path) -> str:
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), encoding="utf-8")
    return str(file)


async def answers(file: str) -> list[object]:
    """Return what is decided about each gang: the numbers of its members, the reason why it waits, and how many pods are placed."""
    settings = load_settings({})
    board = StoredBoard.of(read_cluster([file], settings.reading), settings)
    found: list[object] = []
    for row in (await board.gangs()).gangs:
        gang = await board.gang(row.namespace, row.name)
        assert gang is not None
        placed = re.search(r"\d+ of \d+ pods placed", gang.row.message)
        found.append((gang.row.kind, gang.row.state, gang.row.members.model_dump(), gang.row.position, placed[0] if placed else ""))
    return sorted(found, key=str)


@pytest.mark.parametrize("seed", range(12))
async def test_the_scheduler_decides_about_the_file_as_about_the_cluster(seed: int, tmp_path: Path) -> None:
    objects = a_cluster(seed)
    shown = anonymized(objects)
    assert "acme" not in json.dumps(shown).lower()
    before = await answers(written(objects, tmp_path / "cluster.json"))
    assert before
    assert await answers(written(shown, tmp_path / "shown.json")) == before
