"""The stories of the demo, the tests and the README: manifests, nodes, and the expected result.

A story plays on a ``Stage``, which observes the cluster and applies manifests: the demo in this process, a test with kubectl. A story
that doesn't end as expected raises ``StoryError``.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import yaml

from allaboard.cli import bundled
from allaboard_sandbox import ApiError, NodeShape, Sandbox, local_volume, waiting_class

Objects = list[dict[str, Any]]
Apply = Callable[[Objects], Awaitable[None]]

_SECONDS = 50.0
_WORKLOADS = (
    *("mlflows", "tfjobs", "deployments", "replicasets", "statefulsets", "jobs", "podgroups", "pods"),
    *("persistentvolumeclaims", "persistentvolumes", "storageclasses", "events", "nodes"),
)


class StoryError(AssertionError):
    """A story that doesn't have the expected result."""


@dataclass(slots=True)
class Stage:
    """A cluster on which a story plays. ``caption`` is called with the state that the story waits for."""

    cluster: Sandbox
    apply: Apply
    caption: Callable[[str], None] = lambda text: None

    async def expect(self, what: str, is_so: Callable[[], bool], seconds: float = _SECONDS) -> None:
        """Wait until ``is_so()``. Raises ``StoryError`` with the expected state and the state of the pods."""
        self.caption(what)
        try:
            await self.cluster.wait_for(lambda _: is_so(), timeout=seconds, message=what)
        except TimeoutError:
            raise StoryError(f"expected: {what}; but: {self.describe()}") from None

    def pods(self, prefix: str = "") -> Objects:
        """Return the pods whose names begin with ``prefix``."""
        return [pod for pod in self.cluster.list("pods") if pod["metadata"]["name"].startswith(prefix)]

    def running(self, prefix: str = "") -> Objects:
        """Return the running pods whose names begin with ``prefix``."""
        return [pod for pod in self.pods(prefix) if pod["status"].get("phase") == "Running"]

    def bound(self, prefix: str = "") -> Objects:
        """Return the bound pods whose names begin with ``prefix``."""
        return [pod for pod in self.pods(prefix) if pod["spec"].get("nodeName")]

    def nodes_of(self, prefix: str = "") -> set[str]:
        """Return the nodes of the bound pods whose names begin with ``prefix``."""
        return {pod["spec"]["nodeName"] for pod in self.bound(prefix)}

    def refusal_of(self, prefix: str) -> str:
        """Return the refusal in the PodScheduled condition of the first pod that has one; empty if no pod has one.

        Only pods whose names begin with ``prefix`` count.
        """
        for pod in self.pods(prefix):
            for condition in pod["status"].get("conditions") or []:
                is_refused = condition.get("reason") in ("Unschedulable", "Reserved")
                if condition["type"] == "PodScheduled" and condition["status"] == "False" and is_refused:
                    return str(condition["message"])
        return ""

    def group(self, name: str) -> dict[str, Any]:
        """Return the status of the PodGroup; empty if it doesn't exist."""
        found = self.cluster.get("podgroups", name)
        return dict((found or {}).get("status") or {})

    def events(self, reason: str) -> list[str]:
        """Return the messages of all events with this reason."""
        return [event.get("message") or event.get("note") or "" for event in self.cluster.list("events") if event.get("reason") == reason]

    def describe(self) -> str:
        """Return the phase and node of all pods in one line, for error messages."""
        states = (f"{pod['metadata']['name']}={pod['status'].get('phase')}@{pod['spec'].get('nodeName') or '-'}" for pod in self.pods())
        return " ".join(states) or "no pods"

    async def clear(self) -> None:
        """Delete all objects of a story before the next one."""
        for kind in _WORKLOADS:
            for obj in self.cluster.list(kind):
                try:
                    self.cluster.delete(kind, obj["metadata"]["name"], obj["metadata"].get("namespace", "default"), grace=0)
                except ApiError as error:
                    # The garbage collector has already deleted it.
                    if error.status != 404:
                        raise
        await self.expect("the stage to be empty", lambda: not self.pods())


@dataclass(frozen=True, slots=True)
class Story:
    """A story of the demo: ``play`` applies manifests to a cluster with ``nodes``, and checks the result."""

    name: str
    summary: str
    """One line for users: the manifests, and the expected result."""
    nodes: tuple[NodeShape, ...]
    play: Callable[[Stage], Awaitable[None]] = field(repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Options that the operator needs for the story, by name."""

    async def run(self, stage: Stage) -> None:
        """Add the nodes, and play the story. Raises ``StoryError``."""
        for number, shape in enumerate(self.nodes, start=1):
            stage.cluster.add_node(
                f"node-{number}", cpu=shape.cpu, memory=shape.memory, pods=shape.pods, gpus=shape.gpus, extra=shape.extra
            )
        await self.play(stage)


def manifest(name: str, *substitutions: tuple[str, str]) -> Objects:
    """Return the objects of an example, with texts replaced. Raises ``StoryError`` if the example doesn't contain such a text."""
    text = bundled.example(name).read_text(encoding="utf-8")
    for old, new in substitutions:
        if old not in text:
            raise StoryError(f"examples/{name} does not contain {old!r}")
        text = text.replace(old, new)
    return [document for document in yaml.safe_load_all(text) if document]


def spread(objects: Objects) -> Objects:
    """Return the TFJobs with the objective ``spread`` in the annotations of their pod templates."""
    for job in objects:
        for replica in job["spec"]["tfReplicaSpecs"].values():
            replica["template"]["metadata"].setdefault("annotations", {})["allaboard.dev/objective"] = "spread"
    return objects


async def _pack(stage: Stage) -> None:
    await stage.apply(manifest("tfjob-smoke-gpu.yaml"))
    await stage.expect("all five pods of tf-smoke-gpu run", lambda: len(stage.running("tf-smoke-gpu")) == 5)
    await stage.expect("they share one node", lambda: len(stage.nodes_of("tf-smoke-gpu")) == 1)


async def _spread(stage: Stage) -> None:
    await stage.apply(spread(manifest("tfjob-smoke-gpu.yaml")))
    await stage.expect("all five pods of tf-smoke-gpu run", lambda: len(stage.running("tf-smoke-gpu")) == 5)
    await stage.expect("they use both nodes", lambda: len(stage.nodes_of("tf-smoke-gpu")) == 2)


async def _two_jobs(stage: Stage) -> None:
    await stage.apply(manifest("two-jobs.yaml", ('duration: "20s"', 'duration: "2s"')))
    await stage.expect(
        "all pods of one job run, no pod of the other job is bound, and its pods name the missing GPUs",
        lambda: (
            sorted(len(stage.running(job)) for job in ("tf-first", "tf-second")) == [0, 5]
            and any("nvidia.com/gpu" in stage.refusal_of(job) for job in ("tf-first", "tf-second"))
        ),
    )
    second = "tf-second" if stage.running("tf-first") else "tf-first"
    if stage.bound(second):
        raise StoryError(f"pods of {second} are bound while it waits: {stage.describe()}")
    await stage.expect(f"all pods of {second} run after the first job has finished", lambda: len(stage.running(second)) == 5)


async def _nginx_three(stage: Stage) -> None:
    await stage.apply(manifest("nginx-min-3.yaml"))
    await stage.expect(
        "three replicas run, and the conditions of the others name the missing resource",
        lambda: len(stage.running("nginx")) == 3 and _count_refused(stage) == 3,
    )


async def _nginx_four(stage: Stage) -> None:
    await stage.apply(manifest("nginx-min-4.yaml"))
    await stage.expect("the conditions of all six replicas name the missing resource", lambda: _count_refused(stage) == 6)
    if stage.bound("nginx"):
        raise StoryError(f"a gang of four was started in part: {stage.describe()}")


def _count_refused(stage: Stage) -> int:
    """Return how many pods have a condition with the reason why they can't be scheduled."""
    return sum(1 for pod in stage.pods() if stage.refusal_of(pod["metadata"]["name"]))


async def _capacity_kept(stage: Stage) -> None:
    load, late = _fragmentation("binpack")
    await stage.apply([load])
    await stage.expect("six pods with a GPU each run", lambda: len(stage.running("load")) == 6)
    await stage.apply([late])
    await stage.expect("the pod with two GPUs runs too", lambda: len(stage.running("late")) == 1)


async def _capacity_lost(stage: Stage) -> None:
    load, late = _fragmentation("spread")
    await stage.apply([load])
    await stage.expect("six pods with a GPU each run", lambda: len(stage.running("load")) == 6)
    await stage.apply([late])
    await stage.expect(
        "the condition of the pod with two GPUs says that both nodes lack GPUs",
        lambda: "2 Insufficient nvidia.com/gpu" in stage.refusal_of("late"),
    )


def _fragmentation(objective: str) -> tuple[dict[str, Any], dict[str, Any]]:
    load, late = manifest("fragmentation.yaml", ("allaboard.dev/objective: binpack", f"allaboard.dev/objective: {objective}"))
    return load, late


async def _one_by_one(stage: Stage) -> None:
    group, *pods = manifest("podgroup.yaml")

    def counts(members: int) -> bool:
        return f"{members} of 3" in stage.group("trio").get("message", "")

    await stage.apply([group])
    for members, pod in enumerate(pods[:2], start=1):
        await stage.apply([pod])
        await stage.expect(f"the PodGroup's message counts {members} of 3 members", partial(counts, members))
        if stage.bound():
            raise StoryError(f"a member was bound before the third one existed: {stage.describe()}")
    await stage.apply([pods[2]])
    await stage.expect("all three run", lambda: len(stage.running("trio")) == 3 and stage.group("trio").get("phase") == "Running")


async def _impossible(stage: Stage) -> None:
    await stage.apply(manifest("impossible-gang.yaml"))
    words = re.compile(r"0/\d+ nodes are available: .*2 Insufficient nvidia\.com/gpu")

    def is_reported() -> bool:
        group = stage.group("tf-impossible")
        conditions = {condition["type"]: condition for condition in group.get("conditions") or []}
        initially = conditions.get("PodGroupInitiallyScheduled", {})
        return (
            any(words.search(note) for note in stage.events("FailedScheduling"))
            and bool(words.search(stage.refusal_of("tf-impossible-worker")))
            and initially.get("status") == "False"
            and initially.get("reason") == group.get("reason") == "NeverFits"
            and bool(words.search(group.get("message", "")))
        )

    await stage.expect("events, conditions and the PodGroup name the missing resource and the number of nodes", is_reported)
    if stage.bound():
        raise StoryError(f"a gang that can't fit was started in part: {stage.describe()}")


async def _order_trap(stage: Stage) -> None:
    for order in (1, -1):
        await stage.apply(manifest("order-trap.yaml")[::order])
        await stage.expect("both pods run, in either order of creation", lambda: len(stage.running()) == 2)
        for pod in stage.pods():
            stage.cluster.delete("pods", pod["metadata"]["name"], grace=0)
        await stage.expect("both pods are deleted", lambda: not stage.pods())


async def _twenty(stage: Stage) -> None:
    await stage.apply(manifest("demo-twenty-pods.yaml"))
    await stage.expect("sixteen of twenty pods run, which are all that fit", lambda: len(stage.running("pod")) == 16)
    await stage.expect(
        "the condition of the pod with nine cpu names the missing cpu", lambda: "3 Insufficient cpu" in stage.refusal_of("pod1")
    )


async def _tight(stage: Stage) -> None:
    await stage.apply(manifest("tight-gang.yaml"))
    await stage.expect("all 48 members run: the search found a placement", lambda: len(stage.running()) == 48)


_GPU_NODES = (("node-t4", "Tesla-T4", 15360), ("node-a100", "NVIDIA-A100-SXM4-40GB", 40960), ("node-h100", "NVIDIA-H100-80GB-HBM3", 81559))


async def _gpu_model(stage: Stage) -> None:
    for name, product, memory in _GPU_NODES:
        labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": str(memory), "nvidia.com/gpu.count": "2"}
        stage.cluster.add_node(name, gpus=2, labels=labels)
    await stage.apply(manifest("gpu-model.yaml"))
    await stage.expect("four workers run", lambda: len(stage.running("gpu-model")) == 4)
    await stage.expect("all of them on an A100 or an H100", lambda: stage.nodes_of("gpu-model") == {"node-a100", "node-h100"})
    await stage.apply(manifest("gpu-model.yaml", ("name: gpu-model", "name: too-many")))
    await stage.expect(
        "the conditions of four more workers name the node without such a model",
        lambda: "1 node(s) didn't match gpu-model" in stage.refusal_of("too-many"),
    )


async def _pipeline(stage: Stage) -> None:
    await stage.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("ml-faas", "openfaas-fn")])
    await stage.apply(manifest("lstm-pipeline.yaml"))
    for number, steps in enumerate((2, 5, 6), start=1):
        await stage.expect(f"all pods of stage {number} run", partial(_runs, stage, steps))

    def is_ready() -> bool:
        status = (stage.cluster.get("mlflows", "lstm-pipeline", "ml-faas") or {}).get("status") or {}
        return [each["phase"] for each in status.get("stages") or []] == ["Ready"] * 3

    await stage.expect("the pipeline's status says that all its stages are ready", is_ready)


def _runs(stage: Stage, steps: int) -> bool:
    return len(stage.running("lstm-pipeline")) == steps


def _named(objects: Objects, *names: str) -> Objects:
    """Return the objects with these names."""
    return [obj for obj in objects if obj["metadata"]["name"] in names]


async def _priority(stage: Stage) -> None:
    objects = manifest("priority.yaml")
    busy = ("first", "second", "rest")
    await stage.apply(_named(objects, "high-without-eviction", *busy))
    await stage.expect("a pod with five GPUs runs on each node", lambda: sum(len(stage.running(name)) for name in busy) == 4)
    await stage.apply(_named(objects, "high", "low"))
    await stage.expect("both gangs wait", lambda: bool(stage.refusal_of("high") and stage.refusal_of("low")))
    await stage.expect("one pod has ended", lambda: not stage.running("first"))
    await stage.expect("the gang of high priority runs", lambda: len(stage.running("high")) == 2)
    if stage.bound("low"):
        raise StoryError(f"the gang of low priority was started first: {stage.describe()}")


async def _backfill(stage: Stage) -> None:
    objects = manifest("backfill.yaml")
    await stage.apply(_named(objects, "busy"))
    await stage.expect("a pod with five GPUs runs on each node", lambda: len(stage.running("busy")) == 2)
    await stage.apply(_named(objects, "big"))
    await stage.expect("the big gang waits, with an expected start", lambda: bool(stage.group("big").get("expectedStart")))
    await stage.apply(_named(objects, "long"))
    await stage.expect("the long job waits for reserved GPUs", lambda: "reserved" in stage.refusal_of("long"))
    await stage.apply(_named(objects, "short"))
    await stage.expect("the short job runs on the same GPUs", lambda: len(stage.running("short")) == 1)
    if stage.bound("long") or stage.bound("big"):
        raise StoryError(f"a job that was to wait was started: {stage.describe()}")


async def _preemption(stage: Stage) -> None:
    objects = manifest("preemption.yaml")
    await stage.apply(_named(objects, "research"))
    await stage.expect("both pods of research run", lambda: len(stage.running("research")) == 2)
    await stage.apply([obj for obj in objects if obj["metadata"]["name"] == "production"])
    await stage.expect("production runs, and no pod of research does", lambda: _is_preempted(stage))
    await stage.expect("events say that pods were evicted", lambda: bool(stage.events("Preempted")))
    await stage.expect("both pods of research run again when production has ended", lambda: len(stage.running("research")) == 2)


def _is_preempted(stage: Stage) -> bool:
    return len(stage.running("production")) == 1 and not stage.bound("research")


async def _fair(stage: Stage) -> None:
    objects = manifest("fair.yaml")
    await stage.apply(_named(objects, "team-a", "team-b", "first"))
    await stage.expect("the first job of team-a runs", lambda: len(stage.running("first")) == 1)
    for name in ("second", "other"):
        await stage.apply(_named(objects, name))
        await stage.expect(f"the job {name} waits", partial(_waits, stage, name))
    await stage.expect("the job of team-b runs next, although it is younger", lambda: len(stage.running("other")) == 1)
    if stage.bound("second"):
        raise StoryError(f"the second job of team-a was started first: {stage.describe()}")
    await stage.expect("the second job of team-a runs last", lambda: len(stage.running("second")) == 1)


def _waits(stage: Stage, name: str) -> bool:
    return bool(stage.refusal_of(name))


async def _one_per_host(stage: Stage) -> None:
    await stage.apply(manifest("one-per-host.yaml"))
    await stage.expect("all three wait, since there are two nodes", lambda: "anti-affinity" in stage.refusal_of("one-per-host"))
    if stage.bound():
        raise StoryError(f"a part of the gang was started: {stage.describe()}")
    stage.cluster.add_node("node-3", cpu="4")
    await stage.expect("three run, each on a node of its own", lambda: len(stage.running()) == 3 == len(stage.nodes_of()))


_ZONES = (("node-1", "4", "zone-a"), ("node-2", "2", "zone-b"), ("node-3", "1", "zone-c"), ("node-4", "1", "zone-c"))


async def _spread_zones(stage: Stage) -> None:
    for name, cpu, zone in _ZONES:
        stage.cluster.add_node(name, cpu=cpu, labels={"topology.kubernetes.io/zone": zone})
    await stage.apply(manifest("spread-zones.yaml"))
    await stage.expect("all six run", lambda: len(stage.running()) == 6)
    found = Counter(zone for name, _, zone in _ZONES for pod in stage.bound() if pod["spec"]["nodeName"] == name)
    if set(found.values()) != {2}:
        raise StoryError(f"two pods were to run in each zone: {stage.describe()}")


def _disk_of(node: str) -> dict[str, Any]:
    return local_volume(f"disk-of-{node}", "standard", node)


async def _volumes(stage: Stage) -> None:
    await stage.apply([waiting_class("standard"), *(_disk_of(node) for node in ("node-1", "node-2"))])
    await stage.apply(manifest("statefulset-volumes.yaml"))
    refusal = "find available persistent volumes to bind"
    await stage.expect("all three wait, since two nodes have a free volume", lambda: refusal in stage.refusal_of("trainer"))
    if stage.bound():
        raise StoryError(f"a part of the gang was started: {stage.describe()}")
    await stage.apply([_disk_of("node-3")])
    await stage.expect("three run, each where its volume is", lambda: len(stage.running()) == 3 == len(stage.nodes_of()))


_FAIR = {"fair_share__enabled": "true"}
_PIPELINES = {"pipelines": "true", "pipeline_namespaces": "openfaas-fn"}
_TIGHT_NODES = (NodeShape("16", "96Gi"),) * 3 + (NodeShape("32", "64Gi"),) * 3 + (NodeShape("24", "64Gi"),) * 3

STORIES: tuple[Story, ...] = (
    Story("pack", "Five pods start whole, on one node", (NodeShape("8", gpus=4),) * 2, _pack),
    Story("spread", "The same job with objective spread uses both nodes", (NodeShape("8", gpus=4),) * 2, _spread),
    Story("two-jobs", "Two jobs, GPUs for one: they run one after the other", (NodeShape("8", gpus=4),), _two_jobs),
    Story("nginx-3", "Six pods, three fit, minimum three: three run", (NodeShape("4"),) * 3, _nginx_three),
    Story("nginx-4", "Six pods, three fit, minimum four: none runs", (NodeShape("4"),) * 3, _nginx_four),
    Story("room-kept", "Packed pods leave two GPUs of one node free", (NodeShape(gpus=4),) * 2, _capacity_kept),
    Story("room-lost", "Spread pods don't, and a pod with two GPUs waits", (NodeShape(gpus=4),) * 2, _capacity_lost),
    Story("one-by-one", "No member is bound until all three exist", (NodeShape("4"),), _one_by_one),
    Story("impossible", "A gang that can never fit, and its messages", (NodeShape("8", gpus=4),) * 2, _impossible),
    Story(
        "order-trap",
        "Two pods fit in one order only; both orders work",
        (NodeShape("53", "476G"), NodeShape("31", "96G")),
        _order_trap,
    ),
    Story("tight", "Greedy rules fail; the search places the gang", _TIGHT_NODES, _tight),
    Story("priority", "Capacity is kept for the gang of high priority", (NodeShape("64", gpus=8),) * 4, _priority),
    Story("backfill", "A short job runs before the time that a gang waits for", (NodeShape("64", gpus=8),) * 2, _backfill),
    Story("preemption", "A whole gang is evicted for a job of high priority", (NodeShape("64", gpus=8),) * 2, _preemption),
    Story("fair", "The team that has used less runs next", (NodeShape("64", gpus=8),), _fair, _FAIR),
    Story("one-per-host", "No two workers share a node; with two nodes none runs", (NodeShape("4"),) * 2, _one_per_host),
    Story("spread-zones", "Six pods, two in each zone, whatever the zones' sizes", (), _spread_zones),
    Story("volumes", "Three pods start where each gets a volume of its own", (NodeShape("4"),) * 4, _volumes),
    Story("gpu-model", "Workers that need certain GPU models get only those", (), _gpu_model),
    Story("lstm-pipeline", "A pipeline: its stages start one by one, each whole", (NodeShape("4"),) * 2, _pipeline, _PIPELINES),
    Story("twenty", "Twenty pods, sixteen fit, minimum 16: sixteen run", (NodeShape("8", "16Gi"),) * 3, _twenty),
)
