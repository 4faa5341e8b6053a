"""How every gang stands, looked at again and again: whole, absent, or open with an excuse that cites what caused it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.gangs import GangSpec

from .books import Books
from .facts import Body, demand_of, free_room, most_placeable, name_of, phase_of, refusal, uid_of
from .lives import Lives

GRACE_SECONDS = 1.0
"""For how long a gang is open while its members are bound one after the other."""
RESOLVE_SECONDS = 25.0
"""By when, undisturbed, a half gang is finished or undone, and one that fits is placed: 5 s forward, pauses of 10 s, and their searches."""
_BEFORE_SECONDS = 0.5
_TOLD_SECONDS = 5.0
"""What is told may be as old: words wait while there is something to do."""
_FIT_ERROR = re.compile(r"(?:(\d+) of (\d+) members placeable.*?)?0/(\d+) nodes are available(?:: (.*?)\.)?(?: |$)", re.DOTALL)
_COUNTED = re.compile(r"(\d+) (.+)")


@dataclass(slots=True)
class Standing:
    """Looks at all gangs. ``leads`` tells since when somebody schedules, None while nobody does."""

    books: Books
    lives: Lives
    accuse: Callable[[str, str], None]
    timeout: float
    leads: Callable[[], float | None]
    shows_conditions: bool = True
    excuses: dict[GangSpec, str] = field(default_factory=dict)
    """Of the gangs that are open by a rule, why; as of the last look."""

    def look(self) -> None:
        """Judge how every gang stands now."""
        self.excuses.clear()
        now, leading = self.books.clock(), self.leads()
        for spec in self.books.gangs:
            life = self.lives.of(spec)
            if life.open_since is not None and now - life.open_since > GRACE_SECONDS:
                self._judge_open(spec)
            if leading is not None and now - max(leading, self.books.moved, self._quiet_since(spec)) >= RESOLVE_SECONDS:
                self._judge_idle(spec)

    def _quiet_since(self, spec: GangSpec) -> float:
        return self.books.quiet_since(spec)

    def _judge_open(self, spec: GangSpec) -> None:
        """Open with a cause, and for no longer than it must be."""
        life, now = self.lives.of(spec), self.books.clock()
        assert life.open_since is not None
        if not life.cause:
            life.cause = next(self.books.causes(life.open_since - _BEFORE_SECONDS, spec), "")
        bound, owed = self.lives.bound(spec), self.lives.owed(spec)
        state = f"{spec.kind} gang {spec.name} is open with {len(bound)} of {len(bound) + owed}"
        if not life.cause:
            self.accuse("open", f"{state}, and nothing was done to it")
            life.cause = "said already"
            return
        leading = self.leads()
        rested = now - max(self._quiet_since(spec), leading or now, life.open_since, self.books.moved)
        if rested < RESOLVE_SECONDS:
            self.excuses[spec] = f"since {life.cause}, a moment ago"
            return
        self.excuses[spec] = self._excuse(spec, bound, owed)
        if not self.excuses[spec]:
            self.accuse("unresolved", f"{state} for {rested:.0f} s after all was quiet, since {life.cause}")
        elif self.shows_conditions and not self._shows_open(spec):
            self.accuse("untold", f"{state} and doesn't say so")

    def _excuse(self, spec: GangSpec, bound: list[Body], owed: int) -> str:
        """The rule that keeps a half gang open when all has been quiet; empty without one."""
        life, waiting = self.lives.of(spec), self.lives.candidates(spec)
        free = free_room(self.books.nodes, list(self.books.pods()))
        missing = max(owed, self.lives.missing(spec))
        if len(waiting) >= missing and most_placeable(waiting, self.books.nodes, free, missing) >= missing and not self._is_held(spec):
            return ""  # they could be bound
        because = f", since {life.cause}"
        if not spec.is_releasable:
            return f"its members can't be made anew{because}"
        if life.was_whole:
            return f"it was whole{because}"
        if self.lives.may_look_whole(spec):
            return f"it can't be told whether it was whole, since members went while nobody scheduled{because}"
        if any(phase_of(pod) == "Running" for pod in bound):
            return "" if self._blocked_by(spec) else f"members run, and nobody waits for their seats{because}"
        return ""

    def _blocked_by(self, spec: GangSpec) -> bool:
        """Whether somebody fits only with the seats of a half gang whose time is over."""
        life, now, leading = self.lives.of(spec), self.books.clock(), self.leads()
        since = max(life.open_since or now, leading or now, self._quiet_since(spec))
        if now - since < self.timeout + RESOLVE_SECONDS:
            return False
        mine = [uid_of(pod) for pod in self.lives.bound(spec)]
        everybody = list(self.books.pods())
        for other in self.books.gangs:
            missing, waiting = self.lives.missing(other), self.lives.candidates(other)
            if other is spec or not missing or len(waiting) < missing or self._is_held(other) or other.priority < spec.priority:
                continue
            if max(self.books.born[uid_of(pod)] for pod in waiting) > since:
                continue
            if self.lives.bound(other) and not self._goes_before(other, spec):
                continue  # of two half gangs the later one yields
            if most_placeable(waiting, self.books.nodes, free_room(self.books.nodes, everybody), missing) >= missing:
                continue
            if most_placeable(waiting, self.books.nodes, free_room(self.books.nodes, everybody, mine), missing) >= missing:
                return True
        return False

    def _goes_before(self, one: GangSpec, other: GangSpec) -> bool:
        """Whether a gang is served before another: by priority, then by age in seconds, then by name."""
        places = [
            (-spec.priority, min(int(self.books.born[uid_of(pod)]) for pod in self.lives.alive(spec)), spec.name) for spec in (one, other)
        ]
        return places[0] < places[1]

    def _judge_idle(self, spec: GangSpec) -> None:
        """Nobody waits who fits, and who waits is told the truth."""
        missing, waiting = self.lives.missing(spec), self.lives.candidates(spec)
        if not missing or len(waiting) < missing or self._is_held(spec) or self.lives.bound(spec):
            return
        free = free_room(self.books.nodes, list(self.books.pods()))
        for pod, node in self.books.in_doubt():
            if uid_of(pod) not in {uid_of(each) for each in waiting}:
                for resource, amount in demand_of(pod).items() if node in free else ():
                    free[node][resource] = free[node].get(resource, 0) - amount
        if most_placeable(waiting, self.books.nodes, free, missing) >= missing:
            self.accuse("idle", f"{spec.kind} gang {spec.name} of {missing} waits, although it fits and all has been quiet")
            return
        for pod in waiting:
            is_struck = any(each.is_struck and each.verb == "patch" and each.name == name_of(pod) for each in self.books.requests)
            if not is_struck and not _FIT_ERROR.search(message_of(pod)) and self.books.nodes:
                self.accuse("reason", f"pod {name_of(pod)} waits, since it doesn't fit, and is told {message_of(pod)!r}")
                return

    def told(self, pod: Body, before: Body | None) -> None:
        """A pod is told something by its scheduler, which must be true of how things have been for a while."""
        spec, message = self.books.gang_of(pod), message_of(pod)
        found = _FIT_ERROR.search(message)
        is_news = before is None or message_of(before) != message
        if spec is None or found is None or not is_news or self.books.clock() - self.books.resettled < _TOLD_SECONDS:
            return
        if any("watches" in deed.what and deed.until > self.books.clock() - RESOLVE_SECONDS for deed in self.books.deeds):
            return  # it may be told of what was so a while ago
        nodes, waiting, bound = self.books.nodes, self.lives.candidates(spec), self.lives.bound(spec)
        named = re.search(r"; pod (\S+): 0/", message)  # of several roles, the one that is hardest to place
        about = self.books.get("pods", spec.namespace, named[1]) if named else pod
        wrong = self._wrong_in(about or pod, found[4] or "", int(found[3]))
        most = len(bound) + self.lives.succeeded(spec) + most_placeable(waiting, nodes, free_room(nodes, list(self.books.pods())))
        if found[1] is not None and not 0 <= int(found[1]) <= most:
            wrong = wrong or f"at most {most} would be placed"
        if wrong:
            self.accuse("reason", f"pod {name_of(pod)} is told {message!r}: {wrong}")

    def _wrong_in(self, pod: Body, reasons: str, total: int) -> str:
        """What is wrong in counts of nodes by reason."""
        nodes = self.books.nodes
        if total != len(nodes):
            return f"there are {len(nodes)} nodes"
        refusals = [refusal(node, pod) for node in nodes.values()]
        asked = demand_of(pod)
        told = 0
        for part in filter(None, reasons.split(", ")):
            found = _COUNTED.fullmatch(part)
            if found is None:
                return f"{part!r} counts nothing"
            count, reason = int(found[1]), found[2]
            told += count
            if reason.startswith("Insufficient ") and reason.removeprefix("Insufficient ") not in asked:
                return f"nobody asks for {reason.removeprefix('Insufficient ')}"
            if "unschedulable" in reason and count != sum(each == "is cordoned" for each in refusals):
                return f"{sum(each == 'is cordoned' for each in refusals)} nodes are cordoned"
            if reason.startswith("Insufficient ") and count > sum(not each for each in refusals):
                return f"only {sum(not each for each in refusals)} nodes admit it at all"
        return "" if told >= len(nodes) else f"it says nothing of {len(nodes) - told} nodes"

    def _is_held(self, spec: GangSpec) -> bool:
        """Whether a gang may not be scheduled until somebody mends it."""
        return self.books.minimum(spec) is None

    def _shows_open(self, spec: GangSpec) -> bool:
        group = self.books.get("podgroups", spec.namespace, spec.name)
        if group is None:
            return spec.has_group  # deleted by somebody: there is nowhere to say it
        conditions = (group.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "PartiallyBound" and each["status"] == "True" for each in conditions)


def message_of(pod: Body) -> str:
    """What a pod is told of why it waits."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((str(each.get("message") or "") for each in conditions if each.get("type") == "PodScheduled"), "")
