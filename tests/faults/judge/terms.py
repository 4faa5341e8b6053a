"""Which process leads, by the Lease as the API server has it; and that nobody else changes anything."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .books import STOP_SECONDS, Books
from .entries import Request
from .facts import Body, name_of, uid_of

_CHANGES = ("bind", "evict", "delete")
_WRITES = (*_CHANGES, "create", "update", "patch")


_RELEASE_SECONDS = 15.0
_TAKEOVER_SECONDS = 6.0
"""So long after it has run out somebody else holds the Lease: they look every two seconds."""


@dataclass(slots=True)
class Terms:
    """Follows the election. Without a Lease everybody may write."""

    books: Books
    accuse: Callable[[str, str], None]
    leader: str = ""
    since: float = 0.0
    acted: float | None = None
    """When the present leader has first bound or released somebody."""
    alive: dict[str, float] = field(default_factory=dict)
    """The processes that run, and since when."""
    _holder: str = ""
    _written: float = 0.0
    _duration: float = 0.0
    _identities: dict[str, str] = field(default_factory=dict)

    def lease_written(self, request: Request | None, lease: Body) -> None:
        """The Lease has changed."""
        if request is None:
            return  # a node's
        spec = lease.get("spec") or {}
        holder = self._holder = str(spec.get("holderIdentity") or "")
        self._written, self._duration = self.books.clock(), float(spec.get("leaseDurationSeconds") or 0)
        if not holder:
            self._given_back(request)
        if holder and holder not in self._identities:
            self._identities[holder] = request.who
        leader = self._identities.get(holder, "")
        if leader and leader != self.leader:
            self.leader, self.since, self.acted = leader, self.books.clock(), None

    def stopped(self, who: str) -> None:
        """A process has ended in peace, and so gives the Lease back."""
        is_holder = self._identities.get(self._holder) == who
        if is_holder and not self._is_hindered(who, self.books.clock() - _RELEASE_SECONDS, but="the scheduler is stopped"):
            self.accuse("leader", "a replica has ended and keeps the lease, for which others wait")

    def _given_back(self, request: Request) -> None:
        """Somebody ends in peace, and by then what it has sent has ended: others may begin at once."""
        since = self.books.clock() - STOP_SECONDS
        if not any(deed.who == request.who and deed.what == "the scheduler is stopped" and deed.at > since for deed in self.books.deeds):
            return
        for other in self.books.binds_since(since):
            if other.who == request.who and other.answered is None and other.abandoned is None:
                self.accuse("leader", f"the lease is given back while the bind of pod {other.name} is under way")

    def look(self) -> None:
        """See whether a Lease that has run out is taken over."""
        now = self.books.clock()
        for who, since in self.alive.items():
            waited = now - max(since, self._written)
            if who == self.leader or not self._holder or waited < self._duration + _TAKEOVER_SECONDS:
                continue
            if not self._is_hindered(who, now - waited):
                self.accuse("leader", f"the lease has run out, and nobody has taken it for {waited - self._duration:.0f} s")

    def _is_hindered(self, who: str, since: float, but: str = "") -> bool:
        """Whether anything has kept a process from reading or writing the Lease."""
        if any(deed.who == who and deed.until >= since and deed.what != but for deed in self.books.deeds):
            return True
        return any(
            request.who == who and (request.answered or since) >= since
            for request in self.books.struck
            if request.plural == "leases" or request.verb == "list"
        )

    def arrived(self, request: Request) -> None:
        """Whoever sends a change leads when it sends it."""
        if not self.leader or request.plural == "leases" or request.verb not in _WRITES:
            return
        if request.who != self.leader and request.sent > self.since:
            self.accuse("leader", f"{request.verb} of {request.plural} {request.name} was sent by a replica that doesn't lead")
        elif request.is_bind and request.who == self.leader:
            self._check_seal(request)

    def carried_out(self, request: Request, pod: Body) -> None:
        """A bind or a release has had its effect."""
        if not self.leader or request.verb not in _CHANGES:
            return
        if request.who == self.leader:
            self.acted = self.acted if self.acted is not None else self.books.clock()
        elif self.acted is not None and not self._is_sealing_struck(pod):
            self.accuse(
                "late", f"{request.verb} of pod {name_of(pod)}, sent by an earlier leader, was carried out after another had begun to act"
            )

    def _check_seal(self, request: Request) -> None:
        """A leader binds no pod that an earlier one may still bind: something has been written to it in this term."""
        pod = self.books.get("pods", request.namespace, request.name)
        if pod is not None and self.books.written.get(uid_of(pod), 0.0) < self.since and len(self._identities) > 1:
            self.accuse(
                "seal", f"pod {name_of(pod)} is bound, which an earlier leader may bind still: nothing was written to it in this term"
            )

    def _is_sealing_struck(self, pod: Body) -> bool:
        """Whether the leader was kept from writing to the pod."""
        return any(
            request.verb == "patch" and request.plural == "pods" and request.name == name_of(pod) and request.sent >= self.since
            for request in self.books.struck
        )
