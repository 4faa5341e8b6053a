"""The cluster's workload: the different requests of its pods, bound or waiting, each with the number of pods that make it."""

from collections import Counter
from dataclasses import dataclass

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Workload, most_frequent


class WorkloadCounter:
    """Counts the pods of the cluster by the resources that they request.

    Equal specs are mostly one object, so the demand of a spec is computed once for each object. The workload is built again when more than
    an eighth of the pods has changed.
    """

    def __init__(self) -> None:
        self._demands: dict[int, _Demand] = {}
        self._tasks: dict[bool, Counter[SchedulingSpec]] = {True: Counter(), False: Counter()}  # True: tasks that ask for devices
        self._size = self._changes = 0
        self._mix: Workload = ()

    def replace(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a change of one pod; ``None`` stands for absence."""
        before = old.spec if old is not None and not old.is_terminal else None
        after = new.spec if new is not None and not new.is_terminal else None
        if before is after:
            return
        for spec, change in ((before, -1), (after, +1)):
            if spec is not None:
                self._count(spec, change)

    def mix(self) -> Workload:
        """Return the workload. It may be out of date by the changes of at most an eighth of the pods."""
        if self._changes > self._size // 8:
            self._mix, self._changes = most_frequent(self._tasks.values()), 0
        return self._mix

    def _count(self, spec: SchedulingSpec, change: int) -> None:
        known = self._demands.get(id(spec))
        if known is None:
            known = self._demands[id(spec)] = _Demand(spec, spec.demand)
        known.pods += change
        if not known.pods:
            del self._demands[id(spec)]
        tasks = self._tasks[known.demand.asks_for_devices]
        tasks[known.demand] += change
        if not tasks[known.demand]:
            del tasks[known.demand]
        self._size += change
        self._changes += 1


@dataclass(slots=True)
class _Demand:
    """The demand of ``spec``, and the number of pods that have this very object as their spec."""

    spec: SchedulingSpec
    demand: SchedulingSpec
    pods: int = 0
