"""Estimates how long a pod will run by how long the last two pods of the same owner ran.

The mean of the last two run times predicts better than limits that users state (Tsafrir, Etsion and Feitelson, TPDS 18(6), 2007). An
owner is known by its name without the number or hash at its end, since each submission of a job mostly has a name of its own. Without such
an owner the last two pods of the namespace count. Nothing is stored: after a restart, the scheduler learns again.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Callable

from allaboard.cluster.view import ClusterView
from allaboard.model.pod import Pod

_MOST_OWNERS = 10_000
_LAST = 2
_ENDING = re.compile(r"(-[0-9a-f]{5,64}|-?[0-9]{1,64}|-[a-z0-9]{5})$")


class RunTimes:
    """The last run times by owner and by namespace. ``now`` returns seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def follow(self, view: ClusterView) -> None:
        """Learn from the pods of ``view``, and estimate their ends there."""
        view.estimate = self.estimate
        view.listen(self.observe_pod)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Record the run time of a pod that has succeeded since the last event."""
        if old is None or new is None or old.is_terminal or new.phase != "Succeeded" or not old.started or new.uid != old.uid:
            return
        seconds = self._now() - old.started
        if seconds > 0.0:
            for owner in {_owner_of(new), ""}:
                self._record((new.namespace, owner), seconds)

    def estimate(self, pod: Pod) -> float:
        """Return the seconds that a pod is expected to run from its start on; 0 if nothing is known."""
        last = self._last.get((pod.namespace, _owner_of(pod))) or self._last.get((pod.namespace, ""))
        return sum(last) / len(last) if last else 0.0

    def _record(self, key: tuple[str, str], seconds: float) -> None:
        self._last.setdefault(key, deque(maxlen=_LAST)).append(seconds)
        self._last.move_to_end(key)
        if len(self._last) > _MOST_OWNERS:
            self._last.popitem(last=False)


def _owner_of(pod: Pod) -> str:
    """Return the name of a pod's owner without the number or hash at its end; of a bare pod, its own name."""
    return _ENDING.sub("", pod.owner.name if pod.owner else pod.name)
