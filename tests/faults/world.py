"""Everything that may happen to a cluster and its scheduler: what a schedule of faults is made of.

Every method that changes something is one thing that happens; time passes in ``advance`` only. What the scheduler writes is judged at
once by the ``Judge``; what it leaves behind is looked at when things have settled.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from allaboard_sandbox import ApiError, Fault
from allaboard_sandbox import binding as sandbox_binding
from allaboard_sandbox.api import WriteOptions
from allaboard_sandbox.faults import FOR_EVER

from . import hostile
from .gangs import SUSPENDED, Body, GangSpec, manifests, pod_of, workload_name
from .judge import ViolationError
from .judge.facts import demand_of
from .simulation import NODES, POOLS, Simulation, happens

SETTLING_SECONDS = 150
"""Two time-outs of a gang and the longest pauses."""
_ON_ITS_WAY_SECONDS = 0.5
_LANDING_SECONDS = 5
SILENCE_SECONDS = 100.0
"""How long a dead connection may go unnoticed, at the longest."""


class World(Simulation):
    """A simulation with everything that can happen to it, and what is to be seen of it afterwards."""

    # What happens to gangs.

    @happens
    def add(self, spec: GangSpec) -> None:
        """A gang arrives."""
        self.gangs.append(spec)
        for manifest in manifests(spec):
            with suppress(ApiError):  # a PodGroup where nobody serves any
                self.sandbox.create(manifest)

    @happens
    def end_gangs(self) -> None:
        """Whoever has made gangs deletes them, but for the first, at whatever point they are; and what was broken is mended."""
        self.sandbox.faults.clear()
        self.lasting.clear()
        self._clear_up()
        for spec in self.gangs[1:]:
            if spec not in self.ended:
                self.ended.add(spec)
                self.judge.note_loss("a gang is deleted", spec)
                self._delete(spec)

    def _delete(self, spec: GangSpec) -> None:
        """The controllers first, so that they make nobody anew."""
        workloads = [(plural, workload_name(spec, role)) for plural in ("replicasets", "jobs") for role in spec.roles]
        pods = [("pods", pod["metadata"]["name"]) for pod in self.judge.books.members(spec)]
        groups = [("podgroups", spec.name)] if self.serves_groups else []
        for plural, name in (*workloads, *pods, *groups):
            with suppress(ApiError):  # not every gang has each of them
                self.sandbox.delete(plural, name, spec.namespace, grace=0)
        self.let_go(f"{spec.name}-")

    @happens
    def delete_member(self, spec: GangSpec, number: int, *, grace: int | None = None) -> None:
        """Somebody deletes a member."""
        if members := self.judge.members(spec):
            name = members[number % len(members)]["metadata"]["name"]
            self.judge.note_loss("a member is deleted", spec)
            with suppress(ApiError):
                self.sandbox.delete("pods", name, spec.namespace, grace=grace)

    @happens
    def replace_member(self, spec: GangSpec, number: int) -> None:
        """Somebody deletes a bare member at once and makes another of its name."""
        members = self.judge.members(spec)
        if members and spec.is_bare:
            name = members[number % len(members)]["metadata"]["name"]
            self.judge.note_loss("a member is replaced", spec)
            self.sandbox.delete("pods", name, spec.namespace, grace=0)
            with suppress(ApiError):
                self.sandbox.create(pod_of(spec, name))

    @happens
    def lose_all_bound(self, spec: GangSpec) -> None:
        """A whole gang is evicted by somebody."""
        for pod in self.judge.bound(spec):
            self.judge.note_loss("a member is evicted", spec)
            with suppress(ApiError):
                self.sandbox.delete("pods", pod["metadata"]["name"], spec.namespace)

    @happens
    def hold(self, spec: GangSpec) -> None:
        """Finalizers keep the members that are there now, when they are deleted."""
        for pod in self.judge.members(spec):
            self.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": ["example.com/held"]}}, spec.namespace)

    @happens
    def let_go(self, prefix: str) -> None:
        """They let them go."""
        for pod in self.sandbox.list("pods", "default"):
            if pod["metadata"]["name"].startswith(prefix) and pod["metadata"].get("finalizers"):
                self.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": None}})

    @happens
    def finish(self, spec: GangSpec, number: int | None = None, phase: str = "Succeeded") -> None:
        """Running members end: one, or all."""
        running = [pod for pod in self.judge.bound(spec) if pod["status"].get("phase") == "Running"]
        for pod in running if number is None else running[number % len(running) :][:1] if running else ():
            if phase == "Failed":
                self.judge.note_loss("a member fails", spec)
            else:
                self.judge.note("a member ends", gang=spec)
            self.sandbox.finish_pod(pod["metadata"]["name"], spec.namespace, phase=phase)

    @happens
    def scale(self, spec: GangSpec, replicas: int) -> None:
        """Somebody has the controller of a gang keep fewer members, or more."""
        if spec.kind == "controlled" and self.sandbox.get("replicasets", spec.name, spec.namespace):
            self.judge.note_loss("a workload is scaled", spec)
            self.sandbox.patch("replicasets", spec.name, {"spec": {"replicas": replicas}}, spec.namespace)

    @happens
    def run_again(self, spec: GangSpec) -> None:
        """The next run of a bare gang, whose earlier pods have ended and are still listed."""
        if not spec.is_bare or self.judge.members(spec):
            return
        self._runs += 1
        for name, role in spec.bare_names.items():
            pod = pod_of(spec, name)
            pod["metadata"]["name"] = f"{name}-run{self._runs}"
            del role
            with suppress(ApiError):
                self.sandbox.create(pod)

    @happens
    def reject(self, spec: GangSpec, number: int) -> None:
        """A kubelet refuses a bound member that has not started."""
        waiting = [pod for pod in self.judge.bound(spec) if pod["status"].get("phase") == "Pending"]
        if waiting:
            self._reject(spec, waiting[number % len(waiting)])

    @happens
    def sour(self, node: int) -> None:
        """A kubelet rejects whoever comes from now on, until things settle."""
        self._sour.add(f"node-{node % NODES}")

    @happens
    def set_minimum(self, spec: GangSpec, minimum: int) -> None:
        """Somebody edits the minMember of a gang that has a PodGroup of its own."""
        if spec.has_group and self.sandbox.get("podgroups", spec.name, spec.namespace):
            self.judge.note("the minimum is edited", gang=spec)
            self.sandbox.patch("podgroups", spec.name, {"spec": {"minMember": minimum}}, spec.namespace)

    @happens
    def delete_group(self, spec: GangSpec) -> None:
        """Somebody deletes a gang's PodGroup."""
        if self.serves_groups and self.sandbox.get("podgroups", spec.name, spec.namespace):
            self.judge.note("the PodGroup is deleted", gang=spec)
            self.sandbox.delete("podgroups", spec.name, spec.namespace)

    @happens
    def suspend(self, spec: GangSpec, *, is_suspended: bool) -> None:
        """Somebody suspends the Job of a gang, or lets it go on."""
        for job in self.sandbox.list("jobs", spec.namespace):
            if spec.kind == "job" and self.judge.books.gang_of_job(job) is spec:
                self.judge.note_loss("a Job is suspended" if is_suspended else "a Job goes on", spec)
                change = {"metadata": {"labels": {SUSPENDED: None}}, "spec": {"suspend": is_suspended}}
                self.sandbox.patch("jobs", job["metadata"]["name"], change, spec.namespace)

    @happens
    def guard(self, spec: GangSpec) -> None:
        """A disruption budget forbids that any of a gang is disturbed, until things settle."""
        self._late.append(self.judge.note("a budget is made", gang=spec, seconds=FOR_EVER))
        for role in spec.roles:
            metadata = {"name": workload_name(spec, role), "namespace": spec.namespace}
            budget = {"minAvailable": "100%", "selector": {"matchLabels": {"app": metadata["name"]}}}
            body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": budget}
            with suppress(ApiError):  # it is there
                self.sandbox.create(body)

    @happens
    def annotate(self, spec: GangSpec, annotations: dict[str, str]) -> None:
        """A tenant writes annotations on all pods of its gang."""
        self.judge.note("pods are annotated", gang=spec)
        for pod in self.judge.members(spec):
            self.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"annotations": annotations}}, spec.namespace)

    @happens
    def open_gates(self, spec: GangSpec) -> None:
        """Whoever had gated pods of a gang lets them go."""
        self.judge.note("gates are opened", gang=spec)
        for pod in self.judge.members(spec):
            if pod["spec"].get("schedulingGates"):
                self.sandbox.patch("pods", pod["metadata"]["name"], {"spec": {"schedulingGates": None}}, spec.namespace)

    @happens
    def bind_by_hand(self, pod: Body, node_name: str, annotations: dict[str, str]) -> None:
        """Somebody binds a pod and writes annotations with it, as the scheduler does."""
        metadata = pod["metadata"]
        self.judge.note("a pod is bound by hand")
        target = {"metadata": {"name": metadata["name"], "annotations": annotations}, "target": {"kind": "Node", "name": node_name}}
        sandbox_binding.bind(self.sandbox.api, metadata["namespace"], metadata["name"], target, WriteOptions())

    @happens
    def place(self, pod: Body, node_name: str) -> None:
        """Somebody creates a pod that has a node from the start."""
        self.judge.note("a pod is placed by hand")
        self.sandbox.create({**pod, "spec": {**pod["spec"], "nodeName": node_name}})

    # What others do.

    @happens
    def bind_foreign(self, node: int, cpu: int) -> None:
        """Another scheduler fills a node."""
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
        """kube-scheduler takes the seat of a member for a pod of its own: nominated first, and bound when the victim has gone."""
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
        """Another scheduler fills all nodes."""
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
        """What the other scheduler has bound ends."""
        self.judge.note("what another scheduler bound ends")
        for pod in self.sandbox.list("pods", "elsewhere"):
            if pod["metadata"]["name"].startswith("foreign-"):
                self.sandbox.delete("pods", pod["metadata"]["name"], "elsewhere", grace=0)

    @happens
    def empty(self, node: int) -> None:
        """What the other scheduler has bound to one node ends."""
        self.judge.note("what another scheduler bound ends")
        for pod in self.sandbox.list("pods", "elsewhere"):
            if pod["metadata"]["name"].startswith("foreign-") and pod["spec"].get("nodeName") == f"node-{node % NODES}":
                self.sandbox.delete("pods", pod["metadata"]["name"], "elsewhere", grace=0)

    @happens
    def leave_room(self, count: int = 1) -> Sequence[int]:
        """Only so many nodes have room for pods: those that have the most without what the other scheduler has bound. Returns which."""
        self.remove_foreign()
        for number in range(NODES):
            self._mend(number)
        roomy = sorted(range(NODES), key=self._free_cpu, reverse=True)[:count]
        for number in set(range(NODES)) - set(roomy):
            if (free := self._free_cpu(number)) > 0:
                self.bind_foreign(number, free)
        return roomy

    def _mend(self, number: int) -> None:
        """A node that is there takes pods again."""
        node = self.sandbox.get("nodes", f"node-{number}") or {"spec": {}, "status": {"conditions": []}}
        if node["spec"].get("unschedulable"):
            self.cordon(number, is_cordoned=False)
        if node["spec"].get("taints"):
            self.taint(number, is_tainted=False)
        if any(each["type"] == "Ready" and each["status"] != "True" for each in node["status"]["conditions"]):
            self.unready(number, is_ready=True)

    @happens
    def make_hostile(self, number: int) -> None:
        """A tenant writes what it likes."""
        self._hostile += 1
        for body in hostile.objects(number, f"hostile-{self._hostile}"):
            with suppress(ApiError):
                self.sandbox.create(body)

    # What happens to nodes.

    @happens
    def cordon(self, node: int, *, is_cordoned: bool) -> None:
        name = f"node-{node % NODES}"
        if self.sandbox.get("nodes", name):
            self.judge.note(f"a node is {'cordoned' if is_cordoned else 'uncordoned'}: {name}")
            self.sandbox.patch("nodes", name, {"spec": {"unschedulable": is_cordoned}})

    @happens
    def taint(self, node: int, *, is_tainted: bool) -> None:
        """Somebody keeps pods away from a node, or doesn't any more."""
        name = f"node-{node % NODES}"
        if self.sandbox.get("nodes", name):
            self.judge.note(f"a node is {'tainted' if is_tainted else 'not tainted any more'}: {name}")
            taints = [{"key": "example.com/reserved", "effect": "NoSchedule"}] if is_tainted else None
            self.sandbox.patch("nodes", name, {"spec": {"taints": taints}})

    @happens
    def unready(self, node: int, *, is_ready: bool) -> None:
        """A node's kubelet stops reporting, or is back."""
        name = f"node-{node % NODES}"
        found = self.sandbox.get("nodes", name)
        if found:
            self.judge.note(f"a node turns {'ready' if is_ready else 'not ready'}: {name}")
            conditions = [{**each, "status": str(is_ready)} if each["type"] == "Ready" else each for each in found["status"]["conditions"]]
            self.sandbox.patch("nodes", name, {"status": {"conditions": conditions}}, "", "status")

    @happens
    def shrink(self, node: int, cpu: int) -> None:
        """A node offers less than before; who is there stays."""
        name = f"node-{node % NODES}"
        if self.sandbox.get("nodes", name):
            self.judge.note(f"a node is shrunk: {name}")
            self.sandbox.patch("nodes", name, {"status": {"allocatable": {"cpu": str(cpu)}}}, "", "status")

    @happens
    def delete_node(self, node: int) -> None:
        """A node is gone, and its pods with it."""
        name = f"node-{node % NODES}"
        if self.sandbox.get("nodes", name):
            self.judge.note(f"a node is deleted: {name}")
            self._note_guests(name)
            self.sandbox.delete("nodes", name, "")

    def _note_guests(self, name: str) -> None:
        """Gangs lose the members that are on a node."""
        for pod in self.sandbox.list("pods"):
            spec = self.judge.books.gang_of(pod) if pod["spec"].get("nodeName") == name else None
            if spec is not None:
                self.judge.note_loss("a node takes a member along", spec)

    @happens
    def recreate_node(self, node: int, cpu: int) -> None:
        """A node is gone, and another of its name is there."""
        number = node % NODES
        if self.sandbox.get("nodes", f"node-{number}"):
            self.judge.note(f"a node is re-created: node-{number}")
            self._note_guests(f"node-{number}")
            self.sandbox.delete("nodes", f"node-{number}", "")
        else:
            self.judge.note(f"a node is back: node-{number}")
        self.add_node(number, cpu)

    # What happens to requests and watches.

    @happens
    def fault(self, fault: Fault) -> None:
        self.sandbox.faults.add(fault)

    @happens
    def hold_binds(self, name: str, nth: int) -> None:
        """The ``nth`` bind of pods of that name, and the next, are on their way until whoever has sent them is no more."""
        self.sandbox.faults.pause("bind", "pods", name=name, nth=nth, times=2, dry_run=False)

    @happens
    def sicken(self, spec: GangSpec, verb: str, status: int, retry_after: int | None) -> None:
        """A webhook or a quota refuses one thing of one gang for good."""
        self.lasting.append(Fault(verb, "pods", f"{spec.name}-*", times=FOR_EVER, status=status, retry_after=retry_after, dry_run=None))
        self.sandbox.faults.add(self.lasting[-1])

    @happens
    def slow_down(self, seconds: float) -> None:
        """Searches take so much longer."""
        for replica in self.replicas:
            if replica.searcher is not None:
                replica.searcher.slowness = seconds

    @happens
    def drop_watches(self, resource: str | None = None) -> None:
        self.judge.note("watches break")
        self.sandbox.drop_watches(resource)

    @happens
    def compact(self) -> None:
        """The history is forgotten: watches that break now are answered 410."""
        self.judge.note("the history is forgotten")
        self.sandbox.compact()
        self.sandbox.drop_watches()

    @happens
    def expire_pages(self) -> None:
        """The next list that comes in pages expires in the middle of it."""
        self.judge.note("a list expires")
        self.sandbox.faults.add(Fault("list", "pods", nth=2, status=410, message="The provided continue parameter is too old"))
        self.sandbox.compact()
        self.sandbox.drop_watches("pods")

    @happens
    def silence(self, plural: str) -> None:
        """The connections of the open watches of a kind are dead, and nobody says so."""
        self.judge.note(f"watches of {plural} are silent", seconds=SILENCE_SECONDS)
        for replica in self.replicas:
            replica.server.silence(plural)

    @happens
    def lag(self, plural: str, seconds: float) -> None:
        """Watches of a kind come late, until the weather clears."""
        self._late.append(self.judge.note(f"watches of {plural} come late", seconds=FOR_EVER))
        self.weather.lags[plural] = seconds

    def fell(self) -> None:
        """The scheduler is killed, and for now not started again."""

        async def die() -> None:
            for replica in self.replicas:
                self._note_end("the scheduler is killed", replica)
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
            self._note_end("the scheduler is stopped", replica, down_seconds)
            began = self.loop.time()
            await victim.stop()
            self.judge.stopped(replica.server.who, began)
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

    def act_at(self, verb: str, nth: int, act: Callable[[], None], *, after: bool, is_dry_run: bool | None) -> None:
        """Something happens while the ``nth`` request of a kind from now is on its way; then that goes on."""
        hold = self.sandbox.faults.pause(verb, "*", nth=nth, after=after, dry_run=is_dry_run)

        async def wait() -> None:
            await hold.arrived()
            act()
            await asyncio.sleep(_ON_ITS_WAY_SECONDS)
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
        """Let faults cease but those that last, and give the scheduler the time its own time-outs take."""
        self.sandbox.faults.clear()
        self._clear_up()
        for fault in self.lasting:
            self.sandbox.faults.add(fault)
        for number in range(NODES):
            self._mend(number)
        for _ in range(SETTLING_SECONDS // 10):
            self.advance(10)

    @happens
    def _clear_up(self) -> None:
        """Watches tell of everything at once again."""
        for plural in self.weather.lags:
            self.judge.note(f"watches of {plural} come late", seconds=self.weather.lags[plural])
        for budget in self.sandbox.list("poddisruptionbudgets"):
            self.sandbox.delete("poddisruptionbudgets", budget["metadata"]["name"], budget["metadata"]["namespace"])
        for deed in self._late:
            deed.until = self.loop.time()
        self.weather.lags.clear()
        self._late.clear()
        self._sour.clear()

    def make_room(self) -> None:
        """Give everybody what they wait for: seats, lost members, and PodGroups, from servers that are well."""
        self.lasting.clear()
        self.sandbox.faults.clear()
        self._repair()
        self.advance(1)
        self._complete()

    @happens
    def _repair(self) -> None:
        self.judge.note("there is room for everybody")
        for pool in POOLS:
            self.sandbox.add_node(f"annex-{pool}", cpu="512", gpus=64, labels={"pool": pool})
        for spec in self.present:
            self.suspend(spec, is_suspended=False)
            if spec.has_group and self.serves_groups and not self.sandbox.get("podgroups", spec.name, spec.namespace):
                self.sandbox.create(next(each for each in manifests(spec) if each["kind"] == "PodGroup"))
            if spec.is_bare:
                for pod in self.judge.ended(spec):
                    self.sandbox.delete("pods", pod["metadata"]["name"], spec.namespace, grace=0)

    @happens
    def _complete(self) -> None:
        for spec in self.present:
            here = self.judge.members(spec)
            minimum = self.judge.minimum(spec) or 0
            if spec.is_bare:
                wanted = max(minimum, spec.whole_size)
                names = {pod["metadata"]["name"] for pod in here}
                for name in (f"{spec.name}-{number}" for number in range(wanted)):
                    if name not in names and len(here) < wanted:
                        self._remake(spec, name)
            elif minimum > spec.whole_size and spec.kind == "job":
                self.set_minimum(spec, spec.whole_size)  # the completions of a Job can't be raised
            elif spec.kind != "job":
                self.scale(spec, spec.size + max(0, minimum - spec.whole_size))

    @property
    def present(self) -> list[GangSpec]:
        """The gangs that nobody has deleted."""
        return [spec for spec in self.gangs if spec not in self.ended]

    @property
    def serves_groups(self) -> bool:
        """Whether there are PodGroups."""
        return self.crd != "none"

    async def _stall(self, seconds: float) -> None:
        if (leader := self.leader) is not None:
            server = leader.server
            self.judge.note("the leader stands still", who=server.who, seconds=seconds)
            server.stall()
            await asyncio.sleep(seconds)
            server.go_on()

    def leaked(self) -> list[str]:
        """Seats that the scheduler counts as taken and that nobody sits on, or the other way round."""
        assert self.app is not None
        for _ in range(_LANDING_SECONDS):
            if not self.app.view.counts["assumed_pods"]:
                break
            self.advance(1)  # somebody is being bound just now, or it is being found out
        doubtful = list(self.judge.books.in_doubt())
        found = []
        if (count := self.app.view.counts["assumed_pods"]) > len(doubtful):
            found.append(f"[leaked] {count} seats are promised still, and {len(doubtful)} pods may be bound yet")
        snapshot = self.app.view.snapshot()
        real, most = self.judge.usage(), self.judge.usage()
        for pod, request in doubtful:
            for resource, amount in demand_of(pod).items():
                most[request.target, resource] = most.get((request.target, resource), 0) + amount
        for node, row in zip(snapshot.nodes, snapshot.used.tolist(), strict=True):
            for resource, used in zip(snapshot.resources, row, strict=True):
                key = (node.name, resource)
                if resource in ("cpu", "pods") and not real.get(key, 0) <= used <= most.get(key, 0):
                    found.append(f"[leaked] {used} {resource} are counted on node {node.name}, {real.get(key, 0)} are used")
        return found


def demand(*problems: Sequence[str]) -> None:
    """Raise what was found. Raises ``ViolationError``."""
    found = [text for each in problems for text in each]
    if found:
        raise ViolationError("; ".join(found))
