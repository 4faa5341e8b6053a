"""Keeps the keys of all gangs in order, up to date from changes of gangs: to sort the keys of 40,000 gangs takes 150 ms."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence

from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import GangKey


class Keys:
    """The keys of all gangs in the order of namespace and name. Used in the event loop's thread only."""

    def __init__(self, registry: GangRegistry) -> None:
        self._registry = registry
        self._ordered = sorted(registry.known())
        self._known = set(self._ordered)
        self._numbers = Counter(key.namespace for key in self._ordered)
        registry.listen(self._observe)

    def in_order(self) -> Sequence[GangKey]:
        """Return the keys of all gangs, as they are now."""
        return self._ordered.copy()

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces of all gangs, in order."""
        return sorted(self._numbers)

    def _observe(self, key: GangKey) -> None:
        is_known = self._registry.knows(key)
        if is_known == (key in self._known):
            return
        if is_known:
            self._known.add(key)
            insort(self._ordered, key)
            self._numbers[key.namespace] += 1
            return
        self._known.remove(key)
        del self._ordered[bisect_left(self._ordered, key)]
        self._numbers[key.namespace] -= 1
        if not self._numbers[key.namespace]:
            del self._numbers[key.namespace]
