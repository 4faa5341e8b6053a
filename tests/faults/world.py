"""Defines the world of a schedule: a simulation with all acts.

Each method that changes something is one act; time passes only in ``advance``. The ``Judge`` checks the scheduler's writes at once, and the
state that they leave when things have settled.
"""

import itertools
from collections.abc import Sequence

from .acts.processes import Processes
from .acts.surroundings import Environment
from .acts.wire import Wire
from .acts.workloads import Workloads
from .gangs import RACK, manifests
from .judge import ViolationError
from .judge.facts import demand_of
from .simulation import NODES, POOLS, RACKS, happens

SETTLING_SECONDS = 150
"""Seconds in which the world settles: enough for two time-outs of a gang and the longest pauses."""
_LANDING_SECONDS = 5


class World(Workloads, Environment, Wire, Processes):
    """A simulation with all acts, and checks of what the scheduler left."""

    @happens
    def end_gangs(self) -> None:
        """Delete all gangs but the first, in whatever state they are, and repair everything."""
        self.sandbox.faults.clear()
        self.lasting.clear()
        self._clear_up()
        for spec in self.gangs[1:]:
            if spec not in self.ended:
                self.end_gang(spec)

    def settle(self) -> None:
        """Clear faults that don't last, and give the scheduler time for its own time-outs."""
        self.sandbox.faults.clear()
        self._clear_up()
        for fault in self.lasting:
            self.sandbox.faults.add(fault)
        for number in range(NODES):
            self._repair_node(number)
        for _ in range(SETTLING_SECONDS // 10):
            self.advance(10)

    @happens
    def _clear_up(self) -> None:
        """Let watches be on time again, and remove budgets and rejecting kubelets."""
        for plural in self.network.lags:
            self.judge.note(f"watches of {plural} come late", seconds=self.network.lags[plural])
        for budget in self.sandbox.list("poddisruptionbudgets"):
            self.sandbox.delete("poddisruptionbudgets", budget["metadata"]["name"], budget["metadata"]["namespace"])
        self.slow_down(0)
        for deed in self._late:
            deed.until = self.loop.time()
        self.network.lags.clear()
        self._late.clear()
        self._rejecting_nodes.clear()

    def add_capacity(self) -> None:
        """Give all gangs what they wait for: capacity, lost members and PodGroups, without faults."""
        self.lasting.clear()
        self.sandbox.faults.clear()
        self._repair()
        self.advance(1)
        self._complete()

    @happens
    def _repair(self) -> None:
        self.judge.note("capacity for all gangs is added")
        for pool, rack in itertools.product(POOLS, RACKS):
            self.join(f"annex-{pool}-{rack}", 512, 64, {"pool": pool, RACK: rack})
        for spec in [spec for spec in self.present if spec not in self.superseded]:
            self.suspend(spec, is_suspended=False)
            if spec.has_group and self.serves_groups and not self.sandbox.get("podgroups", spec.name, spec.namespace):
                self.sandbox.create(next(each for each in manifests(spec) if each["kind"] == "PodGroup"))
            if spec.is_named:
                for pod in self.judge.ended(spec):
                    self.sandbox.delete("pods", pod["metadata"]["name"], spec.namespace, grace=0)

    @happens
    def _complete(self) -> None:
        for spec in [spec for spec in self.present if spec not in self.superseded]:
            here = self.judge.members(spec)
            minimum = self.judge.minimum(spec) or 0
            if spec.is_named:
                wanted = max(minimum, spec.whole_size)
                names = {pod["metadata"]["name"] for pod in here}
                for name in (f"{spec.base}-{number}" for number in range(wanted)):
                    if name not in names and len(here) < wanted:
                        self._recreate(spec, name)
            elif minimum > spec.whole_size and spec.kind == "job":
                self.set_minimum(spec, spec.whole_size)  # the completions of a Job can't be raised
            elif spec.kind != "job":
                self.scale(spec, spec.size + max(0, minimum - spec.whole_size))

    def leaked(self) -> list[str]:
        """Return a text for each amount that the scheduler counts as used on a node and that no pod uses, or the other way round."""
        assert self.app is not None
        for _ in range(_LANDING_SECONDS):
            if not self.app.view.counts["assumed_pods"]:
                break
            self.advance(1)  # a pod is being bound, or the result of a bind is being read
        doubtful = list(self.judge.books.in_doubt())
        found = []
        if (count := self.app.view.counts["assumed_pods"]) > len(doubtful):
            found.append(f"[leaked] capacity is assumed for {count} pods, and only {len(doubtful)} may still be bound")
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
    """Raise ``ViolationError`` with all ``problems``, if there are any."""
    found = [text for each in problems for text in each]
    if found:
        raise ViolationError("; ".join(found))
