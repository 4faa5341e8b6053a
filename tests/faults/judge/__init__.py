"""Judges a scheduler by what it does to a cluster, from records of its own.

``books`` holds the records: objects, requests, faults. ``news`` holds what each scheduler has received, ``excuses`` what may excuse a
scheduler. The other modules hold the rules.

A *run* is one submission (a ``GangSpec``), or one wave of a Job. The judge knows the pods of a run by their creator, not by their labels:
several runs may use one gang's name. A Job's run needs no more pods than the Job will still make.

Each accusation begins with the name of its rule:

- ``quorum``: a commit sends binds for the whole quorum; members of the run that are already bound count.
- ``node``: the node of a bind admits the pod and has capacity for it, as far as the scheduler knew.
- ``over-commit``: our own pods on a node request no more than the node offers.
- ``device``: a bind names the GPUs that the pod gets, and no GPU is shared beyond what it holds.
- ``topology``: members that must share a rack are sent to one rack.
- ``candidate``: no bind names a pod that is gated, terminating, ended or gone, as far as the scheduler knew.
- ``dry run``: binds that can't be undone are dry-run first.
- ``double``: a pod isn't sent to another node while an earlier bind of it may still be carried out.
- ``precondition``: at each try a bind or release names UID and resourceVersion, and a change of a Job the resourceVersion.
- ``journal``: every bind carries the stamp, with the minimum that the gang stated; a suspended Job carries its label.
- ``priority``: no gang takes capacity for which a gang of a higher priority waits, and in which that gang fits.
- ``reserved``: no gang takes capacity that a gang of a higher priority will need once running pods have ended.
- ``expected``: an expected start doesn't become later because of gangs that rank behind.
- ``preemption``: pods are evicted for a gang of a higher priority only if it starts in their place, and no more pods than it needs.
- ``widened``: no further pods are evicted for a gang while pods that were evicted for it are still there.
- ``storm``: a gang isn't bound, or attempted in vain, again and again without pauses.
- ``haste``: no bind is sent again before the time that the answer's Retry-After names.
- ``stale``: no pod is bound or released on old state, and a dead watch is replaced.
- ``kept pod``: bare pods, and pods of Jobs that would count the deletion as a failure, are never deleted.
- ``release``: no gang that is or was whole loses a member, and no running member is released before the time-out.
- ``volume``: each claim of a bound pod has a volume that the pod's node can use.
- ``forward``: no gang is released whose missing members have capacity and time; after that time it doesn't stay partially bound.
- ``leader``: only the leader changes anything, and a Lease that is free is taken soon.
- ``late``: requests of an earlier leader aren't carried out once the next leader has acted.
- ``fence``: a leader writes to each pod that is older than its term before it binds the pod.
- ``open``: a gang is partially bound because of a fault or foreign action that can be cited, or for a moment.
- ``unresolved``: a partially bound gang is finished or released when all is quiet, unless a named rule keeps it.
- ``unreported``: the status of a gang that is kept partially bound says so.
- ``idle``: when all is quiet, a gang that fits is placed, and so is a pod that joins a whole gang.
- ``reason``, ``status``: the messages of waiting pods and the status of PodGroups are true.
- ``stranger``: objects that belong to others aren't touched.
- ``lost``, ``leaked``: no Job stays suspended, and no capacity is counted for pods that are gone.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from allaboard_sandbox.store import DELETED, Change
from tests.faults.gangs import SUSPENDED, GangSpec

from .binds import Binds
from .books import OURS, Books
from .commits import Commits
from .entries import Deed, Request, current
from .facts import ENDED, Body, capacity_of, demand_of, is_leaving, is_managed, name_of, node_of, phase_of, uid_of
from .lives import Lives
from .preempting import Preempting
from .releases import Releases
from .reserving import Reserving
from .standing import Standing
from .terms import Terms

__all__ = ["TIMEOUT_SECONDS", "Deed", "Judge", "Request", "ViolationError", "current"]

TIMEOUT_SECONDS = 30.0
"""``schedule_timeout_seconds`` of the schedulers that are judged."""
CHECK_SECONDS = 1.0
"""Seconds between two checks of all gangs, while requests arrive."""


class ViolationError(AssertionError):
    """Raised when a guarantee was broken; the text lists the accusations."""

    @property
    def rules(self) -> list[str]:
        """The names of the broken rules, in the order of the accusations."""
        return re.findall(r"(?:^|; )(?:at [\d.]+ s: )?\[([^\]]+)\]", str(self))


class Judge:
    """The judge of one cluster. ``check`` raises what was found, so that nothing is raised in the event loop's callbacks."""

    def __init__(
        self, gangs: list[GangSpec], clock: Callable[[], float], *, timeout: float = TIMEOUT_SECONDS, patience: float = 1.0
    ) -> None:
        self.books = Books(gangs, clock)
        self.lives = Lives(self.books, clock)
        self.reserving = Reserving(self.books, self.lives, self.accuse)
        self.preempting = Preempting(self.books, self.lives, self.reserving, self.accuse)
        self.binds = Binds(self.books, self.lives, self.accuse, lambda: bool(self.terms.leader))
        self.commits = Commits(self.books, self.lives, self.accuse, lambda: self.leading, self.reserving, patience)
        self.releases = Releases(self.books, self.lives, self.preempting, self.accuse, timeout)
        self.terms = Terms(self.books, self.accuse)
        self.leading: float | None = None
        """When the present scheduler began to lead; None while no scheduler leads."""
        self.standing = Standing(self.books, self.lives, self.accuse, timeout, lambda: self.leading, self._leading_process, self.reserving)
        self.violations: list[str] = []
        self._accused: set[tuple[str, str]] = set()
        self._checked = 0.0

    def _leading_process(self) -> str:
        """Return the process that leads; without an election, the sender of the latest request."""
        return self.terms.leader or (self.books.requests[-1].process if self.books.requests else "")

    def accuse(self, rule: str, text: str) -> None:
        """Record that a guarantee was broken; the same accusation is recorded once."""
        if (rule, text) not in self._accused:
            self._accused.add((rule, text))
            self.violations.append(f"at {self.books.clock():.3f} s: [{rule}] {text}")

    def check(self) -> None:
        """Check the state of every gang, and raise what was found."""
        self.commits.check_now()
        self.releases.check_now()
        self.reserving.check_now()
        self.preempting.check_now()
        self.standing.check_now()
        self.terms.check_now()
        if self.violations:
            raise ViolationError("; ".join(self.violations))

    # What the judge receives: requests from the wire, and the API's history.

    def arrived(self, request: Request) -> None:
        """Record and check a scheduler's request that has reached the API server."""
        self.books.note_request(request)
        self.commits.check_now()
        self.terms.arrived(request)
        self.releases.arrived(request)
        if request.verb == "bind":
            self.binds.sent(request)
        place = (request.namespace, request.name)
        if request.is_bind and (pod := self.books.get("pods", *place) or self.books.gone.get(place)) is not None:
            self.binds.arrived(request, pod)
            self.commits.arrived(request, pod)
        if self.books.clock() - self._checked >= CHECK_SECONDS:
            self._checked = self.books.clock()
            self.releases.check_now()
            self.reserving.check_now()
            self.preempting.check_now()
            self.standing.check_now()
            self.terms.check_now()

    def answered(self, request: Request) -> None:
        """Record that ``request`` was answered, or its connection closed."""
        request.answered = self.books.clock()
        self.releases.answered(request)
        self.commits.answered(request)

    def on_change(self, change: Change) -> None:
        """Record the write ``change``, which the sandbox has already carried out."""
        plural, request = change.table.partition(".")[0], current.get()
        if request is not None and request.answered is not None:
            request = None  # changes that kubelets and controllers make in response are their own
        before = change.previous.body if change.previous else None
        self.changed(plural, change.type == DELETED, change.record.body, before, request)

    def changed(self, plural: str, is_deleted: bool, body: Body, before: Body | None, request: Request | None) -> None:
        """Record and check a write to an object, by a scheduler's ``request`` or by another client (None)."""
        self.books.change(plural, is_deleted, body, before)
        if plural == "leases":
            self.terms.lease_written(request, body)
        if plural == "podgroups":
            for each in self.books.gangs:
                if (each.namespace, each.name) == (body["metadata"].get("namespace"), body["metadata"]["name"]):
                    self.lives.update(each)
            if request is not None and not is_deleted:
                self.reserving.reported(body)
        if plural == "jobs" and request is not None and before is not None and not is_deleted:
            self.releases.job_written(request, body, before)
        if plural != "pods":
            return
        if request is not None and request.verb == "patch":
            self.standing.check_message(body, before, request)
        self.preempting.noted(body)
        spec = self.books.gang_of(body)
        is_bound_now = bool(node_of(body)) and not is_deleted and (before is None or not node_of(before))
        is_released = before is not None and not is_leaving(before) and (is_deleted or is_leaving(body))
        if request is not None and request.verb == "bind" and is_bound_now:
            request.is_carried_out = True
            self.binds.landed(request, body)
            self.terms.carried_out(request, body)
        if request is not None and is_released and before is not None:
            request.is_carried_out = True
            self.releases.carried_out(request, before)
            self.terms.carried_out(request, before)
        if request is not None and body["spec"].get("schedulerName") != OURS and not _is_report(body, before):
            self.accuse("stranger", f"pod {name_of(body)} belongs to another scheduler and was written")
        if spec is not None:
            decided = self.books.first_sent(request) if request is not None else self.books.clock()
            self.lives.note_change(spec, body, is_bound_now=is_bound_now, decided=decided)

    # What tests ask and note.

    def note(self, what: str, *, gang: GangSpec | None = None, process: str = "", seconds: float = 0.0) -> Deed:
        """Record an action on the cluster or on a scheduler."""
        return self.books.note(what, gang=gang, process=process, seconds=seconds)

    def stopped(self, process: str, began: float) -> None:
        """Check a process that has shut down gracefully; ``began`` is when it was asked to."""
        self.commits.stopped(process, began)
        self.terms.stopped(process)

    def note_loss(self, what: str, spec: GangSpec) -> None:
        """Record that a member of a gang is about to be lost, and the action ``what`` that causes the loss."""
        self.note(what, gang=spec)
        self.lives.lose(spec)

    @property
    def released(self) -> int:
        """The number of pods that schedulers have deleted."""
        return self.releases.released

    def members(self, spec: GangSpec) -> list[Body]:
        """Return the pods of a gang that are neither terminating nor ended."""
        return self.lives.alive(spec)

    def bound(self, spec: GangSpec) -> list[Body]:
        """Return the living pods of a gang that have a node."""
        return self.lives.bound(spec)

    def ended(self, spec: GangSpec) -> list[Body]:
        """Return the pods of a gang that have failed or succeeded."""
        return [pod for pod in self.books.members(spec) if phase_of(pod) in ENDED]

    def minimum(self, spec: GangSpec) -> int | None:
        """Return how many members must start together now; None when no object states a minimum."""
        return self.books.minimum(spec)

    def missing(self, spec: GangSpec) -> int:
        """Return how many members are missing of the present minimum."""
        return self.lives.missing(spec)

    def unexcused(self) -> list[str]:
        """Return a text for each gang that is partially bound, and that no rule allows to be."""
        self.standing.check_now()
        return [
            f"{spec.kind} gang {spec.name} is partially bound with {len(self.bound(spec))}"
            for spec in self.books.gangs
            if self.lives.missing_of_stamped(spec) and not self.standing.excuses.get(spec)
        ]

    def kept_open(self) -> list[GangSpec]:
        """Return the gangs that a rule keeps partially bound, or whose minimum was raised beyond their stamped one."""
        self.standing.check_now()
        return [
            spec
            for spec in self.books.gangs
            if self.bound(spec) and self.missing(spec) and (not self.lives.missing_of_stamped(spec) or self.excuse(spec))
        ]

    def excuse(self, spec: GangSpec) -> str:
        """Return the rule that keeps a gang partially bound, and its cause, as of the last check; empty without one."""
        if not self.lives.missing_of_stamped(spec):
            return "the minimum was raised"
        return self.standing.excuses.get(spec, "")

    def incomplete(self) -> list[str]:
        """Return a text for each gang that isn't whole although it has the pods for that.

        The last pods of a Job may be too few for a wave; such a gang isn't listed.
        """
        return [
            f"[incomplete] {spec.kind} gang {spec.name} lacks {missing}"
            for spec in self.books.gangs
            if (missing := self.missing(spec)) and self.lives.has_pods(spec)
        ]

    def suspended(self) -> list[str]:
        """Return a text for each Job that a scheduler has suspended and not resumed."""
        return [
            f"[lost] job {name_of(job)} stays suspended"
            for job in self.books.objects.get("jobs", {}).values()
            if job["spec"].get("suspend")
            and not is_managed(job)
            and (uid_of(job) in self.releases.suspended or SUSPENDED in (job["metadata"].get("labels") or {}))
        ]

    def over_committed(self) -> list[str]:
        """Return a text for each node where our own pods request more than it offers. Nodes that have shrunk are left out."""
        found = []
        for name, node in self.books.nodes.items():
            capacity = capacity_of(node)
            for resource, used in self._used(name, ours_only=True).items():
                if used > capacity.get(resource, 0) and name not in self.books.shrunk:
                    found.append(f"[over-commit] node {name} has {used} requested of {capacity.get(resource, 0)} {resource}")
        return found

    def usage(self) -> dict[tuple[str, str], int]:
        """Return the amounts that all pods use, by node and resource."""
        return {(name, resource): used for name in self.books.nodes for resource, used in self._used(name).items()}

    def _used(self, node: str, *, ours_only: bool = False) -> dict[str, int]:
        used: dict[str, int] = {"pods": 0}
        for pod in self.books.pods():
            if node_of(pod) != node or phase_of(pod) in ENDED or (ours_only and pod["spec"].get("schedulerName") != OURS):
                continue
            for resource, amount in demand_of(pod).items():
                used[resource] = used.get(resource, 0) + amount
        return used


def _is_report(body: Body, before: Body | None) -> bool:
    """Return whether a write changes only what a scheduler reports: conditions, and annotations."""

    def other_fields(pod: Body | None) -> Mapping[str, Any]:
        if pod is None:
            return {}
        metadata = {
            key: value
            for key, value in pod["metadata"].items()
            if key not in ("resourceVersion", "managedFields", "annotations", "generation")
        }
        return {"metadata": metadata, "spec": pod["spec"], "phase": phase_of(pod)}

    return other_fields(body) == other_fields(before)
