"""What must never be, and what must be so at the end, told from the cluster's own objects: the scheduler isn't asked.

Two kinds of rule. While a schedule runs, each write of the scheduler is looked at in the moment it is carried out: no bind may
over-commit a node with our own pods, no deletion may hit whom docs/reliability.md protects. At the end, every gang is whole or absent,
or kept open by a rule that is named.
"""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from allaboard.sandbox import Sandbox
from allaboard.sandbox.kubelet import amounts, requests_of
from allaboard.sandbox.store import DELETED, Change

from .gangs import POD_GROUP_LABEL, STAMP, Body, GangSpec

OPERATOR = "operator"
SOMEBODY = "somebody"
actor: ContextVar[str] = ContextVar("actor", default=SOMEBODY)
"""Who is writing: tasks and timers that the scheduler starts inherit it."""

NAME = "pod-group.scheduling.sigs.k8s.io/name"
EDIT_SECONDS = 40.0
"""How long after somebody's edit the scheduler may still act on what was so before: a time-out of a request and its retries."""
TIMEOUT_SECONDS = 30.0
_ENDED = ("Succeeded", "Failed")


class ViolationError(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class _Life:
    """What a gang has been through."""

    open_since: float | None = None
    edited: float = -1e9
    was_whole: bool = False
    is_untold: bool = False
    """A member went while it was half bound and nobody scheduled: whoever comes then can't tell whether it was whole."""
    seated: dict[str, set[str]] = field(default_factory=dict)
    """Whom each transaction has bound: members that a kubelet rejects at once were bound all the same."""


@dataclass(slots=True)
class Judge:
    """Watches one cluster. ``violations`` are raised by ``check``, outside the event loop's callbacks."""

    sandbox: Sandbox
    gangs: Sequence[GangSpec]
    clock: Callable[[], float]
    violations: list[str] = field(default_factory=list)
    released: int = 0
    _lives: dict[GangSpec, _Life] = field(default_factory=dict)

    def check(self) -> None:
        """Raise what was found."""
        if self.violations:
            raise ViolationError("; ".join(self.violations))

    def gang_of(self, pod: Body) -> GangSpec | None:
        """The gang that a pod names."""
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        name = labels.get(POD_GROUP_LABEL) or labels.get(NAME)
        return next((spec for spec in self.gangs if (spec.namespace, spec.name) == (metadata.get("namespace"), name)), None)

    def members(self, spec: GangSpec) -> list[Body]:
        """The pods of a gang that are here to stay."""
        return [pod for pod in self._pods(spec) if _lives(pod)]

    def bound(self, spec: GangSpec) -> list[Body]:
        """Those of them that have a node."""
        return [pod for pod in self.members(spec) if pod["spec"].get("nodeName")]

    def ended(self, spec: GangSpec) -> list[Body]:
        """The pods of a gang that have failed or succeeded."""
        return [pod for pod in self._pods(spec) if pod["status"].get("phase") in _ENDED]

    def minimum(self, spec: GangSpec) -> int | None:
        """How many members must start together, now; None when nobody says so any more."""
        if not spec.has_group:
            return spec.minimum
        group = self.sandbox.get("podgroups", spec.name, spec.namespace)
        return int(group["spec"]["minMember"]) if group else None

    def owed(self, spec: GangSpec, also: Sequence[Body] = ()) -> int:
        """Members missing of what the stamps of the bound ones promise, or of the present minimum if that is less.

        ``also`` are pods that were bound a moment ago.
        """
        bound = [*self.bound(spec), *also]
        promised = max((_promise(pod) for pod in bound), default=0)
        minimum = self.minimum(spec)
        return max(0, (promised if minimum is None else min(promised, minimum)) - self._succeeded(spec) - len(bound))

    def missing(self, spec: GangSpec) -> int:
        """Members missing of the present minimum."""
        return max(0, (self.minimum(spec) or 0) - self._succeeded(spec) - len(self.bound(spec)))

    def note_edit(self, spec: GangSpec) -> None:
        """Somebody has changed what the gang asks for: requests that are under way may rest on what was so before."""
        self._life(spec).edited = self.clock()

    def note_unseen_loss(self, spec: GangSpec) -> None:
        """A member has gone while no scheduler was there to see it."""
        self._life(spec).is_untold |= bool(self.bound(spec))

    def on_change(self, change: Change) -> None:
        """Look at one write. ``change`` is already done."""
        if change.table != "pods":
            return
        pod, before = change.record.body, change.previous.body if change.previous else None
        spec = self.gang_of(pod)
        if actor.get() == OPERATOR:
            if before is not None and pod["spec"].get("nodeName") and not before["spec"].get("nodeName"):
                self._on_bind(spec, pod)
            is_deleted = change.type == DELETED or "deletionTimestamp" in pod["metadata"]
            if before is not None and is_deleted and "deletionTimestamp" not in before["metadata"]:
                self._on_release(spec, before)
            if spec is None and pod["metadata"]["namespace"] in ("team", "elsewhere"):
                self._accuse(f"pod {pod['metadata']['name']} of another namespace was written")
        if spec is not None:
            self._follow(spec)

    def _follow(self, spec: GangSpec) -> None:
        life, bound = self._life(spec), self.bound(spec)
        for pod in bound:
            life.seated.setdefault(_stamp(pod), set()).add(pod["metadata"]["uid"])
        kept = any(len(life.seated[_stamp(pod)]) >= _promise(pod) > 0 for pod in bound)
        if bound and (kept or (not self.owed(spec) and not self.missing(spec))):
            life.was_whole = True
        if not self.owed(spec):
            life.open_since = None
        elif life.open_since is None:
            life.open_since = self.clock()

    def _on_bind(self, spec: GangSpec | None, pod: Body) -> None:
        node_name, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
        if spec is None:
            self._accuse(f"pod {name} was bound, which is nobody's of ours")
            return
        node = self.sandbox.get("nodes", node_name)
        if node is None:
            self._accuse(f"pod {name} was bound to node {node_name}, which doesn't exist")
            return
        # What others have bound may not have been heard of yet; of our own pods there is no excuse.
        ours = (each for each in self.sandbox.list("pods") if each["spec"].get("schedulerName") == "allaboard")
        for resource, capacity, used in _usage(node, ours):
            if used > capacity:
                self._accuse(f"node {node_name} was over-committed by pod {name}: {used} of {capacity} {resource}")

    def _on_release(self, spec: GangSpec | None, pod: Body) -> None:
        self.released += 1
        name = pod["metadata"]["name"]
        if spec is None:
            self._accuse(f"pod {name} was deleted, which is nobody's of ours")
            return
        if not spec.is_releasable:
            self._accuse(f"pod {name} of a {spec.kind} gang was deleted")
        life = self._life(spec)
        if self.clock() - life.edited < EDIT_SECONDS:
            return
        # The deletion is done: a moment ago the pod was one of the bound.
        if not pod["spec"].get("nodeName") or not self.owed(spec, [pod]):
            self._accuse(f"pod {name} was deleted, and nothing was missing of {spec.name}")
        if pod["status"].get("phase") == "Running":
            is_old = life.open_since is not None and self.clock() - life.open_since >= TIMEOUT_SECONDS - 1
            if life.was_whole or not is_old:
                self._accuse(f"pod {name} was deleted while it ran, of a gang that {'was whole' if life.was_whole else 'is young'}")

    def unseated(self) -> list[str]:
        """Gangs that are half bound although no rule allows it; and those whose being open isn't shown."""
        found = []
        for spec in self.gangs:
            bound, missing = self.bound(spec), self.missing(spec)
            if not bound or not missing:
                continue
            if not self.excuse(spec):
                phases = sorted(pod["status"].get("phase", "") for pod in bound)
                found.append(f"{spec.kind} gang {spec.name} is left with {len(bound)} of {len(bound) + missing} ({phases})")
            elif not self._shows_open(spec):
                found.append(f"{spec.kind} gang {spec.name} is kept open and doesn't say so")
        return found

    def kept_open(self) -> list[GangSpec]:
        """Gangs that are half bound by a rule."""
        return [spec for spec in self.gangs if self.bound(spec) and self.missing(spec) and self.excuse(spec)]

    def excuse(self, spec: GangSpec) -> str:
        """The rule of docs/reliability.md that keeps a half bound gang open; empty without one."""
        bound = self.bound(spec)
        if not self.owed(spec):
            return "the minimum was raised, or nothing was promised"
        if not spec.is_releasable:
            return "its members can't be made anew"
        if any(pod["status"].get("phase") == "Running" for pod in bound):
            return "members run"
        if self._life(spec).was_whole:
            return "it was whole"
        return "it can't be told whether it was whole" if self._life(spec).is_untold else ""

    def incomplete(self) -> list[str]:
        """Gangs that are not whole."""
        return [f"{spec.kind} gang {spec.name} lacks {missing}" for spec in self.gangs if (missing := self.missing(spec))]

    def over_committed(self) -> list[str]:
        """Nodes that have promised more than they have, to anybody."""
        found, pods = [], self.sandbox.list("pods")
        for node in self.sandbox.list("nodes"):
            for resource, capacity, used in _usage(node, pods):
                if used > capacity:
                    found.append(f"node {node['metadata']['name']} has promised {used} of {capacity} {resource}")
        return found

    def usage(self) -> dict[tuple[str, str], int]:
        """What is used of each node's resources, by all pods."""
        pods = self.sandbox.list("pods")
        nodes = self.sandbox.list("nodes")
        return {(node["metadata"]["name"], resource): used for node in nodes for resource, _, used in _usage(node, pods)}

    def _pods(self, spec: GangSpec) -> list[Body]:
        key = POD_GROUP_LABEL if spec.has_group else NAME
        return [pod for pod in self.sandbox.list("pods", spec.namespace) if (pod["metadata"].get("labels") or {}).get(key) == spec.name]

    def _succeeded(self, spec: GangSpec) -> int:
        return sum(1 for pod in self._pods(spec) if pod["status"].get("phase") == "Succeeded") if self.members(spec) else 0

    def _shows_open(self, spec: GangSpec) -> bool:
        group = self.sandbox.get("podgroups", spec.name, spec.namespace)
        if group is None:
            return spec.has_group  # deleted by somebody: there is nowhere to say it
        conditions = (group.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "PartiallyBound" and each["status"] == "True" for each in conditions)

    def _life(self, spec: GangSpec) -> _Life:
        return self._lives.setdefault(spec, _Life())

    def _accuse(self, text: str) -> None:
        self.violations.append(f"at {self.clock():.3f} s: {text}")


def _lives(pod: Body) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in _ENDED


def _stamp(pod: Body) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(STAMP, ""))


def _promise(pod: Body) -> int:
    number = _stamp(pod).rpartition("/")[2]
    return int(number) if number.isdigit() and len(number) < 10 else 0


def _usage(node: Body, pods: Iterable[Body]) -> list[tuple[str, int, int]]:
    """What a node has of each resource, and what ``pods`` use of it."""
    name = node["metadata"]["name"]
    here = [pod for pod in pods if pod["spec"].get("nodeName") == name and pod["status"].get("phase") not in _ENDED]
    used: dict[str, int] = {"pods": len(here)}
    for pod in here:
        for resource, amount in requests_of(pod).items():
            used[resource] = used.get(resource, 0) + amount
    capacity = amounts(node["status"]["allocatable"])
    return [(resource, capacity.get(resource, 0), amount) for resource, amount in used.items()]
