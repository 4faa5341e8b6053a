"""What each gang has been through, told from its pods alone."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.gangs import GangSpec

from .books import Books
from .facts import Body, is_alive, is_gated, node_of, phase_of, uid_of

_NEWS_SECONDS = 3.0
"""By when a scheduler has heard of an edit; until then it may go by what was so before."""


@dataclass(slots=True)
class Life:
    """One gang since somebody of it was first bound. A *run* ends when nobody of it is bound any more.

    ``promise`` is the minimum at its last commit; ``seated`` are all that were bound in the run, those that are gone too.
    """

    began: float = 0.0
    promise: int = 0
    seated: dict[str, Body] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    was_whole: bool = False
    open_since: float | None = None
    cause: str = ""
    is_refused: bool = False
    """Whether a member was refused for good since the gang is open."""
    lost_unseen: int = 0
    """Members that have gone while no scheduler was there to see it."""
    last_bound: float = 0.0


@dataclass(slots=True)
class Lives:
    """The lives of all gangs, as the pods of ``books`` tell them."""

    books: Books
    clock: Callable[[], float]
    _lives: dict[GangSpec, Life] = field(default_factory=dict)

    def of(self, spec: GangSpec) -> Life:
        """The life of a gang."""
        return self._lives.setdefault(spec, Life())

    def alive(self, spec: GangSpec) -> list[Body]:
        """The members that are here to stay."""
        return [pod for pod in self.books.members(spec) if is_alive(pod)]

    def bound(self, spec: GangSpec) -> list[Body]:
        """Those of them that have a node."""
        return [pod for pod in self.alive(spec) if node_of(pod)]

    def candidates(self, spec: GangSpec) -> list[Body]:
        """Those of them that may be bound."""
        return [pod for pod in self.alive(spec) if not node_of(pod) and not is_gated(pod)]

    def succeeded(self, spec: GangSpec) -> int:
        """Members that have succeeded in the run that is going on."""
        ended = {uid_of(pod) for pod in self.books.members(spec) if phase_of(pod) == "Succeeded"}
        return len(ended & self.of(spec).seated.keys()) if self.bound(spec) else 0

    def missing(self, spec: GangSpec) -> int:
        """Members missing of the present minimum."""
        return max(0, (self.books.minimum(spec) or 0) - self.succeeded(spec) - len(self.bound(spec)))

    def owed(self, spec: GangSpec) -> int:
        """Members missing of what was promised those that are bound, or of the present minimum if that is less."""
        bound = self.bound(spec)
        if not bound:
            return 0
        promise, minimum = self.of(spec).promise, self.books.minimum(spec)
        return max(0, (promise if minimum is None else min(promise, minimum)) - self.succeeded(spec) - len(bound))

    def follow(self, spec: GangSpec, pod: Body, *, is_bound_now: bool) -> None:
        """A pod of a gang has changed."""
        life, now = self.of(spec), self.clock()
        if is_bound_now:
            if not life.seated:
                life.began = now
            life.seated[uid_of(pod)] = pod
            life.last_bound = now
            stated = [minimum for minimum in self.books.minima_since(spec, now - _NEWS_SECONDS) if minimum is not None]
            life.promise = max(life.promise, min(stated, default=0))
        elif uid_of(pod) in life.seated:
            life.seated[uid_of(pod)] = pod
        self.weigh(spec)

    def weigh(self, spec: GangSpec) -> None:
        """See anew whether a gang is whole, open or absent."""
        life = self.of(spec)
        if not self.bound(spec):
            self._lives[spec] = Life()
            return
        owed = self.owed(spec)
        # Whom a kubelet rejected in the same moment was bound all the same.
        if (not owed and not self.missing(spec)) or len(life.seated.keys() - life.released) >= life.promise > 0:
            life.was_whole = True
        if not owed:
            life.open_since, life.cause, life.is_refused = None, "", False
        elif life.open_since is None:
            life.open_since = self.clock()

    def may_look_whole(self, spec: GangSpec) -> bool:
        """Whether nobody who comes later could tell that the gang was never whole.

        Members went while no scheduler saw it, and those made since may have replaced bound ones.
        """
        life = self.of(spec)
        if not life.lost_unseen:
            return False
        newer = sum(1 for pod in self.candidates(spec) if self.books.born[uid_of(pod)] > life.last_bound)
        return len(life.seated) + newer >= life.promise or len(self.alive(spec)) < life.promise
