"""Failures on demand: what a cluster does to its clients on a bad day, at a chosen request."""

import fnmatch
from dataclasses import dataclass, field

from allaboard.sandbox.errors import ApiError

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Fails the ``nth`` matching request over HTTP from now on, and the following ones up to ``times`` in all.

    ``verb`` is a verb of RBAC, or ``bind`` or ``evict``; ``resource`` a plural, which matches its subresources too, or
    ``plural/subresource``; ``name`` a glob. Dry runs don't count unless ``dry_run`` is set, when only they do.
    With ``drop`` the connection is closed without a reply; with ``after`` the request is carried out first, and then its reply is lost
    (``drop``) or replaced by the failure. A ``delay`` alone (``status=0``) only makes a request slow.
    """

    verb: str
    resource: str
    name: str | None = None
    nth: int = 1
    times: int = 1
    status: int = 500
    reason: str | None = None
    message: str = "injected by the sandbox"
    retry_after: int | None = None
    delay: float = 0.0
    drop: bool = False
    after: bool = False
    dry_run: bool = False

    def matches(self, verb: str, resource: str, subresource: str, name: str, *, dry_run: bool) -> bool:
        if verb != self.verb or dry_run != self.dry_run:
            return False
        if self.resource not in (resource, f"{resource}/{subresource}", "*"):
            return False
        return self.name is None or fnmatch.fnmatchcase(name, self.name)

    def error(self) -> ApiError:
        reason = REASONS.get(self.status, "") if self.reason is None else self.reason
        return ApiError(self.status, reason, self.message, retry_after=self.retry_after)


@dataclass(slots=True)
class _Armed:
    fault: Fault
    seen: int = 0

    @property
    def is_spent(self) -> bool:
        return self.seen >= self.fault.nth + self.fault.times - 1


@dataclass(slots=True)
class Faults:
    """The faults waiting for their request."""

    _armed: list[_Armed] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        self._armed.append(_Armed(fault))

    def clear(self) -> None:
        self._armed.clear()

    @property
    def pending(self) -> list[Fault]:
        """The faults that haven't struck for the last time."""
        return [armed.fault for armed in self._armed]

    def strike(self, verb: str, resource: str, subresource: str, name: str, *, dry_run: bool = False) -> Fault | None:
        """Count a request, and return the fault that hits it, if any."""
        hit = None
        for armed in self._armed:
            if armed.fault.matches(verb, resource, subresource, name, dry_run=dry_run):
                armed.seen += 1
                if hit is None and armed.seen >= armed.fault.nth:
                    hit = armed.fault
        self._armed = [armed for armed in self._armed if not armed.is_spent]
        return hit
