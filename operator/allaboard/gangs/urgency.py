"""Genius's label ``genius/priority``: which of its own gangs a namespace wants first.

It counts among gangs of one namespace and one priority only, for anybody can write it: the less urgent stands behind those that are more,
as if it had been made just after them. So the urgent never get ahead of anybody else, and who yields lets others by as well.

Of one namespace A (made at 1, without the label) and B (at 3, label 10) wait, of another C (at 2): they are placed C, B, A.
"""

from collections.abc import Callable
from math import inf, nextafter

from allaboard.model.asking import URGENCY_LABEL, urgency_of
from allaboard.model.gang import GangKey, Outline
from allaboard.model.pod import Pod

_Floors = list[tuple[int, float]]
"""Levels of urgency, the most urgent first, each with when the last of it, and of those before, counts as made."""


class Urgency:
    """Keeps the gangs with waiting members that have the label. Where nobody has it nothing is looked at."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[GangKey, dict[str, int]]] = {}  # by namespace; what each member says, by UID
        self._floors: dict[str, dict[int, _Floors]] = {}  # by namespace and priority; made anew when something has changed
        self._changed: set[str] = set()

    def joins(self, key: GangKey, pod: Pod) -> None:
        """A pod of ours is of a gang from now on."""
        if pod.is_candidate and (urgency := urgency_of(pod.label(URGENCY_LABEL))):
            self._waiting.setdefault(key.namespace, {}).setdefault(key, {})[pod.uid] = urgency
            self._change(key.namespace)

    def leaves(self, key: GangKey, pod: Pod) -> None:
        """It isn't any more."""
        gangs = self._waiting.get(key.namespace)
        if gangs is None or pod.uid not in gangs.get(key, {}):
            return
        del gangs[key][pod.uid]
        if not gangs[key]:
            del gangs[key]
        if not gangs:
            del self._waiting[key.namespace]
        self._change(key.namespace)

    def changed(self) -> set[str]:
        """The namespaces of which gangs may have another place since this was last asked."""
        found, self._changed = self._changed, set()
        return found

    def since(self, key: GangKey, priority: int, created: float, outline: Callable[[GangKey], Outline | None]) -> float:
        """When a gang counts as made that was made at ``created``."""
        gangs = self._waiting.get(key.namespace)
        if gangs is None:
            return created
        if key.namespace not in self._floors:
            self._floors[key.namespace] = _floors(gangs, outline)
        mine = max(gangs.get(key, {}).values(), default=0)
        after = -inf
        for urgency, last in self._floors[key.namespace].get(priority, ()):
            if urgency <= mine:
                break
            after = last
        return max(created, nextafter(after, inf)) if after > -inf else created

    def _change(self, namespace: str) -> None:
        self._floors.pop(namespace, None)
        self._changed.add(namespace)


def _floors(gangs: dict[GangKey, dict[str, int]], outline: Callable[[GangKey], Outline | None]) -> dict[int, _Floors]:
    made: dict[int, dict[int, float]] = {}
    for key, stated in gangs.items():
        if (known := outline(key)) is not None:
            of_level = made.setdefault(known.priority, {})
            urgency = max(stated.values())
            of_level[urgency] = max(known.created, of_level.get(urgency, -inf))
    found: dict[int, _Floors] = {}
    for priority, levels in made.items():
        last = -inf
        for urgency in sorted(levels, reverse=True):
            # Who yields to the levels before counts as made just after them.
            last = max(levels[urgency], nextafter(last, inf) if last > -inf else last)
            found.setdefault(priority, []).append((urgency, last))
    return found
