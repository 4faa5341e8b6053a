"""Defines the entries of the records: requests of schedulers, and what is done to schedulers and the cluster."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

GangName = tuple[str, str]
"""Namespace and name."""


@dataclass(eq=False, slots=True)
class Request:
    """One request of a scheduler. ``process`` is the sender; a restarted process counts as another one.

    ``status`` is 0 when no answer was given.
    """

    process: str
    sent: float
    verb: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    is_dry_run: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)
    arrived: float | None = None
    answered: float | None = None
    status: int = 0
    is_struck: bool = False
    """True if an injected fault hit the request."""
    is_carried_out: bool = False
    is_seen_sent: bool = False
    """True if ``sent`` is the time of sending; otherwise it is the time when the request was first seen."""
    abandoned: float | None = None
    """When the sender stopped waiting for the answer; None if it didn't."""
    retry_after: float = 0.0
    """Seconds of the answer's Retry-After; 0 without one."""

    # Derived from the body once, since rules read them often.
    metadata: Mapping[str, Any] = field(init=False)
    """Metadata of the object that is sent."""
    target: str = field(init=False)
    """The node of a bind, empty otherwise."""
    is_bind: bool = field(init=False)
    """True if the request binds a pod, and isn't a dry run."""
    what: tuple[object, ...] = field(init=False)
    """Identifies the request: it is equal for all tries of one request, whatever resourceVersion each try names."""

    def __post_init__(self) -> None:
        metadata, target = self.body.get("metadata"), self.body.get("target")
        self.metadata = metadata if isinstance(metadata, Mapping) else {}
        self.target = str(target.get("name") or "") if isinstance(target, Mapping) else ""
        self.is_bind = self.verb == "bind" and not self.is_dry_run
        self.what = (
            self.process,
            self.verb,
            self.is_dry_run,
            self.target,
            self.metadata.get("uid"),
            repr(self.metadata.get("annotations")),
        )

    def was_answered(self, since: float, until: float) -> bool:
        """Return whether the request was answered after ``since`` and by ``until``.

        A later answer counts for nothing once the request was sent again.
        """
        return self.answered is not None and self.status > 0 and since < self.answered <= until

    @property
    def is_slow(self) -> bool:
        """True if the request wasn't answered within a second."""
        return self.answered is None or self.answered - self.sent > 1


@dataclass(slots=True)
class Deed:
    """A fault or a foreign action: something that is done to the cluster or to a scheduler, but not by a scheduler.

    ``gang`` is the gang that it concerns, None for all; ``process`` is the process that it is done to, empty for none. It lasts until
    ``until``.
    """

    what: str
    at: float
    until: float
    gang: GangName | None = None
    process: str = ""

    def __str__(self) -> str:
        about = f" of {self.gang[1]}" if self.gang else ""
        return f"{self.what}{about} at {self.at:.3f} s"


current: ContextVar[Request | None] = ContextVar("current", default=None)
"""The request that is being carried out."""
