"""What each gang has been through, told from its pods alone."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tests.faults.gangs import GangSpec

from .books import HEEDED_SECONDS, NEWS_SECONDS, Books
from .facts import Amounts, Body, confined, is_alive, is_gated, most_placeable, node_of, phase_of, rack_of, role_of, uid_of

MOMENT_SECONDS = 0.3
"""A gang that is whole for no longer may never have been seen so: the last bind was on its way, or its kubelet rejected the pod."""


def rack_group(spec: GangSpec, pod: Body) -> str:
    """Return what those have in common who must share a rack: the gang if its PodGroup says so, else the role."""
    return "" if spec.has_group else role_of(pod)


@dataclass(slots=True)
class Life:
    """One gang since somebody of it was first bound. A *run* ends when nobody of it is bound any more.

    ``promise`` is the minimum that was promised to those who are bound, each by its commit, in ``promises``; ``seated`` are all that were
    bound in the run, those that are gone too, and ``size`` the most of them that were alive or had succeeded at once. ``following`` is a
    Job's next wave, if it has begun while members of this one are alive.
    """

    began: float = 0.0
    promise: int = 0
    promises: dict[str, int] = field(default_factory=dict)
    seated: dict[str, Body] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    was_whole: bool = False
    whole_since: float = 0.0
    open_since: float | None = None
    was_open: tuple[float, float] = (0.0, -math.inf)
    """When it was open before that, from and until."""
    cause: str = ""
    losses: list[float] = field(default_factory=list)
    """When members have gone, taken by others than a scheduler."""
    last_bound: float = 0.0
    size: int = 0
    following: "Life | None" = None

    @property
    def waves(self) -> "tuple[Life, ...]":
        """Return this run, and the one that follows it already."""
        return (self,) if self.following is None else (self, self.following)


@dataclass(slots=True)
class Lives:
    """The lives of all gangs, as the pods of ``books`` tell them."""

    books: Books
    clock: Callable[[], float]
    _lives: dict[GangSpec, Life] = field(default_factory=dict)
    _ended: dict[GangSpec, tuple[Life, float]] = field(default_factory=dict)
    _losses: dict[GangSpec, list[float]] = field(default_factory=dict)

    def of(self, spec: GangSpec) -> Life:
        """The life of a gang."""
        return self._lives.setdefault(spec, Life())

    def promise(self, spec: GangSpec, who: str, decided: float) -> int:
        """What was promised those of a gang that are bound, or were as far as ``who`` had been told that ``decided`` then."""
        lives = (self.of(spec), self._ended.get(spec, (Life(), 0.0))[0])
        known = [uid_of(pod) for pod in self.books.known_members(spec, who, decided)]
        return max(lives[0].promise, *(life.promises.get(uid, 0) for life in lives for uid in known), 0)

    def lose(self, spec: GangSpec) -> None:
        """A member is about to go, taken by others than a scheduler."""
        if self.bound(spec):
            self.of(spec).losses.append(self.clock())
            self._losses.setdefault(spec, []).append(self.clock())

    def losses_since(self, spec: GangSpec, when: float) -> int:
        """How many members have gone since ``when``, in whatever life."""
        return sum(at >= when for at in self._losses.get(spec, ()))

    def alive(self, spec: GangSpec) -> list[Body]:
        """The members that are here to stay."""
        return [pod for pod in self.books.members(spec) if is_alive(pod)]

    def bound(self, spec: GangSpec) -> list[Body]:
        """Those of them that have a node."""
        return [pod for pod in self.alive(spec) if node_of(pod)]

    def candidates(self, spec: GangSpec) -> list[Body]:
        """Those of them that may be bound."""
        return [pod for pod in self.alive(spec) if not node_of(pod) and not is_gated(pod)]

    def succeeded(self, spec: GangSpec, life: Life | None = None) -> int:
        """Members that have succeeded in the run that is going on, or in ``life``."""
        return len(self._succeeded(spec) & (life or self.of(spec)).seated.keys()) if self.bound(spec) else 0

    def _succeeded(self, spec: GangSpec) -> set[str]:
        """Return the members that have succeeded, those among them that were deleted since."""
        ended = self._ended[spec][0].waves if spec in self._ended else ()
        seated = (pod for life in (*self.of(spec).waves, *ended) for pod in life.seated.values())
        return {uid_of(pod) for pod in (*self.books.members(spec), *seated) if phase_of(pod) == "Succeeded"}

    def lost(self, spec: GangSpec) -> int:
        """Return how many members of the run that is going on are neither alive nor have succeeded, and haven't been replaced."""
        life = self.of(spec)
        return life.size - self.succeeded(spec) - len(self._bound_with(spec, None).keys() & life.seated.keys())

    def replaceable(self, spec: GangSpec) -> int:
        """Return how many members may be replaced of a run that was whole, of which some have succeeded and nobody is bound any more."""
        if spec.kind not in ("job", "operated") or self.of(spec).seated or spec not in self._ended:
            return 0
        ended, _ = self._ended[spec]
        succeeded = len(self._succeeded(spec) & ended.seated.keys())
        return ended.size - succeeded if ended.was_whole and succeeded else 0

    def _bound_with(self, spec: GangSpec, back: Body | None) -> dict[str, Body]:
        """The members that are bound, by UID; ``back`` is taken to be bound still."""
        return {uid_of(pod): pod for pod in (*self.bound(spec), *([back] if back else ()))}

    def missing(self, spec: GangSpec, back: Body | None = None) -> int:
        """Members missing of the present minimum, or of the role that has one of its own; ``back`` is taken to be bound still."""
        return max(self._short(spec, self.books.minimum(spec) or 0, life, back) for life in self.of(spec).waves) or self.lacking(spec, back)

    def _short(self, spec: GangSpec, minimum: int, life: Life, back: Body | None) -> int:
        """Return how many members one run lacks of a minimum: never more than its Jobs will still make."""
        here = self._bound_with(spec, back)
        mine = here if life.following is None and life is self.of(spec) else {uid: pod for uid, pod in here.items() if uid in life.seated}
        asked = min(minimum - self.succeeded(spec, life), self.books.still_made(spec, len(here) - len(mine)))
        return max(0, asked - len(mine))

    def lacking(self, spec: GangSpec, back: Body | None = None) -> int:
        """Members that the role with a minimum of its own lacks; ``back`` as above."""
        if not spec.least:
            return 0
        here = self._bound_with(spec, back)
        if here:
            seated = self.of(spec).seated.keys()
            here |= {uid_of(pod): pod for pod in self.books.members(spec) if phase_of(pod) == "Succeeded" and uid_of(pod) in seated}
        return max(0, spec.least - sum(role_of(pod) == spec.roles[-1].name for pod in here.values()))

    def has_pods(self, spec: GangSpec) -> bool:
        """Whether there are pods for all that a gang is missing."""
        waiting, role = self.candidates(spec), spec.roles[-1].name
        return len(waiting) >= self.missing(spec) and sum(role_of(pod) == role for pod in waiting) >= self.lacking(spec)

    def fits(self, spec: GangSpec, free: Mapping[str, Amounts], missing: int | None = None) -> bool:
        """Whether what a gang is missing certainly fits: where a role has a minimum of its own, with everybody who waits."""
        needed = len(self.candidates(spec)) if spec.least else self.missing(spec) if missing is None else missing
        return self.placeable(spec, free, needed) >= needed

    def placeable(self, spec: GangSpec, free: Mapping[str, Amounts], enough: int) -> int:
        """Return how many of those who wait certainly fit at once, or ``enough``; those who must share a rack in one."""
        waiting, found = self.candidates(spec), 0
        racks = {group: self._racks_for(spec, group) for group in sorted({rack_group(spec, pod) for pod in waiting})}
        for chosen in itertools.product(*racks.values()):
            rack = dict(zip(racks, chosen, strict=True))
            pods = [confined(pod, rack[rack_group(spec, pod)]) for pod in waiting] if spec.shares_rack else waiting
            found = max(found, most_placeable(pods, self.books.nodes, free, enough))
            if found >= enough or not spec.shares_rack:
                break
        return found

    def _racks_for(self, spec: GangSpec, group: str) -> list[str]:
        """Return the racks to which those may go who must share one."""
        nodes, life = self.books.nodes, self.of(spec)
        bound = [*self.bound(spec), *(life.seated[uid] for uid in life.released if uid in life.seated)]
        taken = {rack_of(nodes.get(node_of(pod))) for pod in bound if rack_group(spec, pod) == group} - {""}
        return sorted(taken or {rack_of(node) for node in nodes.values()})

    def owed(self, spec: GangSpec, back: Body | None = None) -> int:
        """Members missing of what was promised those that are bound, or of the present minimum if that is less; ``back`` as above."""
        bound = self._bound_with(spec, back)
        if not bound:
            return 0
        minimum, owed = self.books.minimum(spec), 0
        for life in self.of(spec).waves:
            promise = life.promise if minimum is None else min(life.promise, max(minimum, spec.least))
            owed = max(owed, self._short(spec, promise, life, back))
        return max(owed, self.lacking(spec, back)) if spec.least <= self.of(spec).promise else owed

    def follow(self, spec: GangSpec, pod: Body, *, is_bound_now: bool, decided: float) -> None:
        """A pod of a gang has changed, by what was so when it was ``decided``."""
        life, now = self.of(spec), self.clock()
        if is_bound_now:
            before, ended = self._ended.get(spec, (life, -1.0))
            if not life.seated and (ended >= decided - HEEDED_SECONDS or self.replaceable(spec) > 0):
                life = self._lives[spec] = before  # it was sent when the run before went on, or replaces a member, and belongs to that
            if self._follows(spec, life, pod):
                life.following = life.following or Life()
                life = life.following
            if not life.seated:
                life.began = now
            life.seated[uid_of(pod)] = pod
            life.last_bound = now
            minima = self.books.minima_since(spec, decided - NEWS_SECONDS)
            stated = [minimum for minimum in minima if minimum is not None] or self.books.last_minimum(spec)
            if None in minima and life.promise:
                stated.append(life.promise)  # nobody says any more how many they are, but what was promised to those who are there
            life.promises[uid_of(pod)] = max(spec.least, min(stated, default=0))
        for each in life.waves:
            if uid_of(pod) in each.seated:
                each.seated[uid_of(pod)] = pod
        self.weigh(spec)

    def _follows(self, spec: GangSpec, life: Life, pod: Body) -> bool:
        """Return whether a Job's pod that is bound now is of its next wave, and doesn't replace a member that was lost."""
        is_later = bool(life.seated) and self.books.born.get(uid_of(pod), 0.0) > life.began
        return spec.kind == "job" and is_later and self.succeeded(spec) > 0 and self.lost(spec) <= 0

    def weigh(self, spec: GangSpec) -> None:
        """See anew whether a gang is whole, open or absent."""
        life, bound = self.of(spec), {uid_of(pod) for pod in self.bound(spec)}
        if not bound:
            if life.seated:
                self._ended[spec] = replace(life, open_since=None, cause=""), self.clock()
            self._lives[spec] = Life()
            return
        if life.following is not None and not bound & life.seated.keys():
            life = self._lives[spec] = replace(life.following, open_since=life.open_since, cause=life.cause, losses=life.losses)
        succeeded = self._succeeded(spec)
        for wave in life.waves:
            wave.size = max(wave.size, len((bound | succeeded) & wave.seated.keys()))
            wave.promise = max((wave.promises.get(uid, 0) for uid in bound), default=0)
        owed = self.owed(spec)
        for wave in life.waves:
            # Whom a kubelet rejected in the same moment was bound all the same.
            if (not owed and not self.missing(spec)) or len(wave.seated.keys() - wave.released) >= wave.promise > 0:
                if not wave.was_whole:
                    wave.whole_since = self.clock()
                wave.was_whole = True
        now, (since, until) = self.clock(), life.was_open
        if not owed:
            life.was_open = life.was_open if life.open_since is None else (life.open_since, now)
            life.open_since, life.cause = None, ""
        elif life.open_since is None:
            life.open_since = since if now - until < MOMENT_SECONDS else now

    def undone_at(self, spec: GangSpec) -> float:
        """When the last member was gone of a gang that was released, the last time; 0 if it never was."""
        life, at = self._ended.get(spec, (Life(), 0.0))
        return at if life.released else 0.0

    def empty_since(self, spec: GangSpec) -> float:
        """Since when nobody of a gang is bound; for ever yet to come if somebody is."""
        return math.inf if self.bound(spec) else self._ended.get(spec, (Life(), 0.0))[1]

    def goes_before(self, one: GangSpec, other: GangSpec) -> bool:
        """Whether a gang is served before another: by priority, then by age in seconds, then by name."""
        places = [(-spec.priority, self._began(spec), spec.base) for spec in (one, other)]
        return places[0] < places[1]

    def _began(self, spec: GangSpec) -> int:
        """Since when there are pods of a gang, or its PodGroup, in seconds."""
        group = self.books.get("podgroups", spec.namespace, spec.name)
        return min(int(self.books.born[uid_of(each)]) for each in (*self.alive(spec), *([group] if group else ())))

    def may_look_whole(self, spec: GangSpec, leading: float | None) -> bool:
        """Whether who schedules, ``leading`` since then, can't tell any more that the gang was never whole.

        Members went before it was there to see it, and those made since may have replaced bound ones.
        """
        life = self.of(spec)
        if leading is not None and not any(at < leading for at in life.losses):
            return False
        newer = sum(1 for pod in self.candidates(spec) if self.books.born[uid_of(pod)] > life.last_bound)
        return len(life.seated) + newer >= life.promise or len(self.alive(spec)) < life.promise
