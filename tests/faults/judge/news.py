"""Records what each scheduler has received, and when: the lines of its watches and the pages of its lists."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .facts import Body, uid_of

History = dict[tuple[str, str, str], list[tuple[float, Body | None]]]
"""The versions of each object, by plural, namespace and name: when each was written, and its body; None when it was deleted."""


@dataclass(slots=True)
class News:
    """The events that each process has received. A restarted process counts as another one.

    A process of which no line was seen is taken to know ``history``, ``lag`` seconds late.
    """

    clock: Callable[[], float]
    history: History
    lag: float = 1.0
    last_contact: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each process has last received anything from its watch of a kind."""
    _listed: dict[tuple[str, str], set[tuple[str, str]]] = field(default_factory=dict)
    received: dict[str, History] = field(default_factory=dict)

    def hear(self, process: str, plural: str) -> None:
        """Record that a scheduler's watch of a kind has begun, or has sent anything."""
        self.last_contact[process, plural] = self.clock()

    def note_object(self, process: str, plural: str, body: Body, *, is_deleted: bool = False) -> None:
        """Record that a scheduler has received an object, by a line of a watch or an item of a list."""
        metadata = body["metadata"]
        history = self.received.setdefault(process, {}).setdefault((plural, metadata.get("namespace") or "", metadata["name"]), [])
        history.append((self.clock(), None if is_deleted else body))

    def note_line(self, process: str, plural: str, event: Mapping[str, Any]) -> None:
        """Record that a scheduler has received a line of a watch."""
        self.hear(process, plural)
        if event.get("type") in ("ADDED", "MODIFIED", "DELETED"):
            self.note_object(process, plural, event["object"], is_deleted=event["type"] == "DELETED")

    def note_page(self, process: str, plural: str, page: Mapping[str, Any], *, is_first: bool) -> None:
        """Record that a scheduler has received a page of a list. After the last page, objects that weren't listed count as gone."""
        self.hear(process, plural)
        listed = self._listed.setdefault((process, plural), set())
        if is_first:
            listed.clear()
        for body in page.get("items") or ():
            metadata = body["metadata"]
            listed.add((metadata.get("namespace") or "", metadata["name"]))
            self.note_object(process, plural, body)
        if not (page.get("metadata") or {}).get("continue"):
            for (kind, namespace, name), history in self.received.get(process, {}).items():
                if kind == plural and (namespace, name) not in listed and history[-1][1] is not None:
                    history.append((self.clock(), None))

    def known(self, process: str, plural: str, when: float) -> dict[tuple[str, str], Body]:
        """Return the objects of a kind that a scheduler had received by ``when``."""
        found = {}
        received, when = self._received_by(process, when)
        for (kind, namespace, name), history in received.items():
            if kind == plural:
                body = _last(history, when)
                if body is not None:
                    found[namespace, name] = body
        return found

    def known_of(self, process: str, plural: str, place: tuple[str, str], when: float) -> Body | None:
        """Return one object as a scheduler had received it by ``when``; None if it was gone or never received."""
        received, when = self._received_by(process, when)
        return _last(received.get((plural, *place), ()), when)

    def has_received(self, pods: Iterable[Body], process: str, when: float) -> bool:
        """Return whether a scheduler had received all ``pods`` by ``when``."""
        known = ((pod, self.known_of(process, "pods", (pod["metadata"]["namespace"], pod["metadata"]["name"]), when)) for pod in pods)
        return all(received is not None and uid_of(received) == uid_of(pod) for pod, received in known)

    def is_known_gone(self, process: str, pod: tuple[str, str], uid: str, when: float) -> bool:
        """Return whether a scheduler had received, by ``when``, that the pod of that UID is gone, after having received the pod."""
        received, when = self._received_by(process, when)
        known = [body for at, body in received.get(("pods", *pod), ()) if at <= when]
        was_there = [body is not None and uid_of(body) == uid for body in known]
        return any(was_there) and not was_there[-1]

    def _received_by(self, process: str, when: float) -> tuple[History, float]:
        return (self.history, when - self.lag) if (received := self.received.get(process)) is None else (received, when)


def _last(history: Sequence[tuple[float, Body | None]], when: float) -> Body | None:
    if history and history[-1][0] <= when:  # the usual case, and each bind asks it for every pod
        return history[-1][1]
    return next((body for at, body in reversed(history) if at <= when), None)
