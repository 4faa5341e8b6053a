"""Derives the history of each gang from its pods alone: its runs, and when it was whole or partially bound."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tests.faults.gangs import GangSpec

from .books import HEEDED_SECONDS, NEWS_SECONDS, Books
from .facts import Amounts, Body, confined, is_alive, is_gated, most_placeable, node_of, phase_of, rack_of, role_of, uid_of

MOMENT_SECONDS = 0.3
"""Seconds. A gang that is whole for less doesn't count as having been whole.

A scheduler may never see such a gang whole: its last bind was in flight, or a kubelet rejected the pod at once.
"""


def rack_group(spec: GangSpec, pod: Body) -> str:
    """Return what the pods that must share a rack have in common: the gang if its PodGroup asks for the rack, else the role.

    In a gang with segments it is the segment, by the number in the pod's name.
    """
    if spec.segment:
        return str(int(str(pod["metadata"]["name"]).rpartition("-")[2]) // spec.segment)
    return "" if spec.has_group else role_of(pod)


@dataclass(slots=True)
class Life:
    """One run of a gang, from its first bind until no member is bound.

    - ``stamped_minima`` has the minimum at whose commit each member was bound, by the member's UID.
    - ``stamped_minimum`` is the largest of these minimums among the bound members.
    - ``ever_bound`` are all pods that were bound in the run, by UID; pods that are gone are among them.
    - ``size`` is the most members that were alive or had succeeded at once.
    - ``next_wave`` is a Job's next wave, if it has begun while members of this wave are alive.
    """

    began: float = 0.0
    stamped_minimum: int = 0
    stamped_minima: dict[str, int] = field(default_factory=dict)
    ever_bound: dict[str, Body] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    was_whole: bool = False
    whole_since: float = 0.0
    open_since: float | None = None
    was_open: tuple[float, float] = (0.0, -math.inf)
    """The beginning and the end of the last time before now in which the gang was partially bound."""
    cause: str = ""
    losses: list[float] = field(default_factory=list)
    """When members have gone that no scheduler released."""
    last_bound: float = 0.0
    size: int = 0
    next_wave: "Life | None" = None

    @property
    def waves(self) -> "tuple[Life, ...]":
        """This run, and the next wave if it has begun."""
        return (self,) if self.next_wave is None else (self, self.next_wave)


@dataclass(slots=True)
class Lives:
    """The present and the last run of each gang, derived from the pods of ``books``."""

    books: Books
    clock: Callable[[], float]
    _lives: dict[GangSpec, Life] = field(default_factory=dict)
    _ended: dict[GangSpec, tuple[Life, float]] = field(default_factory=dict)
    _losses: dict[GangSpec, list[float]] = field(default_factory=dict)

    def of(self, spec: GangSpec) -> Life:
        """Return the present run of a gang."""
        return self._lives.setdefault(spec, Life())

    def stamped_minimum(self, spec: GangSpec, process: str, decided: float) -> int:
        """Return the stamped minimum of a gang.

        It counts members that are bound, or that were bound as far as ``process`` had received by ``decided``.
        """
        lives = (self.of(spec), self._ended.get(spec, (Life(), 0.0))[0])
        known = [uid_of(pod) for pod in self.books.known_members(spec, process, decided)]
        return max(lives[0].stamped_minimum, *(life.stamped_minima.get(uid, 0) for life in lives for uid in known), 0)

    def lose(self, spec: GangSpec, back: Body | None = None) -> None:
        """Record that a member is about to go, and that no scheduler releases it; the pod ``back`` counts as still bound."""
        if self._bound_with(spec, back):
            self.of(spec).losses.append(self.clock())
            self._losses.setdefault(spec, []).append(self.clock())

    def losses_since(self, spec: GangSpec, when: float) -> int:
        """Return how many members have gone since ``when``, of any run."""
        return sum(at >= when for at in self._losses.get(spec, ()))

    def alive(self, spec: GangSpec) -> list[Body]:
        """Return the members that are neither terminating nor ended."""
        return [pod for pod in self.books.members(spec) if is_alive(pod)]

    def bound(self, spec: GangSpec) -> list[Body]:
        """Return the living members that have a node."""
        return [pod for pod in self.alive(spec) if node_of(pod)]

    def candidates(self, spec: GangSpec) -> list[Body]:
        """Return the living members that may be bound."""
        return [pod for pod in self.alive(spec) if not node_of(pod) and not is_gated(pod)]

    def succeeded(self, spec: GangSpec, life: Life | None = None) -> int:
        """Return how many members have succeeded in the present run, or in ``life``."""
        return len(self._succeeded(spec) & (life or self.of(spec)).ever_bound.keys()) if self.bound(spec) else 0

    def _succeeded(self, spec: GangSpec) -> set[str]:
        """Return the UIDs of members that have succeeded; those deleted since are among them."""
        ended = self._ended[spec][0].waves if spec in self._ended else ()
        ever_bound = (pod for life in (*self.of(spec).waves, *ended) for pod in life.ever_bound.values())
        return {uid_of(pod) for pod in (*self.books.members(spec), *ever_bound) if phase_of(pod) == "Succeeded"}

    def lost(self, spec: GangSpec) -> int:
        """Return how many members of the present run are gone or have failed, and haven't been replaced."""
        life = self.of(spec)
        return life.size - self.succeeded(spec) - len(self._bound_with(spec, None).keys() & life.ever_bound.keys())

    def replaceable(self, spec: GangSpec) -> int:
        """Return how many lost members of the last run may be replaced, while no member is bound.

        Only a run of Jobs or of a job operator that was whole counts, if some of its members have succeeded.
        """
        succeeded = self.succeeded_before(spec)
        return self._ended[spec][0].size - succeeded if succeeded else 0

    def succeeded_before(self, spec: GangSpec) -> int:
        """Return how many members of the last run have succeeded; 0 unless waiting pods may replace its lost members."""
        if spec.kind not in ("job", "operated") or self.of(spec).ever_bound or spec not in self._ended:
            return 0
        ended, _ = self._ended[spec]
        return len(self._succeeded(spec) & ended.ever_bound.keys()) if ended.was_whole else 0

    def _bound_with(self, spec: GangSpec, back: Body | None) -> dict[str, Body]:
        """Return the bound members by UID; the pod ``back`` counts as still bound."""
        return {uid_of(pod): pod for pod in (*self.bound(spec), *([back] if back else ()))}

    def missing(self, spec: GangSpec, back: Body | None = None) -> int:
        """Return how many members are missing of the present minimum, or of the role that has a minimum of its own.

        The pod ``back`` counts as still bound.
        """
        return max(self._short(spec, self.books.minimum(spec) or 0, life, back) for life in self.of(spec).waves) or self.lacking(spec, back)

    def _short(self, spec: GangSpec, minimum: int, life: Life, back: Body | None) -> int:
        """Return how many members one run lacks of a minimum, but never more than its Jobs will still make."""
        here = self._bound_with(spec, back)
        mine = (
            here if life.next_wave is None and life is self.of(spec) else {uid: pod for uid, pod in here.items() if uid in life.ever_bound}
        )
        asked = min(minimum - self.succeeded(spec, life), self.books.still_made(spec, len(here) - len(mine)))
        return max(0, asked - len(mine))

    def lacking(self, spec: GangSpec, back: Body | None = None) -> int:
        """Return how many members the role with a minimum of its own lacks; the pod ``back`` counts as still bound."""
        if not spec.least:
            return 0
        here = self._bound_with(spec, back)
        if here:
            ever_bound = self.of(spec).ever_bound.keys()
            here |= {uid_of(pod): pod for pod in self.books.members(spec) if phase_of(pod) == "Succeeded" and uid_of(pod) in ever_bound}
        return max(0, spec.least - sum(role_of(pod) == spec.roles[-1].name for pod in here.values()))

    def has_pods(self, spec: GangSpec) -> bool:
        """Return whether there are pods for all missing members."""
        waiting, role = self.candidates(spec), spec.roles[-1].name
        return len(waiting) >= self.missing(spec) and sum(role_of(pod) == role for pod in waiting) >= self.lacking(spec)

    def fits(self, spec: GangSpec, free: Mapping[str, Amounts], missing: int | None = None) -> bool:
        """Return whether the missing members certainly fit. Where a role has a minimum of its own, all waiting members must fit."""
        needed = len(self.candidates(spec)) if spec.least else self.missing(spec) if missing is None else missing
        return self.placeable(spec, free, needed) >= needed

    def placeable(self, spec: GangSpec, free: Mapping[str, Amounts], enough: int) -> int:
        """Return how many waiting members certainly fit at once, at most ``enough``. Members that must share a rack get one rack."""
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
        """Return the racks that are possible for the members of ``group``, which must share one."""
        nodes, life = self.books.nodes, self.of(spec)
        bound = [*self.bound(spec), *(life.ever_bound[uid] for uid in life.released if uid in life.ever_bound)]
        taken = {rack_of(nodes.get(node_of(pod))) for pod in bound if rack_group(spec, pod) == group} - {""}
        return sorted(taken or {rack_of(node) for node in nodes.values()})

    def missing_of_stamped(self, spec: GangSpec, back: Body | None = None) -> int:
        """Return how many members are missing of the stamped minimum, or of the present minimum if that is less.

        Returns 0 if no member is bound. The pod ``back`` counts as still bound.
        """
        bound = self._bound_with(spec, back)
        if not bound:
            return 0
        minimum, missing_of_stamped = self.books.minimum(spec), 0
        for life in self.of(spec).waves:
            stamped_minimum = life.stamped_minimum if minimum is None else min(life.stamped_minimum, max(minimum, spec.least))
            missing_of_stamped = max(missing_of_stamped, self._short(spec, stamped_minimum, life, back))
        return max(missing_of_stamped, self.lacking(spec, back)) if spec.least <= self.of(spec).stamped_minimum else missing_of_stamped

    def note_change(self, spec: GangSpec, pod: Body, *, is_bound_now: bool, decided: float) -> None:
        """Update the run of a gang whose pod has changed. ``decided`` is when the writer's decision was made."""
        life, now = self.of(spec), self.clock()
        if is_bound_now:
            before, ended = self._ended.get(spec, (life, -1.0))
            if not life.ever_bound and (ended >= decided - HEEDED_SECONDS or self.replaceable(spec) > 0):
                life = self._lives[spec] = (
                    before  # the bind was sent while the last run went on, or replaces one of its members, and belongs to that run
                )
            if self._is_next_wave(spec, life, pod):
                life.next_wave = life.next_wave or Life()
                life = life.next_wave
            if not life.ever_bound:
                life.began = now
            life.ever_bound[uid_of(pod)] = pod
            life.last_bound = now
            minima = self.books.minima_since(spec, decided - NEWS_SECONDS)
            stated = [minimum for minimum in minima if minimum is not None] or self.books.last_minimum(spec)
            if None in minima and life.stamped_minimum:
                stated.append(life.stamped_minimum)  # no object states a minimum, so the stamped one goes on
            life.stamped_minima[uid_of(pod)] = max(spec.least, min(stated, default=0))
        for each in life.waves:
            if uid_of(pod) in each.ever_bound:
                each.ever_bound[uid_of(pod)] = pod
        self.update(spec)

    def _is_next_wave(self, spec: GangSpec, life: Life, pod: Body) -> bool:
        """Return whether a Job's pod that is bound now belongs to the next wave, and doesn't replace a lost member."""
        is_later = bool(life.ever_bound) and self.books.created_at.get(uid_of(pod), 0.0) > life.began
        return spec.kind == "job" and is_later and self.succeeded(spec) > 0 and self.lost(spec) <= 0

    def update(self, spec: GangSpec) -> None:
        """Update whether a gang is whole, partially bound or absent."""
        life, bound = self.of(spec), {uid_of(pod) for pod in self.bound(spec)}
        if not bound:
            if life.ever_bound:
                self._ended[spec] = replace(life, open_since=None, cause=""), self.clock()
            self._lives[spec] = Life()
            return
        if life.next_wave is not None and not bound & life.ever_bound.keys():
            life = self._lives[spec] = replace(life.next_wave, open_since=life.open_since, cause=life.cause, losses=life.losses)
        succeeded = self._succeeded(spec)
        for wave in life.waves:
            wave.size = max(wave.size, len((bound | succeeded) & wave.ever_bound.keys()))
            wave.stamped_minimum = max((wave.stamped_minima.get(uid, 0) for uid in bound), default=0)
        missing_of_stamped = self.missing_of_stamped(spec)
        for wave in life.waves:
            # A pod that a kubelet rejected in the same moment was bound as well.
            if (not missing_of_stamped and not self.missing(spec)) or len(
                wave.ever_bound.keys() - wave.released
            ) >= wave.stamped_minimum > 0:
                if not wave.was_whole:
                    wave.whole_since = self.clock()
                wave.was_whole = True
        now, (since, until) = self.clock(), life.was_open
        if not missing_of_stamped:
            life.was_open = life.was_open if life.open_since is None else (life.open_since, now)
            life.open_since, life.cause = None, ""
        elif life.open_since is None:
            life.open_since = since if now - until < MOMENT_SECONDS else now

    def released_at(self, spec: GangSpec) -> float:
        """Return when the last member of a released run was gone; 0 if the last run wasn't released."""
        life, at = self._ended.get(spec, (Life(), 0.0))
        return at if life.released else 0.0

    def empty_since(self, spec: GangSpec) -> float:
        """Return when the last bound member was gone; infinity while a member is bound."""
        return math.inf if self.bound(spec) else self._ended.get(spec, (Life(), 0.0))[1]

    def ranks_before(self, one: GangSpec, other: GangSpec) -> bool:
        """Return whether gang ``one`` ranks before ``other``: by priority, then by age in whole seconds, then by name."""
        places = [(-spec.priority, self._created(spec), spec.base) for spec in (one, other)]
        return places[0] < places[1]

    def _created(self, spec: GangSpec) -> int:
        """Return when the oldest pod of a gang, or its PodGroup, was created, in whole seconds."""
        group = self.books.get("podgroups", spec.namespace, spec.name)
        return min(int(self.books.created_at[uid_of(each)]) for each in (*self.alive(spec), *([group] if group else ())))

    def may_look_whole(self, spec: GangSpec, leading: float | None) -> bool:
        """Return whether the present scheduler, which leads since ``leading``, can't know that the gang was never whole.

        That is so if members went before that time, and pods created since may have replaced bound ones.
        """
        life = self.of(spec)
        if leading is not None and not any(at < leading for at in life.losses):
            return False
        newer = sum(1 for pod in self.candidates(spec) if self.books.created_at[uid_of(pod)] > life.last_bound)
        return len(life.ever_bound) + newer >= life.stamped_minimum or len(self.alive(spec)) < life.stamped_minimum
