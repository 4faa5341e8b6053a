"""Compute how many pods a batch Job will still create, from its spec and status.

A gang must not wait for pods that no Job will create. Example: a Job has four completions, three have succeeded, and the fourth pod is
lost. The Job creates one replacement and no other pod, so the gang needs only this pod.
"""

import re
from dataclasses import dataclass
from typing import Any

from allaboard.gangs.uid_store import UidStore
from allaboard.model.disruption import policy_ignores_disruption
from allaboard.model.pod import controller_of
from allaboard.model.raw_fields import integer, mapping, text
from allaboard.model.walltime import UNKNOWN, walltime_of

_CRON_JOB = "CronJob"
_INDEXES = 16_384
"""The most characters of ``status.failedIndexes`` that are read. The API server allows up to about 100,000 indexes."""


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The progress of one batch Job.

    ``completions`` is None for a work queue, which creates no pods after its first success. ``done`` counts the completions that need no
    pod: successes, and indexes that have failed for good. ``root`` is the UID of the Job's controller, such as a JobSet or an MPIJob. It is
    the Job's own UID if the Job has no controller, or if the controller is a CronJob. ``walltime`` is the longest time in seconds that the
    Job will run, as its owner states it (``model.walltime``). ``tolerates_eviction``: the Job doesn't count an evicted pod as failed.
    """

    uid: str
    root: str
    parallelism: int
    completions: int | None
    done: int
    walltime: float = UNKNOWN
    tolerates_eviction: bool = False

    @property
    def initial(self) -> int:
        """The number of pods that the Job creates when it starts."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    def left(self, seen: "SeenPods") -> int:
        """Return how many pods of one run the Job can have alive at the same time from now on, at most.

        The Job's status and its pods come by two watches. If the status counts a success that no pod shows, either the pod was deleted, or
        its last known state is out of date and shows it alive. The returned number assumes that the last known state is out of date: a
        number that is too low would let the gang start with a part of its run.
        """
        if self.completions is None:
            return seen.alive if self.done or seen.succeeded else self.parallelism
        unseen = max(0, self.done - seen.succeeded)
        elsewhere = max(0, seen.bound_elsewhere - unseen)
        return min(self.parallelism, max(0, self.completions - self.done - elsewhere + min(unseen, seen.bound)))


@dataclass(frozen=True, slots=True)
class SeenPods:
    """The numbers of one Job's known pods: living and bound pods of one run, bound pods of the Job's other runs, and all succeeded pods."""

    alive: int
    bound: int
    bound_elsewhere: int = 0
    succeeded: int = 0


def job_counts_from(raw: dict[str, Any]) -> JobCounts:
    """Return the counts of a raw Job. Raises ``MalformedError`` if a field that is read is malformed."""
    metadata, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    uid = text(metadata, "uid", path="metadata.")
    controller = controller_of(metadata)
    completions = integer(spec, "completions", path="spec.") if spec.get("completions") is not None else None
    done = integer(status, "succeeded", path="status.") + _count_of(status.get("failedIndexes"))
    return JobCounts(
        uid=uid,
        root=controller.uid if controller is not None and controller.kind != _CRON_JOB else uid,
        parallelism=max(0, integer(spec, "parallelism", 1, "spec.")),
        completions=completions,
        done=max(0, done),
        walltime=walltime_of(metadata, spec),
        tolerates_eviction=policy_ignores_disruption(raw),
    )


class JobStore(UidStore[JobCounts]):
    """A reflector's store of the counts of Jobs."""


def _count_of(indexes: object) -> int:
    """Return how many indexes a list such as ``1,3-5`` names (here 4); 0 if the list is malformed or too long."""
    if not isinstance(indexes, str) or len(indexes) > _INDEXES:
        return 0
    ranges = [re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", each) for each in indexes.split(",")]
    return sum(int(found[2] or found[1]) - int(found[1]) + 1 for found in ranges if found and int(found[2] or found[1]) >= int(found[1]))
