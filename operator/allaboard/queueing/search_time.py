"""Who has used how much search time lately, by namespace: what has been used counts for less as time goes by.

Time is a namespace's, and not a gang's, because a tenant may have as many gangs as he likes.
"""

import math
from collections.abc import Callable, Set

MUCH_SECONDS = 0.5
"""Search time that is more than ordinary gangs use: from here on a namespace goes behind those that have used less."""

_FADES_SECONDS = 60.0  # until what was used counts for a third (1/e)
_FORGOTTEN_SECONDS = 0.01  # so little of it is left that it makes no difference
_FEW = 64


class SearchTime:
    """Seconds by namespace. Only those are remembered that count still, so it doesn't grow with the names that were ever seen."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used: dict[str, tuple[float, float]] = {}  # seconds, and when that was so
        self._levels: dict[str, int] = {}  # of those above 0, as they were last
        self._capacity = _FEW

    def __len__(self) -> int:
        """How many namespaces are remembered."""
        return len(self._used)

    def charge(self, namespace: str, seconds: float) -> None:
        """A search for ``namespace`` took so long."""
        self._used[namespace] = (self.used(namespace) + max(0.0, seconds), self._clock())
        if level := self.level(namespace):
            self._levels[namespace] = max(level, self._levels.get(namespace, 0))
        if len(self._used) > self._capacity:
            self._used = {name: record for name, record in self._used.items() if self.used(name) >= _FORGOTTEN_SECONDS}
            self._levels = {name: level for name, level in self._levels.items() if name in self._used}
            self._capacity = 2 * len(self._used) + _FEW

    def used(self, namespace: str) -> float:
        """Seconds that count still."""
        seconds, since = self._used.get(namespace, (0.0, 0.0))
        return seconds * math.exp((since - self._clock()) / _FADES_SECONDS)

    def level(self, namespace: str) -> int:
        """0 for those that have used no more than anybody does, then one more for each doubling: whoever has more goes behind."""
        used = self.used(namespace)
        return 0 if used < MUCH_SECONDS else 1 + int(math.log2(used / MUCH_SECONDS))

    def promote(self) -> Set[str]:
        """Those that have come to a lower level since this was last asked."""
        promote = {namespace for namespace, level in self._levels.items() if self.level(namespace) < level}
        for namespace in promote:
            if level := self.level(namespace):
                self._levels[namespace] = level
            else:
                del self._levels[namespace]
        return promote
