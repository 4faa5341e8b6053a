"""The objects that own pods: what they state, and which gangs their pods are in.

A pod names its owner. The owner may be controlled by another object, which then states the walltime: a RayJob controls a RayCluster, and an
MPIJob the batch Job of its launcher. There are no longer chains of owners that state a walltime.
"""

from collections import Counter
from collections.abc import Collection

from allaboard.gangs.job_counts import JobCounts
from allaboard.gangs.owner_walltimes import OwnerWalltime
from allaboard.model.gang import GangKey
from allaboard.model.pod import Pod
from allaboard.model.walltime import UNKNOWN


class Owners:
    """The owners of the pods of gangs, by UID."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobCounts] = {}
        self._walltimes: dict[str, OwnerWalltime] = {}
        self._gangs: dict[str, Counter[GangKey]] = {}  # The number of an owner's pods in each gang.
        self._controlled: dict[str, set[str]] = {}  # The UIDs of the owners that an object controls.

    def add_pod(self, key: GangKey, pod: Pod) -> None:
        """Record that ``pod`` is a member of the gang ``key``."""
        if pod.owner is not None:
            self._gangs.setdefault(pod.owner.uid, Counter())[key] += 1

    def remove_pod(self, key: GangKey, pod: Pod) -> None:
        """Record that ``pod`` is no longer a member of the gang ``key``. It must have been added with the same owner."""
        if pod.owner is None:
            return
        gangs = self._gangs[pod.owner.uid]
        gangs[key] -= 1
        if not gangs[key]:
            del gangs[key]
        if not gangs:
            del self._gangs[pod.owner.uid]

    def observe_job(self, old: JobCounts | None, new: JobCounts | None) -> Collection[GangKey]:
        """Apply a change of a batch Job from ``old`` to ``new``; None stands for no Job. Return the gangs of its pods."""
        if old is not None:
            self.jobs.pop(old.uid, None)
            self._unlink(old.uid, old.root)
        if new is not None:
            self.jobs[new.uid] = new
            self._link(new.uid, new.root)
        changed = new or old
        return self._gangs_of(changed.uid) if changed else ()

    def observe_walltime(self, old: OwnerWalltime | None, new: OwnerWalltime | None) -> Collection[GangKey]:
        """Apply a change of an owner's walltime from ``old`` to ``new``; None stands for no owner. Return the gangs that it may concern."""
        if old is not None:
            self._walltimes.pop(old.uid, None)
            self._unlink(old.uid, old.controller)
        if new is not None:
            self._walltimes[new.uid] = new
            self._link(new.uid, new.controller)
        changed = new or old
        return self._gangs_of(changed.uid) if changed else ()

    def root_of(self, pod: Pod) -> str:
        """Return the UID of the pod's root object; empty for a bare pod.

        The root object is the controller of the pod's batch Job if it has one, else the pod's own controller.
        """
        if pod.owner is None:
            return ""
        job = self.jobs.get(pod.owner.uid)
        return job.root if job else pod.owner.uid

    def walltime_of(self, uid: str) -> float:
        """Return the walltime in seconds that an owner states, else the one that its controller states; ``UNKNOWN`` without both."""
        job, stated = self.jobs.get(uid), self._walltimes.get(uid)
        controller = job.root if job else stated.controller if stated else ""
        if job is not None and job.walltime != UNKNOWN:
            return job.walltime
        if stated is not None and stated.walltime != UNKNOWN:
            return stated.walltime
        above = self._walltimes.get(controller)
        return above.walltime if above else UNKNOWN

    def _gangs_of(self, uid: str) -> Collection[GangKey]:
        """Return the gangs with pods of the owner ``uid``, or of an owner that it controls."""
        found = dict.fromkeys(self._gangs.get(uid, ()))
        for controlled in self._controlled.get(uid, ()):
            found |= dict.fromkeys(self._gangs.get(controlled, ()))
        return found.keys()

    def _link(self, uid: str, controller: str) -> None:
        if controller not in ("", uid):
            self._controlled.setdefault(controller, set()).add(uid)

    def _unlink(self, uid: str, controller: str) -> None:
        controlled = self._controlled.get(controller, set())
        controlled.discard(uid)
        if not controlled:
            self._controlled.pop(controller, None)
