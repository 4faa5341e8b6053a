"""How much search time each namespace has used lately; older use counts for less.

Time is charged to a namespace, and not to a gang, because a tenant may have any number of gangs.
"""

import math
from collections.abc import Callable, Set

MUCH_SECONDS = 0.5
"""More search time than ordinary gangs use: from here on a namespace goes behind those that have used less."""

_FADES_SECONDS = 60.0  # after which used time counts for a third (1/e)
_FORGOTTEN_SECONDS = 0.01  # less than this makes no difference
_FEW = 64


class SearchTime:
    """Search time in seconds, by namespace. Only namespaces whose time still counts are kept, so the size is bounded."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}  # seconds, and when they were computed
        self._levels: dict[str, int] = {}  # the last levels above 0
        self._capacity = _FEW

    def __len__(self) -> int:
        """Return how many namespaces are kept."""
        return len(self._used)

    def charge(self, namespace: str, seconds: float) -> None:
        """Charge a search of so many seconds to ``namespace``."""
        self._used[namespace] = (self.used(namespace) + max(0.0, seconds), self._clock())
        if level := self.level(namespace):
            self._levels[namespace] = max(level, self._levels.get(namespace, 0))
        if len(self._used) > self._capacity:
            self._used = {name: record for name, record in self._used.items() if self.used(name) >= _FORGOTTEN_SECONDS}
            self._levels = {name: level for name, level in self._levels.items() if name in self._used}
            self._capacity = 2 * len(self._used) + _FEW

    def used(self, namespace: str) -> float:
        """Return the seconds that still count."""
        seconds, since = self._used.get(namespace, (0.0, 0.0))
        return seconds * math.exp((since - self._clock()) / _FADES_SECONDS)

    def level(self, namespace: str) -> int:
        """Return the namespace's level: 0 for ordinary use, then one more for each doubling. A higher level goes behind a lower one."""
        used = self.used(namespace)
        return 0 if used < MUCH_SECONDS else 1 + int(math.log2(used / MUCH_SECONDS))

    def promote(self) -> Set[str]:
        """Return the namespaces whose level has fallen since the last call."""
        promote = {namespace for namespace, level in self._levels.items() if self.level(namespace) < level}
        for namespace in promote:
            if level := self.level(namespace):
                self._levels[namespace] = level
            else:
                del self._levels[namespace]
        return promote
