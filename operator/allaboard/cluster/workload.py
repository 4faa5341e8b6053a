"""The cluster's workload: what the pods ask for that there are, bound or waiting, and how many of them do."""

from collections import Counter

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Workload, workload_of


class WorkloadCounter:
    """Counts what the pods of a cluster ask for.

    Counted by spec object, since equal specs are mostly one and hashing them is slow; summed up anew when an eighth has changed.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[SchedulingSpec, int]] = {}
        self._size = self._changes = 0
        self._mix: Workload = ()

    def replace(self, old: Pod | None, new: Pod | None) -> None:
        """One pod was ``old`` and is ``new``."""
        before = old.spec if old is not None and not old.is_terminal else None
        after = new.spec if new is not None and not new.is_terminal else None
        if before is after:
            return
        for spec, sign in ((before, -1), (after, +1)):
            if spec is not None:
                _, count = self._tasks.pop(id(spec), (spec, 0))
                if count + sign > 0:
                    self._tasks[id(spec)] = (spec, count + sign)
                self._size += sign
                self._changes += 1

    def mix(self) -> Workload:
        """The workload, as of lately."""
        if self._changes > self._size // 8:
            tasks: Counter[SchedulingSpec] = Counter()
            for spec, count in self._tasks.values():
                tasks[spec.demand] += count
            self._mix, self._changes = workload_of(tasks), 0
        return self._mix
