"""Follows the leader election by the Lease in the API server, and checks that only the leader changes anything."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .books import STOP_SECONDS, Books
from .entries import Request
from .facts import Body, name_of, uid_of

_CHANGES = ("bind", "evict", "delete")
_WRITES = (*_CHANGES, "create", "update", "patch")


_RELEASE_SECONDS = 15.0
_TAKEOVER_SECONDS = 6.0
"""Seconds after its expiry in which a replica takes the Lease: replicas try every two seconds."""


@dataclass(slots=True)
class Terms:
    """Follows the election. Without a Lease every process may write."""

    books: Books
    accuse: Callable[[str, str], None]
    leader: str = ""
    since: float = 0.0
    acted: float | None = None
    """When the present leader first bound or released a pod; None while it hasn't."""
    alive: dict[str, float] = field(default_factory=dict)
    """The running processes, and when each was started."""
    _holder: str = ""
    _written: float = 0.0
    _duration: float = 0.0
    _identities: dict[str, str] = field(default_factory=dict)

    def lease_written(self, request: Request | None, lease: Body) -> None:
        """Record a write to a Lease."""
        if request is None:
            return  # a node's Lease
        spec = lease.get("spec") or {}
        holder = self._holder = str(spec.get("holderIdentity") or "")
        self._written, self._duration = self.books.clock(), float(spec.get("leaseDurationSeconds") or 0)
        if not holder:
            self._check_lease_release(request)
        if holder and holder not in self._identities:
            self._identities[holder] = request.process
        leader = self._identities.get(holder, "")
        if leader and leader != self.leader:
            self.leader, self.since, self.acted = leader, self.books.clock(), None

    def stopped(self, process: str) -> None:
        """Check that a process that has shut down gracefully released the Lease."""
        is_holder = self._identities.get(self._holder) == process
        if is_holder and not self._is_hindered(process, self.books.clock() - _RELEASE_SECONDS, but="the scheduler is stopped"):
            self.accuse("leader", "a replica has shut down without releasing the lease")

    def _check_lease_release(self, request: Request) -> None:
        """Check that a process that shuts down has no bind in flight when it releases the Lease: the next leader may begin at once."""
        since = self.books.clock() - STOP_SECONDS
        if not any(
            deed.process == request.process and deed.what == "the scheduler is stopped" and deed.at > since for deed in self.books.deeds
        ):
            return
        for other in self.books.binds_since(since):
            if other.process == request.process and other.answered is None and other.abandoned is None:
                self.accuse("leader", f"the lease is released while the bind of pod {other.name} is in flight")

    def check_now(self) -> None:
        """Check that an expired Lease is taken over."""
        now = self.books.clock()
        for process, since in self.alive.items():
            waited = now - max(since, self._written)
            if process == self.leader or not self._holder or waited < self._duration + _TAKEOVER_SECONDS:
                continue
            if not self._is_hindered(process, now - waited):
                self.accuse("leader", f"the lease has expired, and no replica has taken it for {waited - self._duration:.0f} s")

    def _is_hindered(self, process: str, since: float, but: str = "") -> bool:
        """Return whether anything has kept a process from reading or writing the Lease."""
        if any(deed.process == process and deed.until >= since and deed.what != but for deed in self.books.deeds):
            return True
        return any(
            request.process == process and (request.answered or since) >= since
            for request in self.books.struck
            if request.plural == "leases" or request.verb == "list"
        )

    def arrived(self, request: Request) -> None:
        """Check that the sender of a change leads when it sends it."""
        if not self.leader or request.plural == "leases" or request.verb not in _WRITES:
            return
        if request.process != self.leader and request.sent > self.since:
            self.accuse("leader", f"{request.verb} of {request.plural} {request.name} was sent by a replica that doesn't lead")
        elif request.is_bind and request.process == self.leader:
            self._check_fence(request)

    def carried_out(self, request: Request, pod: Body) -> None:
        """Check that an earlier leader's bind or release isn't carried out after the present leader has acted."""
        if not self.leader or request.verb not in _CHANGES:
            return
        if request.process == self.leader:
            self.acted = self.acted if self.acted is not None else self.books.clock()
        elif self.acted is not None and not self._is_fencing_struck(pod):
            self.accuse(
                "late", f"{request.verb} of pod {name_of(pod)}, sent by an earlier leader, was carried out after the next leader had acted"
            )

    def _check_fence(self, request: Request) -> None:
        """Check that a leader binds no pod that an earlier leader may still bind: it must have written to the pod in its term."""
        pod = self.books.get("pods", request.namespace, request.name)
        if pod is not None and self.books.written.get(uid_of(pod), 0.0) < self.since and len(self._identities) > 1:
            self.accuse("fence", f"pod {name_of(pod)} is bound, but wasn't written to in this term: an earlier leader may still bind it")

    def _is_fencing_struck(self, pod: Body) -> bool:
        """Return whether faults kept the leader from writing to the pod."""
        return any(
            request.verb == "patch" and request.plural == "pods" and request.name == name_of(pod) and request.sent >= self.since
            for request in self.books.struck
        )
