"""The search time that each namespace has used. Older use counts for less.

Search time is charged to a namespace and not to a gang, because a tenant may have any number of gangs.
"""

import math
from collections.abc import Callable, Set

MUCH_SECONDS = 0.5
"""Seconds of search time. The gangs of a namespace that has used more go behind gangs of namespaces that have used less than this."""

_FADES_SECONDS = 60.0  # Used time counts for a third (1/e) after so many seconds.
_FORGOTTEN_SECONDS = 0.01  # Less used time than this makes no difference.
_FEW = 64  # Namespaces that may be kept, besides those whose time counts.


class SearchTime:
    """The used search time of namespaces. Namespaces whose time no longer counts are dropped, so the size is bounded."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}  # By namespace: (seconds, time at which they were computed).
        self._levels: dict[str, int] = {}  # By namespace: the level that ``fallen`` compares with, if it is above 0.
        self._capacity = _FEW

    def __len__(self) -> int:
        """Return the number of namespaces that are kept."""
        return len(self._used)

    def charge(self, namespace: str, seconds: float) -> None:
        """Charge the ``seconds`` of a search to a namespace."""
        self._used[namespace] = (self.used(namespace) + max(0.0, seconds), self._clock())
        if level := self.level(namespace):
            self._levels[namespace] = max(level, self._levels.get(namespace, 0))
        if len(self._used) > self._capacity:
            self._used = {name: record for name, record in self._used.items() if self.used(name) >= _FORGOTTEN_SECONDS}
            self._levels = {name: level for name, level in self._levels.items() if name in self._used}
            self._capacity = 2 * len(self._used) + _FEW

    def used(self, namespace: str) -> float:
        """Return the seconds of a namespace's search time that count now."""
        seconds, since = self._used.get(namespace, (0.0, 0.0))
        return seconds * math.exp((since - self._clock()) / _FADES_SECONDS)

    def level(self, namespace: str) -> int:
        """Return a namespace's usage level: 0 below half a second, 1 up to one second, then one more for each doubling.

        Gangs of a higher level go behind gangs of a lower level.
        """
        used = self.used(namespace) if namespace in self._used else 0.0
        return 0 if used < MUCH_SECONDS else 1 + int(math.log2(used / MUCH_SECONDS))

    def fallen(self) -> Set[str]:
        """Return the namespaces whose level has fallen since the last call."""
        fallen = {namespace for namespace, level in self._levels.items() if self.level(namespace) < level}
        for namespace in fallen:
            if level := self.level(namespace):
                self._levels[namespace] = level
            else:
                del self._levels[namespace]
        return fallen
