"""Acts on the cluster around gangs: pods of other schedulers come and go, and nodes come, change and go."""

from collections.abc import Sequence
from contextlib import suppress

from allaboard_sandbox import ApiError
from allaboard_sandbox import binding as sandbox_binding
from allaboard_sandbox.api import WriteOptions

from .. import hostile
from ..gangs import Body, GangSpec
from ..simulation import NODES, Simulation, happens


class Environment(Simulation):
    """A simulation with acts on nodes and on pods of other schedulers."""

    @happens
    def bind_by_hand(self, pod: Body, node_name: str, annotations: dict[str, str]) -> None:
        """Bind a pod with annotations, as the scheduler does."""
        metadata = pod["metadata"]
        self.judge.note("a pod is bound by hand")
        target = {"metadata": {"name": metadata["name"], "annotations": annotations}, "target": {"kind": "Node", "name": node_name}}
        sandbox_binding.bind(self.sandbox.api, metadata["namespace"], metadata["name"], target, WriteOptions())

    @happens
    def place(self, pod: Body, node_name: str) -> None:
        """Create a pod that has a node from the start."""
        self.judge.note("a pod is placed by hand")
        self.sandbox.create({**pod, "spec": {**pod["spec"], "nodeName": node_name}})

    @happens
    def bind_foreign(self, node: int, cpu: int) -> None:
        """Let another scheduler bind a pod of ``cpu`` to a node."""
        if self.sandbox.get("nodes", f"node-{node % NODES}") is None:
            return
        self.judge.note("another scheduler binds a pod")
        name = self._create_foreign(cpu)
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": f"node-{node % NODES}"}}
        sandbox_binding.bind(self.sandbox.api, "elsewhere", name, target, WriteOptions())

    def _create_foreign(self, cpu: int) -> str:
        self._foreign += 1
        name = f"foreign-{self._foreign}"
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": str(cpu)}}}
        spec = {"schedulerName": "default-scheduler", "containers": [container]}
        self.sandbox.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "elsewhere"}, "spec": spec})
        return name

    @happens
    def preempt(self, spec: GangSpec, number: int) -> None:
        """Let kube-scheduler preempt a member: nominate a pod of its own, and bind it when the victim is gone."""
        if bound := self.judge.bound(spec):
            victim = bound[number % len(bound)]
            node = victim["spec"]["nodeName"]
            self.judge.note_loss("a member is preempted", spec)
            name = self._create_foreign(1)
            self.sandbox.patch("pods", name, {"status": {"nominatedNodeName": node}}, "elsewhere", "status")
            with suppress(ApiError):
                self.sandbox.delete("pods", victim["metadata"]["name"], spec.namespace)
            self.loop.call_later(0.2, self._bind_nominated, name, node)

    @happens
    def _bind_nominated(self, name: str, node: str) -> None:
        self.judge.note("another scheduler binds a pod")
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        with suppress(ApiError):
            sandbox_binding.bind(self.sandbox.api, "elsewhere", name, target, WriteOptions())

    @happens
    def fill(self) -> None:
        """Let another scheduler fill all nodes."""
        for number in range(NODES):
            if (free := self._free_cpu(number)) > 0:
                self.bind_foreign(number, free)

    def _free_cpu(self, number: int) -> int:
        node = self.sandbox.get("nodes", f"node-{number}")
        if node is None:
            return 0
        return (1000 * int(node["status"]["allocatable"]["cpu"]) - self.judge.usage().get((f"node-{number}", "cpu"), 0)) // 1000

    @happens
    def remove_foreign(self) -> None:
        """End all pods of the other scheduler."""
        self.judge.note("pods of another scheduler end")
        for pod in self.sandbox.list("pods", "elsewhere"):
            if pod["metadata"]["name"].startswith("foreign-"):
                self.sandbox.delete("pods", pod["metadata"]["name"], "elsewhere", grace=0)

    @happens
    def empty(self, node: int) -> None:
        """End all pods of the other scheduler on one node."""
        self.judge.note("pods of another scheduler end")
        for pod in self.sandbox.list("pods", "elsewhere"):
            if pod["metadata"]["name"].startswith("foreign-") and pod["spec"].get("nodeName") == f"node-{node % NODES}":
                self.sandbox.delete("pods", pod["metadata"]["name"], "elsewhere", grace=0)

    @happens
    def leave_capacity(self, count: int = 1) -> Sequence[int]:
        """Fill all nodes but the ``count`` nodes with the most capacity for gangs. Returns the numbers of the nodes that aren't filled."""
        self.remove_foreign()
        for number in range(NODES):
            self._repair_node(number)
        roomy = sorted(range(NODES), key=self._free_cpu, reverse=True)[:count]
        for number in set(range(NODES)) - set(roomy):
            if (free := self._free_cpu(number)) > 0:
                self.bind_foreign(number, free)
        return roomy

    def _repair_node(self, number: int) -> None:
        """Make an existing node ready, without taints, and schedulable."""
        node = self.sandbox.get("nodes", f"node-{number}") or {"spec": {}, "status": {"conditions": []}}
        if node["spec"].get("unschedulable"):
            self.cordon(number, is_cordoned=False)
        if node["spec"].get("taints"):
            self.taint(number, is_tainted=False)
        if any(each["type"] == "Ready" and each["status"] != "True" for each in node["status"]["conditions"]):
            self.unready(number, is_ready=True)

    @happens
    def make_hostile(self, number: int) -> None:
        """Create objects that a hostile tenant may write: one of the kinds of ``hostile.objects``, by ``number``."""
        self._hostile += 1
        for body in hostile.objects(number, f"hostile-{self._hostile}"):
            with suppress(ApiError):
                self.sandbox.create(body)

    @happens
    def cordon(self, node: int, *, is_cordoned: bool) -> None:
        name = f"node-{node % NODES}"
        if self.sandbox.get("nodes", name):
            self.judge.note(f"a node is {'cordoned' if is_cordoned else 'uncordoned'}: {name}")
            self.sandbox.patch("nodes", name, {"spec": {"unschedulable": is_cordoned}})

    @happens
    def taint(self, node: int, *, is_tainted: bool) -> None:
        """Taint a node, or remove the taint."""
        name = f"node-{node % NODES}"
        if self.sandbox.get("nodes", name):
            self.judge.note(f"a node is {'tainted' if is_tainted else 'no longer tainted'}: {name}")
            taints = [{"key": "example.com/reserved", "effect": "NoSchedule"}] if is_tainted else None
            self.sandbox.patch("nodes", name, {"spec": {"taints": taints}})

    @happens
    def unready(self, node: int, *, is_ready: bool) -> None:
        """Let a node's kubelet stop reporting, or report again."""
        name = f"node-{node % NODES}"
        found = self.sandbox.get("nodes", name)
        if found:
            self.judge.note(f"a node turns {'ready' if is_ready else 'not ready'}: {name}")
            conditions = [{**each, "status": str(is_ready)} if each["type"] == "Ready" else each for each in found["status"]["conditions"]]
            self.sandbox.patch("nodes", name, {"status": {"conditions": conditions}}, "", "status")

    @happens
    def shrink(self, node: int, cpu: int) -> None:
        """Let a node offer less cpu than before; its pods stay."""
        name = f"node-{node % NODES}"
        if self.sandbox.get("nodes", name):
            self.judge.note(f"a node is shrunk: {name}")
            self.sandbox.patch("nodes", name, {"status": {"allocatable": {"cpu": str(cpu)}}}, "", "status")

    @happens
    def delete_node(self, node: int) -> None:
        """Delete a node and its pods."""
        name = f"node-{node % NODES}"
        if self.sandbox.get("nodes", name):
            self.judge.note(f"a node is deleted: {name}")
            self._note_members_on(name)
            self.sandbox.delete("nodes", name, "")

    def _note_members_on(self, name: str) -> None:
        """Note that gangs lose their members on a node."""
        for pod in self.sandbox.list("pods"):
            spec = self.judge.books.gang_of(pod) if pod["spec"].get("nodeName") == name else None
            if spec is not None:
                self.judge.note_loss("a member is lost with its node", spec)

    @happens
    def recreate_node(self, node: int, cpu: int) -> None:
        """Replace a node by another of its name, or create it if it is gone."""
        number = node % NODES
        if self.sandbox.get("nodes", f"node-{number}"):
            self.judge.note(f"a node is re-created: node-{number}")
            self._note_members_on(f"node-{number}")
            self.sandbox.delete("nodes", f"node-{number}", "")
        else:
            self.judge.note(f"a node is back: node-{number}")
        self.add_node(number, cpu)
