"""What is asked of each deletion and eviction, in the moment it is carried out."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.gangs import GangSpec

from .books import Books, Request
from .commits import OURS
from .facts import Body, free_room, most_placeable, name_of, node_of, phase_of, uid_of
from .lives import Lives

FORWARD_SECONDS = 5.0
"""How long the missing members of a half gang may be looked for."""
EDIT_SECONDS = 3.0
HELD_SECONDS = 40.0
"""How long after somebody's edit a request may arrive that was decided before it, if a fault has kept it: time-outs and retries."""
_REFUSALS = (400, 403, 422)
_SETTLED_SECONDS = 0.5
EDITS = ("the minimum is edited", "the PodGroup is deleted", "pods are annotated")


@dataclass(slots=True)
class Releases:
    """Watches every release. ``timeout`` is how long a gang may be open before it must make way."""

    books: Books
    lives: Lives
    accuse: Callable[[str, str], None]
    timeout: float
    released: int = 0

    def answered(self, request: Request) -> None:
        """A bind that is refused for good ends the hope for its gang."""
        if request.verb == "bind" and request.status in _REFUSALS:
            pod = self.books.get("pods", request.namespace, request.name)
            spec = self.books.gang_of(pod) if pod else None
            if spec is not None:
                self.lives.of(spec).is_refused = True

    def carried_out(self, request: Request, pod: Body) -> None:
        """``pod``, as it was before, was deleted or evicted by a scheduler."""
        self.released += 1
        name, spec = name_of(pod), self.books.gang_of(pod)
        if pod["spec"].get("schedulerName") != OURS:
            self.accuse("stranger", f"pod {name} was deleted, which is another scheduler's")
        if spec is None:
            return
        if not _preconditions_of(request) >= {"uid", "resourceVersion"}:
            self.accuse("precondition", f"the deletion of pod {name} names no UID or no version")
        if not spec.is_releasable and not (spec.kind == "job" and spec.forgives):
            self.accuse("kept pod", f"pod {name} of a {spec.kind} gang was deleted")
        life = self.lives.of(spec)
        life.released.add(uid_of(pod))
        if self._is_edited(spec):
            return
        if not node_of(pod) or not self._owed_before(spec, pod):
            self.accuse("release", f"pod {name} was deleted, and nothing was missing of {spec.name}")
        elif phase_of(pod) == "Running":
            self._judge_running(spec, pod)
        elif life.was_whole:
            self.accuse("release", f"pod {name} was deleted, of {spec.name}, which was whole before")
        else:
            self._judge_waiting(spec, pod, request)

    def _judge_running(self, spec: GangSpec, pod: Body) -> None:
        life = self.lives.of(spec)
        if life.was_whole:
            self.accuse("release", f"pod {name_of(pod)} was deleted while it ran, of {spec.name}, which was whole before")
        elif life.open_since is None or self.books.clock() - life.open_since < self.timeout - 1:
            self.accuse("release", f"pod {name_of(pod)} was deleted while it ran, of {spec.name}, whose time wasn't over")
        elif not any(self.lives.missing(other) and self.lives.candidates(other) for other in self.books.gangs if other is not spec):
            self.accuse("release", f"pod {name_of(pod)} was deleted while it ran, of {spec.name}, and nobody waited for its seat")

    def _judge_waiting(self, spec: GangSpec, pod: Body, request: Request) -> None:
        """A member that hasn't started is released when finishing is refused, has had its time, or has no room."""
        life = self.lives.of(spec)
        since = life.open_since if life.open_since is not None else request.sent
        if life.is_refused or request.sent - since >= FORWARD_SECONDS - 0.1:
            return
        if self.books.quiet_elsewhere(spec) < _SETTLED_SECONDS:
            return  # what it knows of the room for the others may be as old
        everybody = {uid_of(each): each for each in self.books.pods()} | {uid_of(pod): pod}
        free, missing = free_room(self.books.nodes, list(everybody.values())), self._owed_before(spec, pod)
        if most_placeable(self.lives.candidates(spec), self.books.nodes, free, missing) >= missing:
            self.accuse("forward", f"pod {name_of(pod)} of {spec.name} was released, whose missing members had room and time")

    def _owed_before(self, spec: GangSpec, pod: Body) -> int:
        """What was owed when the deleted pod was one of the bound."""
        life, minimum = self.lives.of(spec), self.books.minimum(spec)
        bound = {uid_of(each) for each in self.lives.bound(spec)} | {uid_of(pod)}
        promise = life.promise if minimum is None else min(life.promise, minimum)
        return max(0, promise - self.lives.succeeded(spec) - len(bound))

    def _is_edited(self, spec: GangSpec) -> bool:
        """Whether somebody has just changed what the gang asks for: the request may rest on what was so before."""
        now, name = self.books.clock(), (spec.namespace, spec.name)
        is_kept = any(request.is_struck and (request.answered or now) > now - HELD_SECONDS for request in self.books.requests)
        window = HELD_SECONDS if is_kept else EDIT_SECONDS
        return any(deed.gang == name and deed.what in EDITS and now - deed.at < window for deed in self.books.deeds)


def _preconditions_of(request: Request) -> set[str]:
    body = request.body
    options = body.get("deleteOptions") if request.verb == "evict" else body
    found = (options or {}).get("preconditions") or {}
    return {field for field, value in found.items() if value}
