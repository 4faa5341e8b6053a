"""Everything that may happen to a cluster and its scheduler: what a schedule of faults is made of.

Every method that changes something is one thing that happens; time passes in ``advance`` only. What the scheduler writes is judged at
once by the ``Judge``; what it leaves behind is looked at when things have settled.
"""

import asyncio
from contextlib import suppress

from allaboard.sandbox import ApiError, Fault
from allaboard.sandbox import binding as sandbox_binding
from allaboard.sandbox.api import WriteOptions

from .gangs import Body, GangSpec, manifests, pod_of
from .simulation import NODE_CPU, NODES, Simulation, happens

SETTLING_SECONDS = 150
"""Two time-outs of a gang and the longest pauses."""


class World(Simulation):
    """A simulation with everything that can happen to it, and what is to be seen of it afterwards."""

    # What happens.

    @happens
    def add(self, spec: GangSpec) -> None:
        """A gang arrives."""
        self.gangs.append(spec)
        for manifest in manifests(spec):
            self.sandbox.create(manifest)

    @happens
    def fault(self, fault: Fault) -> None:
        self.sandbox.faults.add(fault)

    @happens
    def drop_watches(self, resource: str | None = None) -> None:
        self.sandbox.drop_watches(resource)

    @happens
    def compact(self) -> None:
        """The history is forgotten: watches that break now are answered 410."""
        self.sandbox.compact()
        self.sandbox.drop_watches()

    @happens
    def delete_member(self, spec: GangSpec, number: int, *, grace: int | None = None) -> None:
        """Somebody deletes a member."""
        if members := self.judge.members(spec):
            name = members[number % len(members)]["metadata"]["name"]
            if self.leader is None:
                self.judge.note_unseen_loss(spec)
            with suppress(ApiError):
                self.sandbox.delete("pods", name, spec.namespace, grace=grace)

    @happens
    def replace_member(self, spec: GangSpec, number: int) -> None:
        """Somebody deletes a bare member at once and makes another of its name."""
        members = self.judge.members(spec)
        if members and spec.is_bare:
            name = members[number % len(members)]["metadata"]["name"]
            if self.leader is None:
                self.judge.note_unseen_loss(spec)
            self.sandbox.delete("pods", name, spec.namespace, grace=0)
            with suppress(ApiError):
                self.sandbox.create(pod_of(spec, name))

    @happens
    def reject(self, spec: GangSpec, number: int) -> None:
        """A kubelet refuses a bound member that has not started."""
        waiting = [pod for pod in self.judge.bound(spec) if pod["status"].get("phase") == "Pending"]
        if waiting:
            metadata = waiting[number % len(waiting)]["metadata"]
            key, kubelet = (metadata["namespace"], metadata["name"]), self.sandbox._kubelet
            kubelet._cancel(key)
            kubelet._reject(key, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")

    @happens
    def bind_foreign(self, node: int, cpu: int) -> None:
        """Another scheduler fills a node."""
        self._foreign += 1
        name = f"foreign-{self._foreign}"
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": str(cpu)}}}
        spec = {"schedulerName": "default-scheduler", "containers": [container]}
        self.sandbox.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "elsewhere"}, "spec": spec})
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": f"node-{node % NODES}"}}
        sandbox_binding.bind(self.sandbox.api, "elsewhere", name, target, WriteOptions())

    @happens
    def fill(self) -> None:
        """Another scheduler fills all nodes."""
        used = self.judge.usage()
        for number in range(NODES):
            if free := NODE_CPU - used.get((f"node-{number}", "cpu"), 0) // 1000:
                self.bind_foreign(number, free)

    @happens
    def remove_foreign(self) -> None:
        """What the other scheduler has bound ends."""
        for pod in self.sandbox.list("pods", "elsewhere"):
            if pod["metadata"]["name"].startswith("foreign-"):
                self.sandbox.delete("pods", pod["metadata"]["name"], "elsewhere", grace=0)

    @happens
    def set_minimum(self, spec: GangSpec, minimum: int) -> None:
        """Somebody edits the minMember of a gang that has a PodGroup of its own."""
        if spec.has_group and self.sandbox.get("podgroups", spec.name, spec.namespace):
            self.judge.note_edit(spec)
            self.sandbox.patch("podgroups", spec.name, {"spec": {"minMember": minimum}}, spec.namespace)

    @happens
    def delete_group(self, spec: GangSpec) -> None:
        """Somebody deletes a gang's PodGroup."""
        if self.sandbox.get("podgroups", spec.name, spec.namespace):
            self.judge.note_edit(spec)
            self.sandbox.delete("podgroups", spec.name, spec.namespace)

    @happens
    def cordon(self, node: int, *, is_cordoned: bool) -> None:
        self.sandbox.patch("nodes", f"node-{node % NODES}", {"spec": {"unschedulable": is_cordoned}})

    @happens
    def annotate(self, spec: GangSpec, annotations: dict[str, str]) -> None:
        """A tenant writes annotations on all pods of its gang."""
        for pod in self.judge.members(spec):
            self.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"annotations": annotations}}, spec.namespace)

    @happens
    def bind_by_hand(self, pod: Body, node_name: str, annotations: dict[str, str]) -> None:
        """Somebody binds a pod and writes annotations with it, as the scheduler does."""
        metadata = pod["metadata"]
        target = {"metadata": {"name": metadata["name"], "annotations": annotations}, "target": {"kind": "Node", "name": node_name}}
        sandbox_binding.bind(self.sandbox.api, metadata["namespace"], metadata["name"], target, WriteOptions())

    @happens
    def place(self, pod: Body, node_name: str) -> None:
        """Somebody creates a pod that has a node from the start."""
        self.sandbox.create({**pod, "spec": {**pod["spec"], "nodeName": node_name}})

    def fell(self) -> None:
        """The scheduler is killed, and for now not started again."""

        async def die() -> None:
            for replica in self.replicas:
                victim, replica.app = replica.app, None
                replica.server.sever()
                if victim is not None:
                    self._keep(asyncio.ensure_future(victim.stop()))

        self.run(die())

    def rise(self) -> None:
        """It is started again."""

        async def start() -> None:
            for replica in self.replicas:
                await self._start(replica)

        self.run(start())

    def restart(self, down_seconds: float = 0.0) -> None:
        """The scheduler is stopped as Kubernetes does it, and started anew."""

        async def again() -> None:
            replica = self.leader
            if replica is None or replica.app is None:
                return  # it is down, and about to be started
            victim, replica.app = replica.app, None
            await victim.stop()
            await asyncio.sleep(down_seconds)
            await self._start(replica)

        self.run(again())

    def stall(self, seconds: float) -> None:
        """The leader is stopped where it stands, and goes on later."""

        async def begin() -> None:
            self._keep(asyncio.ensure_future(self._stall(seconds)))

        self.run(begin())

    def stall_at(self, verb: str, resource: str, nth: int, *, after: bool, seconds: float) -> None:
        """The leader is stopped at the ``nth`` request of a kind from now, and goes on later: that request arrives then, too."""
        hold = self.sandbox.faults.pause(verb, resource, nth=nth, after=after)

        async def wait() -> None:
            await hold.arrived()
            await self._stall(seconds)
            hold.release()

        async def begin() -> None:
            self._keep(asyncio.ensure_future(wait()))

        self.run(begin())

    def crash(self, down_seconds: float = 0.0) -> None:
        """The scheduler is killed, and started anew."""
        self.run(self._crash(down_seconds))

    def crash_at(self, verb: str, resource: str, nth: int, *, after: bool, down_seconds: float = 0.0) -> None:
        """The scheduler is killed at the ``nth`` request of a kind from now, before it is carried out or ``after``."""
        hold = self.sandbox.faults.pause(verb, resource, nth=nth, after=after)

        async def wait() -> None:
            await hold.arrived()
            await self._crash(down_seconds)

        async def begin() -> None:
            self._keep(asyncio.ensure_future(wait()))

        self.run(begin())

    # What is left behind.

    def settle(self) -> None:
        """Let faults cease, and give the scheduler the time its own time-outs take."""
        self.sandbox.faults.clear()
        for number in range(len([node for node in self.sandbox.list("nodes") if node["metadata"]["name"].startswith("node-")])):
            self.cordon(number, is_cordoned=False)
        for _ in range(SETTLING_SECONDS // 10):
            self.advance(10)

    def make_room(self) -> None:
        """Give everybody what they wait for: seats, lost members, and PodGroups."""
        self._repair()
        self.advance(1)
        self._complete()

    @happens
    def _repair(self) -> None:
        self.sandbox.add_node("annex", cpu="512")
        for spec in self.gangs:
            if spec.has_group and not self.sandbox.get("podgroups", spec.name, spec.namespace):
                self.sandbox.create(next(each for each in manifests(spec) if each["kind"] == "PodGroup"))
            if spec.is_bare:
                for pod in self.judge.ended(spec):
                    self.sandbox.delete("pods", pod["metadata"]["name"], spec.namespace, grace=0)

    @happens
    def _complete(self) -> None:
        for spec in self.gangs:
            if spec.is_bare:
                here = {pod["metadata"]["name"] for pod in self.judge.members(spec)}
                wanted = max(self.judge.minimum(spec) or 0, spec.size)
                for name in (f"{spec.name}-{number}" for number in range(wanted)):
                    if name not in here:
                        self._remake(spec, name)
            elif (minimum := self.judge.minimum(spec) or 0) > spec.size and spec.kind == "job":
                self.set_minimum(spec, spec.size)  # the completions of a Job can't be raised
            elif minimum > spec.size:
                self.sandbox.patch("replicasets", spec.name, {"spec": {"replicas": minimum}}, spec.namespace)

    async def _stall(self, seconds: float) -> None:
        if (leader := self.leader) is not None:
            server = leader.server
            server.stall()
            await asyncio.sleep(seconds)
            server.go_on()

    def leaked(self) -> list[str]:
        """Seats that the scheduler counts as taken and that nobody sits on, or the other way round."""
        assert self.app is not None
        found = [f"{count} seats are promised still"] if (count := self.app.view.counts["assumed_pods"]) else []
        snapshot = self.app.view.snapshot()
        real = self.judge.usage()
        for node, row in zip(snapshot.nodes, snapshot.used.tolist(), strict=True):
            for resource, used in zip(snapshot.resources, row, strict=True):
                if resource in ("cpu", "pods") and used != real.get((node.name, resource), 0):
                    found.append(f"{used} {resource} are counted on node {node.name}, {real.get((node.name, resource), 0)} are used")
        return found
