"""How every gang stands, looked at again and again: whole, absent, or open with an excuse that cites what caused it."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.faults.gangs import EPOCH, GangSpec

from . import excuses
from .books import IN_FLIGHT_SECONDS, Books
from .entries import Request
from .facts import Body, demand_of, free_room, most_placeable, name_of, phase_of, refusal, uid_of
from .lives import Lives

GRACE_SECONDS = 1.0
"""For how long a gang is open while its members are bound one after the other."""
RESOLVE_SECONDS = 25.0
"""By when, undisturbed, a half gang is finished or undone, and one that fits is placed: 5 s forward, pauses of 10 s, and their searches."""
FORWARD_SECONDS = 5.0
"""How long the missing members of a half gang may be looked for."""
_TRIES = 8
"""How often a bind is made that nobody answers: four times in one attempt, and as often in the one that follows it."""
DEAF_SECONDS = 15.0
"""By when a dead watch is noticed. Where watches were refused, it takes four times as long at most: pauses between tries grow."""
_BEFORE_SECONDS = 0.5
_RESYNC_SECONDS = 90.0
_REPEATED_SECONDS = 90.0 + 300.0
"""By when a pod is told everything again that an earlier leader's late words have covered: at its gang's next attempt after 90 s."""
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
    who_leads: Callable[[], str]
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
            if leading is None or now - max(leading, self.books.moved) < RESOLVE_SECONDS:
                continue
            if now - excuses.quiet_since(self.books, spec) >= RESOLVE_SECONDS:
                self._judge_idle(spec)
                self._judge_surplus(spec)
                self._judge_status(spec)
        self._judge_deaf()

    def _judge_open(self, spec: GangSpec) -> None:
        """Open with a cause, and for no longer than it must be."""
        life, now = self.lives.of(spec), self.books.clock()
        assert life.open_since is not None
        if not life.cause:
            life.cause = next(excuses.causes(self.books, life.open_since - _BEFORE_SECONDS, life.open_since + GRACE_SECONDS, spec), "")
        bound, owed = self.lives.bound(spec), self.lives.owed(spec)
        state = f"{spec.kind} gang {spec.name} is open with {len(bound)} of {len(bound) + owed}"
        if not life.cause:
            self.accuse("open", f"{state}, and nothing was done to it")
            life.cause = "said already"
            return
        self._judge_slow(spec, bound, state)
        leading = self.leads()
        # Whoever can be released isn't kept for as long as others of the gang are refused, unless a tenant says that it was whole.
        looks_whole = life.was_whole or excuses.is_forged(self.books, spec)
        is_undoable = spec.may_be_undone and not looks_whole and all(phase_of(pod) == "Pending" for pod in bound)
        quiet = excuses.quiet_since(self.books, spec, but_binds=is_undoable)
        rested = now - max(quiet, leading or now, life.open_since, self.books.moved)
        if rested < RESOLVE_SECONDS:
            self.excuses[spec] = f"since {life.cause}, a moment ago"
            return
        self.excuses[spec] = self._excuse(spec, bound, owed)
        if not self.excuses[spec]:
            self.accuse("unresolved", f"{state} for {rested:.0f} s after all was quiet, since {life.cause}")
        elif self.shows_conditions and not self._shows_open(spec) and not self._is_said_later(spec):
            self.accuse("untold", f"{state} and doesn't say so")

    def _judge_slow(self, spec: GangSpec, bound: list[Body], state: str) -> None:
        """What can be undone is undone when finishing it has had its time, whatever else goes on."""
        life, leading = self.lives.of(spec), self.leads()
        if (
            leading is None
            or life.open_since is None
            or not spec.may_be_undone
            or life.was_whole
            or self.lives.may_look_whole(spec, leading)
        ):
            return
        if any(phase_of(pod) != "Pending" for pod in bound):
            return
        began, until = max(life.open_since, leading), life.open_since + FORWARD_SECONDS
        answered = max(began, self._answered(spec, life.open_since, until))
        if answered > until:  # there was no time to try again
            answered = max(answered, self._answered(spec, life.open_since, answered + FORWARD_SECONDS))
        since = answered + 2 * FORWARD_SECONDS  # its time is put off once
        if self.books.clock() - since < GRACE_SECONDS or excuses.is_disturbed(self.books, life.open_since - GRACE_SECONDS, spec):
            return
        if not any(
            request.sent > life.open_since and (request.verb in ("delete", "evict") and self.books.is_of(request, spec))
            for request in self.books.requests
        ):
            self.accuse("forward", f"{state} for {self.books.clock() - life.open_since:.0f} s, and nobody begins to undo it")

    def _answered(self, spec: GangSpec, since: float, until: float) -> float:
        """When the last answer came to the binds of a gang that were first sent before ``until``; 0.0 without any."""
        series: dict[tuple[str, str], list[Request]] = {}
        answers = [0.0]
        for request in self.books.requests:
            if not request.is_bind or not self.books.is_of(request, spec):
                continue
            tries = series.setdefault((str(request.metadata.get("uid")), request.target), [])
            is_made_again = 0 < len(tries) < _TRIES and not tries[-1].is_heard(since, request.sent)
            if is_made_again or request.sent < until:
                tries.append(request)
                answers.append(request.answered or self.books.clock())
        return max(answers)

    def _excuse(self, spec: GangSpec, bound: list[Body], owed: int) -> str:
        """The rule that keeps a half gang open when all has been quiet; empty without one."""
        life, waiting = self.lives.of(spec), self.lives.candidates(spec)
        free = free_room(self.books.nodes, self.books.taking_seats(spec))
        missing = max(owed, self.lives.missing(spec))
        because = f", since {life.cause}"
        if self._is_held(spec) and excuses.is_forged(self.books, spec):
            return f"nobody says how many they are but what its tenant has forged{because}"
        if self._are_seats_held(spec):
            return f"others may be given the seats still{because}"
        if len(waiting) >= missing and self.lives.has_pods(spec) and self.lives.fits(spec, free, missing):
            return ""  # they could be bound, to what was promised them if nobody says any more how many they are
        if life.was_whole and waiting and not spec.least and not self.lives.has_pods(spec) and self.lives.placeable(spec, free, 1):
            return ""  # it was whole, and fewer replacements exist than it has lost: those are bound
        if not spec.may_be_undone and not (spec.kind == "job" and spec.suspends):
            return f"its members can't be made anew{because}"
        if spec.gives_up:
            return "" if self._is_over(spec) else f"its time isn't over{because}"
        if life.was_whole:
            return f"it was whole{because}"
        if excuses.is_forged(self.books, spec):
            return f"its tenant has forged what it has been through{because}"
        if self.lives.may_look_whole(spec, self.leads()):
            return f"it can't be told whether it was whole, since members went while nobody scheduled{because}"
        if any(phase_of(pod) == "Running" for pod in bound):
            return "" if self._blocked_by(spec) else f"members run, and nobody waits for their seats{because}"
        if not spec.may_be_undone and not self._is_over(spec):
            return f"the time after which its Job may be suspended isn't over{because}"
        return ""

    def _is_over(self, spec: GangSpec) -> bool:
        """Whether a gang has been half bound for as long as it may, and for as long as it takes then, with nothing done to it."""
        life, now, leading = self.lives.of(spec), self.books.clock(), self.leads()
        return now - max(life.open_since or now, leading or now, excuses.quiet_since(self.books, spec)) >= self.timeout + RESOLVE_SECONDS

    def _blocked_by(self, spec: GangSpec) -> bool:
        """Whether somebody fits only with the seats of a half gang whose time is over."""
        life, now, leading = self.lives.of(spec), self.books.clock(), self.leads()
        since = max(life.open_since or now, leading or now, excuses.quiet_since(self.books, spec))
        if not self._is_over(spec):
            return False
        mine = [uid_of(pod) for pod in self.lives.bound(spec)]
        for other in self.books.gangs:
            missing, waiting = self.lives.missing(other), self.lives.candidates(other)
            if other is spec or not missing or not self.lives.has_pods(other) or self._is_held(other) or other.priority < spec.priority:
                continue
            if max(self.books.born[uid_of(pod)] for pod in waiting) > since:
                continue
            if self.lives.bound(other) and not self.lives.goes_before(other, spec):
                continue  # of two half gangs the later one yields
            everybody = self.books.taking_seats(other)
            # Room that another has been promised just now may be given back, again and again: then it isn't this gang that is in the way.
            without = free_room(self.books.nodes, list(self.books.pods()))
            if other.least or other.percent or most_placeable(waiting, self.books.nodes, without, missing) >= missing:
                continue
            if self.lives.fits(other, free_room(self.books.nodes, everybody, mine)):
                return True
        return False

    def _judge_idle(self, spec: GangSpec) -> None:
        """Nobody waits who fits, and who waits is told the truth."""
        missing, waiting = self.lives.missing(spec), self.lives.candidates(spec)
        if not missing or not self.lives.has_pods(spec) or self._is_held(spec) or self.lives.bound(spec) or self._are_seats_held(spec):
            return
        free = free_room(self.books.nodes, self.books.taking_seats(spec))
        if self._waits_for_another_run(spec):
            return
        if self.lives.fits(spec, free):
            self.accuse("idle", f"{spec.kind} gang {spec.name} of {missing} waits, although it fits and all has been quiet")
            return
        if not spec.least and most_placeable(waiting, self.books.nodes, free, missing) >= missing:
            return
        for pod in waiting:
            about = self.books.requests_about("pods", name_of(pod))
            told = [each for each in about if each.verb == "patch" and each.namespace == spec.namespace]
            is_struck = any(each.is_struck for each in told)
            if (
                not is_struck
                and not self._came_late(told, _REPEATED_SECONDS)
                and not _FIT_ERROR.search(message_of(pod))
                and self.books.nodes
            ):
                self.accuse("reason", f"pod {name_of(pod)} waits, since it doesn't fit, and is told {message_of(pod)!r}")
                return

    def _waits_for_another_run(self, spec: GangSpec) -> bool:
        """Return whether an earlier submission under the name of a gang waits: the later one is seen to after it."""
        earlier = (
            each
            for each in self.books.gangs
            if (each.namespace, each.name) == (spec.namespace, spec.name) and each.submission < spec.submission
        )
        return any(self.lives.candidates(each) and self.lives.missing(each) and self.lives.has_pods(each) for each in earlier)

    def _judge_surplus(self, spec: GangSpec) -> None:
        """Whoever comes to a gang that is whole is bound as soon as he fits."""
        waiting = self.lives.candidates(spec)
        if not waiting or not self.lives.bound(spec) or self.lives.missing(spec) or self._is_held(spec) or self._are_seats_held(spec):
            return
        if self.lives.succeeded(spec) or self.lives.losses_since(spec, self.books.clock() - 4 * RESOLVE_SECONDS):
            return  # they are the next wave, of which all are bound or none; or it rests
        free = free_room(self.books.nodes, self.books.taking_seats(spec))
        if self.lives.placeable(spec, free, 1):
            self.accuse("idle", f"{len(waiting)} wait who belong to {spec.name}, which is whole; one fits, and all has been quiet")

    def _are_seats_held(self, spec: GangSpec) -> bool:
        """Whether others have waited long for answers of late: the seats that they were promised are free in between only.

        Or whether it can't be found out which seats an earlier leader has given away: for as long as its binds may land.
        """
        now, leading = self.books.clock(), self.leads() or 0.0
        if now - leading < IN_FLIGHT_SECONDS + RESOLVE_SECONDS and any(
            request.verb == "patch" and EPOCH in (request.metadata.get("annotations") or {})
            for request in self.books.struck
            if request.sent > leading - RESOLVE_SECONDS
        ):
            return True
        binds = [each for each in self.books.struck if each.verb == "bind" and not self.books.is_of(each, spec)]
        if any((each.answered or now) > max(now - RESOLVE_SECONDS, each.sent + GRACE_SECONDS) for each in binds):
            return True
        # Or whether others can't be taken out of the reach of binds that were never answered.
        doubtful = {(each.namespace, each.name) for each in binds if each.is_bind and each.sent > now - IN_FLIGHT_SECONDS - RESOLVE_SECONDS}
        return any(
            each.verb == "patch" and each.sent > now - RESOLVE_SECONDS and (each.namespace, each.name) in doubtful
            for each in self.books.struck
            if EPOCH in (each.metadata.get("annotations") or {})
        )

    def _judge_status(self, spec: GangSpec) -> None:
        """What a PodGroup says of its gang, counts above all, is so."""
        group = self.books.get("podgroups", spec.namespace, spec.name)
        if group is None or excuses.is_forged(self.books, spec) or self.books.is_shared(spec):
            return  # of several submissions it says how they are together
        if any(each.verb != "create" for each in self._unsaid(spec)) or self._is_overwritten(spec):
            return
        status, alive = group.get("status") or {}, self.lives.alive(spec)
        if not self.books.members(spec):
            return  # whoever leads now can't tell whose PodGroup it was
        if self.books.clock() - self.books.minima[spec.namespace, spec.name][-1][0] < GRACE_SECONDS:
            return  # it is new, or asks for something else
        jobs = self.books.objects.get("jobs", {}).values()
        if any(job["spec"].get("suspend") and name_of(job).startswith(spec.name) for job in jobs):
            return  # it is waited for its pods to go
        counts = {"scheduled": len(self.lives.bound(spec)), "running": sum(phase_of(pod) == "Running" for pod in alive)}
        for phase in ("Succeeded", "Failed"):
            counts[phase.lower()] = sum(phase_of(pod) == phase for pod in self.books.members(spec))
        for field_name, count in counts.items():
            if status.get(field_name, 0) != count:
                self.accuse("status", f"podgroup {spec.name} says {status.get(field_name, 0)} of its members are {field_name}: {count} are")
        is_open = bool(self.lives.bound(spec)) and self.lives.missing(spec) > 0
        if self.shows_conditions and self._says_open(group) != is_open:
            self.accuse(
                "status",
                f"podgroup {spec.name} says that it is {'not ' if is_open else ''}half bound, which it is{'' if is_open else 'n’t'}",
            )

    def _judge_deaf(self) -> None:
        """A watch that is dead is noticed within seconds, and another begun."""
        now, leading, who = self.books.clock(), self.leads(), self.who_leads()
        if leading is None or not who or excuses.is_cut_off(self.books, now - 4 * DEAF_SECONDS, who):
            return
        for plural in ("pods", "nodes"):
            heard = self.books.news.heard.get((who, plural), now)
            if now - max(heard, leading) > DEAF_SECONDS:
                self.accuse("stale", f"the watch of {plural} has said nothing for {now - heard:.0f} s, and no other was begun")

    def told(self, pod: Body, before: Body | None, request: Request) -> None:
        """A pod is told something by its scheduler, which must be true of how things had been for a while when it was sent."""
        spec, message = self.books.gang_of(pod), message_of(pod)
        found = _FIT_ERROR.search(message)
        is_news = before is None or message_of(before) != message
        if spec is None or spec.percent or found is None or not is_news or request.sent - self.books.resettled < _TOLD_SECONDS:
            return
        if excuses.is_told_late(self.books) or excuses.stood_still(self.books, request.who, request.sent - _TOLD_SECONDS):
            return
        nodes, waiting, bound = self.books.nodes, self.lives.candidates(spec), self.lives.bound(spec)
        named = re.search(r"; pod (\S+): 0/", message)  # of several roles, the one that is hardest to place
        about = self.books.get("pods", spec.namespace, named[1]) if named else pod
        wrong = "" if spec.shares_rack else self._wrong_in(about or pod, found[4] or "", int(found[3]))
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
        cordoned = sum(bool((node.get("spec") or {}).get("unschedulable")) for node in nodes.values())
        for part in filter(None, reasons.split(", ")):
            found = _COUNTED.fullmatch(part)
            if found is None:
                return f"{part!r} counts nothing"
            count, reason = int(found[1]), found[2]
            told += count
            if reason.startswith("Insufficient ") and reason.removeprefix("Insufficient ") not in asked:
                return f"nobody asks for {reason.removeprefix('Insufficient ')}"
            if "unschedulable" in reason and not sum(each == "is cordoned" for each in refusals) <= count <= cordoned:
                return f"{cordoned} nodes are cordoned"
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
        return self._says_open(group)

    def _is_said_later(self, spec: GangSpec) -> bool:
        """Whether something has kept a scheduler from saying what it has to of a gang: it does when it looks at all PodGroups again."""
        since = self.books.clock() - _RESYNC_SECONDS
        if self.books.was_done(spec, ("the PodGroup is deleted",), since):
            return True  # which it may not have been told
        return any((each.answered or since) >= since for each in self._unsaid(spec))

    def _is_overwritten(self, spec: GangSpec) -> bool:
        """Whether an earlier leader's words came late, and the leader hasn't looked through all PodGroups since."""
        about = [each for each in self.books.requests_about("podgroups", spec.name) if each.status == 200]
        return self._came_late(about, _RESYNC_SECONDS)

    def _came_late(self, told: Sequence[Request], seconds: float) -> bool:
        """Whether the last words were an earlier leader's, less than so many seconds ago: in which the leader says everything again."""
        last = max(told, key=lambda each: each.answered or 0.0, default=None)
        return last is not None and last.who != self.who_leads() and self.books.clock() - (last.answered or 0.0) < seconds

    def _unsaid(self, spec: GangSpec) -> Iterator[Request]:
        """The requests about a gang's PodGroup that a fault has hit."""
        return (each for each in self.books.struck if each.plural == "podgroups" and each.name == spec.name)

    @staticmethod
    def _says_open(group: Body) -> bool:
        conditions = (group.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "PartiallyBound" and each["status"] == "True" for each in conditions)


def message_of(pod: Body) -> str:
    """What a pod is told of why it waits."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((str(each.get("message") or "") for each in conditions if each.get("type") == "PodScheduled"), "")
