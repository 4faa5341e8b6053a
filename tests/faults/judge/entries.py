"""What the books are made of: what schedulers ask the API server for, and what is done to them and to the cluster."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

GangName = tuple[str, str]
"""Namespace and name."""


@dataclass(eq=False, slots=True)
class Request:
    """One request of a scheduler, ``who`` being one life of one process. ``status`` is 0 when no answer was given."""

    who: str
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
    """Whether an injected fault hit it."""
    is_carried_out: bool = False
    is_seen_sent: bool = False
    """Whether ``sent`` is when it was sent, and not when it was first seen."""
    abandoned: float | None = None
    """When its sender ceased to wait for the answer."""
    retry_after: float = 0.0
    """For how long the answer asks to be left alone."""

    # They are asked for again and again.
    metadata: Mapping[str, Any] = field(init=False)
    """Of the object it sends."""
    target: str = field(init=False)
    """The node of a bind."""
    is_bind: bool = field(init=False)
    """Whether it binds a pod, and not as a rehearsal."""
    what: tuple[object, ...] = field(init=False)
    """What is the same of a request that is made again, whatever version it names then."""

    def __post_init__(self) -> None:
        metadata, target = self.body.get("metadata"), self.body.get("target")
        self.metadata = metadata if isinstance(metadata, Mapping) else {}
        self.target = str(target.get("name") or "") if isinstance(target, Mapping) else ""
        self.is_bind = self.verb == "bind" and not self.is_dry_run
        self.what = (self.who, self.verb, self.is_dry_run, self.target, self.metadata.get("uid"), repr(self.metadata.get("annotations")))

    def is_heard(self, since: float, until: float) -> bool:
        """Whether it was answered after ``since`` and by ``until``: what comes when it was made again, nobody waits for any more."""
        return self.answered is not None and self.status > 0 and since < self.answered <= until

    @property
    def is_slow(self) -> bool:
        """Whether it wasn't answered at once."""
        return self.answered is None or self.answered - self.sent > 1


@dataclass(slots=True)
class Deed:
    """Something that was done to the cluster or to a scheduler, by anybody but a scheduler. ``gang`` is whom it concerns, None for all.

    ``who`` is the process that it was done to; it goes on until ``until``.
    """

    what: str
    at: float
    until: float
    gang: GangName | None = None
    who: str = ""

    def __str__(self) -> str:
        about = f" of {self.gang[1]}" if self.gang else ""
        return f"{self.what}{about} at {self.at:.3f} s"


current: ContextVar[Request | None] = ContextVar("current", default=None)
"""The request that is being carried out."""
