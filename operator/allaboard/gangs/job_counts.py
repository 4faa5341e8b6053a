"""The numbers of a batch Job, from which the pods that it will still create are counted.

A gang must not wait for pods that no Job will create. Example: three of four completions have succeeded and the fourth pod is lost; its
replacement is the only pod that will ever exist.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from allaboard.model.pod import controller_of
from allaboard.model.raw_fields import integer, mapping, text

_CRON_JOB = "CronJob"
_INDEXES = 16_384
"""Characters of ``status.failedIndexes`` that are read; the API server allows lists that are a little longer than 100,000 indexes."""


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The progress of one batch Job.

    ``completions`` is None for a Job that ends with its first success (a work queue). ``done`` counts completions that need no more pod:
    successes, and indexes that have failed for good. ``root`` is the UID of the object that the Job belongs to: its controller, such as a
    JobSet or an MPIJob, or the Job itself if it has no controller or a CronJob.
    """

    uid: str
    root: str
    parallelism: int
    completions: int | None
    done: int

    @property
    def initial(self) -> int:
        """The number of pods that the Job runs at once when it starts."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    def left(self, seen: "SeenPods") -> int:
        """Return an upper bound of the pods of one run that the Job can have alive at once from now on.

        The Job's status and its pods come by two watches. A success that the status counts and no pod shows may be of a deleted pod, or of
        one that still looks alive. It counts as the latter, since a number that is too low would start a part of a run.
        """
        if self.completions is None:
            return seen.alive if self.done or seen.succeeded else self.parallelism
        unseen = max(0, self.done - seen.succeeded)
        elsewhere = max(0, seen.bound_elsewhere - unseen)
        return min(self.parallelism, max(0, self.completions - self.done - elsewhere + min(unseen, seen.bound)))


@dataclass(frozen=True, slots=True)
class SeenPods:
    """The seen pods of one Job: the living and the bound of one run, the bound of its other runs, and all that have succeeded."""

    alive: int
    bound: int
    bound_elsewhere: int = 0
    succeeded: int = 0


def job_counts_from(raw: dict[str, Any]) -> JobCounts:
    """Return the record of a raw Job. Raises ``MalformedError``."""
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
    )


class JobStore:
    """A reflector's store of Jobs that calls ``observe(old, new)`` after each change of their numbers."""

    def __init__(self, observe: Callable[[JobCounts | None, JobCounts | None], None]) -> None:
        self._observe = observe
        self._jobs: dict[str, JobCounts] = {}

    def upsert(self, key: str, record: JobCounts) -> None:
        """Apply a Job's numbers."""
        old = self._jobs.get(key)
        if old == record:
            return
        self._jobs[key] = record
        if old is not None and old.uid != record.uid:
            self._observe(old, None)
            old = None
        self._observe(old, record)

    def remove(self, key: str) -> None:
        """Remove a Job."""
        old = self._jobs.pop(key, None)
        if old is not None:
            self._observe(old, None)

    def known(self) -> Collection[str]:
        """Return ``namespace/name`` of all Jobs."""
        return self._jobs.keys()


def _count_of(indexes: object) -> int:
    """Return how many indexes a list such as ``1,3-5`` names; 0 if it is malformed."""
    if not isinstance(indexes, str) or len(indexes) > _INDEXES:
        return 0
    ranges = [re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", each) for each in indexes.split(",")]
    return sum(int(found[2] or found[1]) - int(found[1]) + 1 for found in ranges if found and int(found[2] or found[1]) >= int(found[1]))
