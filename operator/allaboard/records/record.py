"""All that is remembered of gangs: one ``Case`` for each, and one ``forget``.

Nothing is decided here. Each part of a case is written by one room: the turn by the queue, the half by what looks after half gangs, what
was told by those who tell. What the cluster itself says of a gang is in ``model.gang.Gang``, which is made anew at each look.
"""

import asyncio
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.records.report_state import Told
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import Lacks, Need

_MOST_WHOLE_RUNS = 64
"""Runs of one gang that are remembered to have been whole."""


@dataclass(frozen=True, slots=True)
class LastBind:
    """When pods of one controller were last bound in a gang, on the clock.

    ``living`` is how many of them had a node then and lived, ``succeeded`` and ``failed`` how many could be seen to have ended so, and
    ``losses`` how often in a row members had been lost soon after they were bound.
    """

    at: float
    living: int
    succeeded: int
    failed: int
    losses: int


@dataclass(slots=True)
class Turn:
    """Of a gang's way through the queue: its failures, its pauses, and who went before it. Times are on the clock."""

    attempts: int = 0
    """Failed ones in a row."""
    not_before: float = 0.0
    is_firm: bool = False
    """Whether nothing cuts its pause short."""
    lacks: Lacks | None = None
    """What it waits for, if it does."""
    need: Need | None = None
    """The seats it needs, while it waits for them in the lobby; then it is due as soon as there are so many."""
    rings_at: float | None = None
    has_looked_again: bool = False
    tentative: tuple[int, float] | None = None
    """Of one who was refused by promises: its failures before that, and when it was."""
    looked: tuple[float, int] | None = None
    """When the gang was last looked at, and how many changes of the cluster had been counted by then."""
    told_of: float | None = None
    """The time of the look that its message is from; ``None`` unless that is a refusal, which other gangs may make untrue."""
    overtaken: tuple[int, float] = (0, 0.0)
    """How often, and since when."""
    passed: int = 0


@dataclass(slots=True)
class Half:
    """Of a gang that is, or was, half bound: how far it has come, and to whom it gives its seats. Times are on the clock."""

    deadline: float | None = None
    """Until when it is finished; ``None`` when it isn't being finished."""
    is_renewed: bool = False
    """Whether its deadline was put off once."""
    is_kept_open: bool = False
    """Whether nobody of it may be released."""
    expires: float | None = None
    """When its own time-out has passed."""
    restarts_at: float = -math.inf
    """When it may be released again."""
    was_tried: bool = False
    """Whether an attempt at it has failed since its time was over."""
    made_way_for: GangKey | None = None
    released: Sequence[Pod] = ()
    """Who of it was, and may be leaving still."""
    released_until: float = -math.inf
    asked_until: float = -math.inf
    """Until when it is waited for whether it goes: it is being released."""
    unasked_until: float = -math.inf
    """Until when others are asked for their seats, since it could not be released."""

    @property
    def is_finishing(self) -> bool:
        """Whether the missing members are bound around the others, before anybody else."""
        return self.deadline is not None

    def is_overdue(self, now: float) -> bool:
        """Whether the few seconds are over in which it is finished."""
        return self.deadline is not None and now >= self.deadline

    def has_timed_out(self, now: float) -> bool:
        """Whether it has been half bound for as long as its ``scheduleTimeoutSeconds``."""
        return self.expires is not None and self.expires <= now

    def is_going(self, now: float) -> bool:
        """Whether it is being released, or was just now."""
        return max(self.asked_until, self.released_until) > now


@dataclass(slots=True)
class Advice:
    """What would help: for which refusal it is known, and for which it is still to be found."""

    known_for: str = ""
    text: str = ""
    wanted_for: str = ""
    found_at: float = math.inf
    """When it was found, on the clock; infinite before that."""


@dataclass(slots=True)
class Case:
    """All that is remembered of one gang."""

    key: GangKey
    turn: Turn = field(default_factory=Turn)
    last_binds: dict[str, LastBind] = field(default_factory=dict)
    """By controller, the oldest first (``losses``)."""
    half: Half | None = None
    was_undone: bool = False
    whole_runs: set[str] = field(default_factory=set)
    """The runs that have been whole, or of which that can't be told."""
    lacks_of_passed: Lacks | None = None
    """What runs of it lack that were refused, and passed over, before the run whose turn it is."""
    held: Mapping[str, int] | None = None
    """What its members asked for in all, by resource, when it was whole last."""
    is_inherited: bool = False
    """Whether it was there before us, and hasn't been looked at."""
    short_since: float | None = None
    """Since when fewer replacements exist than the gang has lost members, on the clock; None while it isn't short of them."""
    is_given_grace: bool = False
    """Whether it has been waited for its PodGroup once."""
    task: asyncio.Task[None] | None = None
    """What is being done about it beside the cycle."""
    is_passed_over: bool = False
    """Whether it was due meanwhile."""
    long_search: Order | None = None
    """Its place in the queue when it came into the line for long searches, if it is in that."""
    advice: Advice = field(default_factory=Advice)
    told: Told = field(default_factory=Told)

    def note_whole(self, gang: Gang) -> bool:
        """Note that the run of ``gang`` has been whole; returns whether that is news. Of too many runs the later ones aren't noted."""
        if gang.run in self.whole_runs:
            return False
        if len(self.whole_runs) >= _MOST_WHOLE_RUNS:
            self.whole_runs &= {pod.transaction for pod in gang.everybody}
        is_news = len(self.whole_runs) < _MOST_WHOLE_RUNS
        if is_news:
            self.whole_runs.add(gang.run)
        return is_news


class Docket:
    """The cases, by gang; those with a half are also found by themselves, since there are few of them."""

    def __init__(self) -> None:
        self._cases: dict[GangKey, Case] = {}
        self._halves: dict[GangKey, Half] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(list(self._cases.values()))

    def case(self, key: GangKey) -> Case:
        """The case of a gang, which begins if there is none."""
        case = self._cases.get(key)
        if case is None:
            case = self._cases[key] = Case(key)
        return case

    def find(self, key: GangKey) -> Case | None:
        """The case of a gang, if there is one."""
        return self._cases.get(key)

    def knows_whole(self, key: GangKey, run: str) -> bool:
        """Return whether a run of a gang is known to have been whole."""
        case = self._cases.get(key)
        return case is not None and run in case.whole_runs

    def told(self, key: GangKey) -> Told:
        """What was told of a gang, whose case begins if there is none."""
        return self.case(key).told

    def find_told(self, key: GangKey) -> Told | None:
        """What was told of a gang, if it has a case."""
        case = self._cases.get(key)
        return case.told if case else None

    def all_told(self) -> Iterator[tuple[GangKey, Told]]:
        """What was told, by gang."""
        return ((case.key, case.told) for case in self)

    def half(self, key: GangKey) -> Half:
        """What is remembered of a half gang, which begins if there is nothing."""
        case = self.case(key)
        if case.half is None:
            case.half = self._halves[key] = Half()
        return case.half

    def find_half(self, key: GangKey) -> Half | None:
        """What is remembered of a half gang, if there is anything."""
        return self._halves.get(key)

    def halves(self) -> Collection[tuple[GangKey, Half]]:
        """Each gang of which there is a half."""
        return self._halves.items()

    def forget(self, key: GangKey) -> None:
        """The gang is gone."""
        self._cases.pop(key, None)
        self._halves.pop(key, None)
