"""Judges a scheduler by what it does to a cluster, from books of its own.

``books`` has what it goes by, ``news`` what schedulers were told, ``excuses`` what may excuse them; the other modules have its rules.

A *run* is what is submitted once (a ``GangSpec``), or one wave of a Job. Which pods it has is known from who has created them, and not from
what they say: several runs may have one gang's name. A Job's run needs no more pods than the Job will still make.

Each rule has a name, which an accusation begins with:

==============  =====================================================================================================================
quorum          a commit sends binds for the whole quorum, beside those of its run that are bound
node            a bind goes to a node that admits the pod and has room, by what the scheduler had been told
over-commit     no node is promised more of our own pods than it holds
device          a bind names the GPUs that a pod is to have, and none is given away beyond what it holds
topology        those who must share a rack are sent to one
candidate       nobody is bound who is gated, leaving or has ended, by what the scheduler had been told
rehearsal       what can't be taken back was tried without effect before
double          a pod isn't sent elsewhere while an earlier bind of it may still be carried out
precondition    every bind, release and suspension names the UID and the version that it was decided on, each time that it is sent
journal         every bind carries the stamp, with the minimum that the gang asked for
priority        nobody takes seats that a gang of a higher priority waits for and fits
storm           one gang isn't bound again and again
haste, stale    no bind is sent before the API server wants it, and nobody is bound or released by what was heard long ago
kept pod        bare pods, and pods of Jobs that would count it, are never deleted
release         nobody is deleted of a gang that is or was whole, nor while it runs before its time
forward         nobody is released whose missing members have room and time, nor left half bound when they have had it
leader, late    only the leader changes anything; what an earlier one had sent comes too late
seal            a leader writes to each pod that is older than its term before it binds it
open            a gang is open by a fault or a foreign act that can be cited, or for a moment
unresolved      an open gang is finished or undone when all is quiet, but for the rules that are named
untold          a gang that is kept open says so
idle            a gang that fits is placed when all is quiet, and so is whoever comes to a whole one
reason, status  who waits is told the truth, and so is who asks a PodGroup
stranger        nothing of others is touched
lost, leaked    no Job stays suspended, no seat is counted that nobody sits on
==============  =====================================================================================================================
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
from .releases import Releases
from .standing import Standing
from .terms import Terms

__all__ = ["TIMEOUT_SECONDS", "Deed", "Judge", "Request", "ViolationError", "current"]

TIMEOUT_SECONDS = 30.0
"""``schedule_timeout_seconds`` of the schedulers that are judged."""
LOOK_SECONDS = 1.0
"""How often it is looked at how everybody stands, while anything goes on."""


class ViolationError(AssertionError):
    """A promise was broken."""

    @property
    def rules(self) -> list[str]:
        """The names of the rules that were broken, in the order in which they were."""
        return re.findall(r"(?:^|; )(?:at [\d.]+ s: )?\[([^\]]+)\]", str(self))


class Judge:
    """Watches one cluster. What it finds is raised by ``check``, outside the event loop's callbacks."""

    def __init__(
        self, gangs: list[GangSpec], clock: Callable[[], float], *, timeout: float = TIMEOUT_SECONDS, patience: float = 1.0
    ) -> None:
        self.books = Books(gangs, clock)
        self.lives = Lives(self.books, clock)
        self.binds = Binds(self.books, self.lives, self.accuse, lambda: bool(self.terms.leader))
        self.commits = Commits(self.books, self.lives, self.accuse, lambda: self.leading, patience)
        self.releases = Releases(self.books, self.lives, self.accuse, timeout)
        self.terms = Terms(self.books, self.accuse)
        self.leading: float | None = None
        """Since when somebody schedules; None while nobody does."""
        self.standing = Standing(self.books, self.lives, self.accuse, timeout, lambda: self.leading, self._who_leads)
        self.violations: list[str] = []
        self._said: set[tuple[str, str]] = set()
        self._looked = 0.0

    def _who_leads(self) -> str:
        """The process that leads; without an election the one that was heard of last."""
        return self.terms.leader or (self.books.requests[-1].who if self.books.requests else "")

    def accuse(self, rule: str, text: str) -> None:
        """Write down that a promise was broken; the same is said once."""
        if (rule, text) not in self._said:
            self._said.add((rule, text))
            self.violations.append(f"at {self.books.clock():.3f} s: [{rule}] {text}")

    def check(self) -> None:
        """Look at how everybody stands, and raise what was found."""
        self.commits.look()
        self.releases.look()
        self.standing.look()
        self.terms.look()
        if self.violations:
            raise ViolationError("; ".join(self.violations))

    # What is heard: the wire and the API's history.

    def arrived(self, request: Request) -> None:
        """A scheduler's request has reached the API server."""
        self.books.ask(request)
        self.commits.look()
        self.terms.arrived(request)
        self.releases.arrived(request)
        if request.verb == "bind":
            self.binds.sent(request)
        place = (request.namespace, request.name)
        if request.is_bind and (pod := self.books.get("pods", *place) or self.books.gone.get(place)) is not None:
            self.binds.arrived(request, pod)
            self.commits.arrived(request, pod)
        if self.books.clock() - self._looked >= LOOK_SECONDS:
            self._looked = self.books.clock()
            self.releases.look()
            self.standing.look()
            self.terms.look()

    def answered(self, request: Request) -> None:
        """It was answered, or its connection was closed."""
        request.answered = self.books.clock()
        self.releases.answered(request)
        self.commits.answered(request)

    def on_change(self, change: Change) -> None:
        """An object was written, in the sandbox. ``change`` is already done."""
        plural, request = change.table.partition(".")[0], current.get()
        if request is not None and request.answered is not None:
            request = None  # what kubelets and controllers do because of it is their own
        before = change.previous.body if change.previous else None
        self.changed(plural, change.type == DELETED, change.record.body, before, request)

    def changed(self, plural: str, is_deleted: bool, body: Body, before: Body | None, request: Request | None) -> None:
        """An object was written, by a scheduler's ``request`` or by anybody else."""
        self.books.change(plural, is_deleted, body, before)
        if plural == "leases":
            self.terms.lease_written(request, body)
        if plural == "podgroups":
            for each in self.books.gangs:
                if (each.namespace, each.name) == (body["metadata"].get("namespace"), body["metadata"]["name"]):
                    self.lives.weigh(each)
        if plural == "jobs" and request is not None and before is not None and not is_deleted:
            self.releases.job_written(request, body, before)
        if plural != "pods":
            return
        if request is not None and request.verb == "patch":
            self.standing.told(body, before, request)
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
        if request is not None and body["spec"].get("schedulerName") != OURS and not _is_words(body, before):
            self.accuse("stranger", f"pod {name_of(body)} of another scheduler was written")
        if spec is not None:
            decided = self.books.first_sent(request) if request is not None else self.books.clock()
            self.lives.follow(spec, body, is_bound_now=is_bound_now, decided=decided)

    # What is seen.

    def note(self, what: str, *, gang: GangSpec | None = None, who: str = "", seconds: float = 0.0) -> Deed:
        """Write down what is done to the cluster or to a scheduler."""
        return self.books.note(what, gang=gang, who=who, seconds=seconds)

    def stopped(self, who: str, began: float) -> None:
        """A process has ended in peace, as it was asked to when that ``began``."""
        self.commits.stopped(who, began)
        self.terms.stopped(who)

    def note_loss(self, what: str, spec: GangSpec) -> None:
        """Write down what makes a member go, before it does, whoever sees it."""
        self.note(what, gang=spec)
        self.lives.lose(spec)

    @property
    def released(self) -> int:
        """Pods that schedulers have deleted."""
        return self.releases.released

    def members(self, spec: GangSpec) -> list[Body]:
        """The pods of a gang that are here to stay."""
        return self.lives.alive(spec)

    def bound(self, spec: GangSpec) -> list[Body]:
        """Those of them that have a node."""
        return self.lives.bound(spec)

    def ended(self, spec: GangSpec) -> list[Body]:
        """The pods of a gang that have failed or succeeded."""
        return [pod for pod in self.books.members(spec) if phase_of(pod) in ENDED]

    def minimum(self, spec: GangSpec) -> int | None:
        """How many members must start together, now; None when nobody says so any more."""
        return self.books.minimum(spec)

    def missing(self, spec: GangSpec) -> int:
        """Members missing of the present minimum."""
        return self.lives.missing(spec)

    def unseated(self) -> list[str]:
        """Gangs that are half bound, and no rule allows it."""
        self.standing.look()
        return [
            f"{spec.kind} gang {spec.name} is left with {len(self.bound(spec))}"
            for spec in self.books.gangs
            if self.lives.owed(spec) and not self.standing.excuses.get(spec)
        ]

    def kept_open(self) -> list[GangSpec]:
        """Gangs that are half bound by a rule, or because more is asked for than was promised them."""
        self.standing.look()
        return [
            spec
            for spec in self.books.gangs
            if self.bound(spec) and self.missing(spec) and (not self.lives.owed(spec) or self.excuse(spec))
        ]

    def excuse(self, spec: GangSpec) -> str:
        """The rule that keeps a half bound gang open, with what caused it, as of the last look; empty without one."""
        if not self.lives.owed(spec):
            return "the minimum was raised"
        return self.standing.excuses.get(spec, "")

    def incomplete(self) -> list[str]:
        """Gangs that are not whole, but for those of which there aren't enough pods: the last of a Job's pods may be too few for a wave."""
        return [
            f"[incomplete] {spec.kind} gang {spec.name} lacks {missing}"
            for spec in self.books.gangs
            if (missing := self.missing(spec)) and self.lives.has_pods(spec)
        ]

    def suspended(self) -> list[str]:
        """Jobs that a scheduler has suspended and not resumed."""
        return [
            f"[lost] job {name_of(job)} stays suspended"
            for job in self.books.objects.get("jobs", {}).values()
            if job["spec"].get("suspend")
            and not is_managed(job)
            and (uid_of(job) in self.releases.suspended or SUSPENDED in (job["metadata"].get("labels") or {}))
        ]

    def over_committed(self) -> list[str]:
        """Nodes that have promised more than they have, to pods of ours alone."""
        found = []
        for name, node in self.books.nodes.items():
            capacity = capacity_of(node)
            for resource, used in self._used(name, ours_only=True).items():
                if used > capacity.get(resource, 0) and name not in self.books.shrunk:
                    found.append(f"[over-commit] node {name} has promised {used} of {capacity.get(resource, 0)} {resource}")
        return found

    def usage(self) -> dict[tuple[str, str], int]:
        """What is used of each node's resources, by all pods."""
        return {(name, resource): used for name in self.books.nodes for resource, used in self._used(name).items()}

    def _used(self, node: str, *, ours_only: bool = False) -> dict[str, int]:
        used: dict[str, int] = {"pods": 0}
        for pod in self.books.pods():
            if node_of(pod) != node or phase_of(pod) in ENDED or (ours_only and pod["spec"].get("schedulerName") != OURS):
                continue
            for resource, amount in demand_of(pod).items():
                used[resource] = used.get(resource, 0) + amount
        return used


def _is_words(body: Body, before: Body | None) -> bool:
    """Whether a write changes nothing but what is said: conditions, and the annotation that makes a pod newer."""

    def rest(pod: Body | None) -> Mapping[str, Any]:
        if pod is None:
            return {}
        metadata = {
            key: value
            for key, value in pod["metadata"].items()
            if key not in ("resourceVersion", "managedFields", "annotations", "generation")
        }
        return {"metadata": metadata, "spec": pod["spec"], "phase": phase_of(pod)}

    return rest(body) == rest(before)
