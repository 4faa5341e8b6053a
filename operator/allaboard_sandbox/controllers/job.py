"""The batch Job controller, with the property that matters to a scheduler: a lost pod counts as a failure.

Even a pod that is evicted before it runs counts, unless the Job's ``podFailurePolicy`` ignores disruptions. Pods that the controller
deletes itself don't count; it deletes, for example, all active pods of a suspended Job. (Both were observed on a real cluster; kubernetes
pkg/controller/job, deleteJobPods, 1.37.)
A pod is replaced when its deletion begins, or with ``podReplacementPolicy: Failed`` when it is gone (job_controller.go, manageJob).
Left out: back-off delays between retries, deadlines, limits per index, success policies.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from allaboard_sandbox.api import TERMINAL_PHASES, Api
from allaboard_sandbox.controllers import workload
from allaboard_sandbox.controllers.ownership import Ownership, controlled_by, controller_of, reference_to
from allaboard_sandbox.store import DELETED, Body, Change, Key, Record

TABLE = "jobs.batch"
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


@dataclass(slots=True)
class _Tally:
    """The pods of one Job that have ended, by UID.

    A real Job controller keeps ended pods with a finalizer until they are counted; the sandbox counts them at once.
    """

    succeeded: dict[str, str | None] = field(default_factory=dict)
    """UID to completion index, which is None unless the Job is Indexed."""
    failed: set[str] = field(default_factory=set)
    uncounted: set[str] = field(default_factory=set)
    """UIDs of pods that the controller deleted itself; they don't count as failures."""


class JobController:
    """The controller that runs the pods of each Job until enough have succeeded or too many have failed."""

    def __init__(self, api: Api, ownership: Ownership) -> None:
        self._api = api
        self._ownership = ownership
        self._tallies: dict[str, _Tally] = {}

    def keys(self, change: Change) -> Iterator[Key]:
        """Yield the Job that a changed object is or belongs to, after counting a pod that has ended."""
        if change.table == TABLE:
            if change.type == DELETED:
                self._tallies.pop(change.record.uid, None)
            yield change.record.key
        elif change.table == "pods":
            for key in controlled_by(change.record.body, "Job"):
                self._count(change, key)
                yield key

    def reconcile(self, key: Key) -> None:
        """Create or delete pods of a Job as its spec and its counts require, and write its status."""
        record = workload.living(self._api, TABLE, key)
        if record is None or _is_finished(record.body):
            return
        spec = record.body["spec"]
        tally = self._tallies.setdefault(record.uid, _Tally())
        active, leaving = self._living_pods(record)
        outcome = _outcome(spec, tally, len(active))
        wanted = 0 if outcome else _wanted(spec, tally, len(active))
        ranked = workload.least_useful_first(active)
        if spec["completionMode"] == "Indexed":  # pods whose index is out of range are deleted first
            ranked.sort(key=lambda pod: _is_in_range(spec, _index_of(pod)))
        for pod in ranked[: max(0, len(active) - wanted)]:
            tally.uncounted.add(pod.uid)
            self._api.delete(self._api.resource("pods"), *pod.key)
        kept = leaving if spec["podReplacementPolicy"] == "Failed" else []
        if not outcome:
            self._create_pods(record, tally, [*active, *kept], wanted - len(active) - len(kept))
        self._write_status(record, tally, outcome)

    def _living_pods(self, job: Record) -> tuple[list[Record], list[Record]]:
        """Return two lists: the active pods of a Job, and its terminating pods that have not ended."""
        owned = [pod for pod in self._ownership.owned(job, "pods") if pod.body["status"].get("phase") not in TERMINAL_PHASES]
        return [pod for pod in owned if not workload.is_terminating(pod)], [pod for pod in owned if workload.is_terminating(pod)]

    def _count(self, change: Change, key: Key) -> None:
        pod, job = change.record, self._api.store.table(TABLE).get(key)
        owner = controller_of(pod.body)
        if job is None or owner is None or owner["uid"] != job.uid:
            return
        tally, spec = self._tallies.setdefault(job.uid, _Tally()), job.body["spec"]
        phase = pod.body["status"].get("phase")
        if phase == "Succeeded":
            tally.succeeded[pod.uid] = _index_of(pod)
            return
        is_lost = workload.is_terminating(pod) and spec["podReplacementPolicy"] != "Failed"
        is_counted = pod.uid not in tally.uncounted and not _is_ignored(spec, pod)
        if is_counted and (is_lost or phase == "Failed" or change.type == DELETED):
            tally.failed.add(pod.uid)

    def _create_pods(self, job: Record, tally: _Tally, present: list[Record], count: int) -> None:
        spec, name = job.body["spec"], job.key[1]
        identity = {"job-name": name, "controller-uid": job.uid}
        labels = identity | {f"batch.kubernetes.io/{label}": value for label, value in identity.items()}
        indexed = spec["completionMode"] == "Indexed"
        taken = {_index_of(pod) for pod in present} | set(tally.succeeded.values())
        free = (str(index) for index in range(spec.get("completions") or 0) if str(index) not in taken)
        for _ in range(count):
            prefix, template = f"{name}-", spec["template"]
            if indexed and (index := next(free, None)) is not None:
                metadata = template.get("metadata") or {}
                annotations = {**(metadata.get("annotations") or {}), INDEX_ANNOTATION: index}
                prefix, template = f"{name}-{index}-", {**template, "metadata": {**metadata, "annotations": annotations}}
                labels = {**labels, INDEX_ANNOTATION: index}
            owner = reference_to(self._api.resource(TABLE), job)
            self._api.create(self._api.resource("pods"), job.key[0], workload.pod_from(template, owner, labels=labels, generateName=prefix))

    def _write_status(self, job: Record, tally: _Tally, outcome: Body | None) -> None:
        before = job.body.get("status") or {}
        active, leaving = self._living_pods(job)
        now = self._api.now()
        suspended = bool(job.body["spec"]["suspend"])
        conditions = list(before.get("conditions") or ())
        moment = {"lastProbeTime": now, "lastTransitionTime": now}
        if suspended is not workload.has_condition(job.body, "Suspended") and not outcome:
            word = "suspended" if suspended else "resumed"
            changed = {"type": "Suspended", "status": str(suspended), "reason": f"Job{word.title()}", "message": f"Job {word}", **moment}
            conditions = [*(each for each in conditions if each["type"] != "Suspended"), changed]
        status = {
            "active": len(active),
            "ready": sum(1 for pod in active if workload.is_ready(pod)),
            "terminating": len(leaving),
            "succeeded": _successes(job.body["spec"], tally),
            "failed": len(tally.failed),
            "uncountedTerminatedPods": {},
            "conditions": conditions,
        }
        if not suspended:  # a resumed Job gets a new start time, from which activeDeadlineSeconds counts
            status["startTime"] = before.get("startTime") or now
        if job.body["spec"]["completionMode"] == "Indexed":
            status["completedIndexes"] = _ranges(int(index) for index in _indexes(job.body["spec"], tally))
        if outcome:
            interim = {**outcome, "type": "SuccessCriteriaMet" if outcome["type"] == "Complete" else "FailureTarget"}
            if not workload.has_condition(job.body, interim["type"]):
                conditions.append({**interim, "status": "True", **moment})
            if not active and not leaving:  # a Job is finished only when its last pod is gone (since 1.31)
                conditions.append({**outcome, "status": "True", **moment})
                status |= {"completionTime": now} if outcome["type"] == "Complete" else {}
        workload.set_status(self._api, self._api.resource(TABLE), job, status)


def _wanted(spec: Body, tally: _Tally, active: int) -> int:
    """Return how many pods of a Job should be active."""
    if spec["suspend"]:
        return 0
    if (completions := spec.get("completions")) is None:
        # A work queue: a pod that has succeeded found the queue empty, so no new pods are started.
        return active if tally.succeeded else int(spec["parallelism"])
    return max(0, min(int(spec["parallelism"]), int(completions) - _successes(spec, tally)))


def _successes(spec: Body, tally: _Tally) -> int:
    """Return the number of completions that have succeeded. For an Indexed Job, each index in range counts once."""
    return len(_indexes(spec, tally) if spec["completionMode"] == "Indexed" else tally.succeeded)


def _indexes(spec: Body, tally: _Tally) -> set[str]:
    """Return the indexes of an Indexed Job that have succeeded and are in range."""
    return {index for index in tally.succeeded.values() if index is not None and _is_in_range(spec, index)}


def _is_in_range(spec: Body, index: str | None) -> bool:
    """Return whether an index is below the completions of an Indexed Job, which may have been reduced."""
    return index is not None and index.isdecimal() and int(index) < int(spec["completions"])


def _ranges(indexes: Iterable[int]) -> str:
    """Return indexes in the notation of a Job's status, such as "0-3,5"."""
    found: list[list[int]] = []
    for index in sorted(set(indexes)):
        if found and found[-1][-1] == index - 1:
            found[-1].append(index)
        else:
            found.append([index])
    return ",".join(str(each[0]) if len(each) == 1 else f"{each[0]}{'-' if len(each) > 2 else ','}{each[-1]}" for each in found)


def _outcome(spec: Body, tally: _Tally, active: int) -> Body | None:
    """Return the condition that ends a Job, or None while the Job continues."""
    if len(tally.failed) > spec["backoffLimit"]:
        return {"type": "Failed", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    completions = spec.get("completions")
    if (tally.succeeded and not active) if completions is None else _successes(spec, tally) >= completions:
        return {"type": "Complete", "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}
    return None


def _is_finished(job: Body) -> bool:
    return workload.has_condition(job, "Complete") or workload.has_condition(job, "Failed")


def _is_ignored(spec: Body, pod: Record) -> bool:
    """Return whether the Job's failure policy ignores a pod because a disruption ended it."""
    disrupted = workload.has_condition(pod.body, "DisruptionTarget")
    return disrupted and any(
        rule.get("action") == "Ignore" and pattern.get("type") == "DisruptionTarget"
        for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ()
        for pattern in rule.get("onPodConditions") or ()
    )


def _index_of(pod: Record) -> str | None:
    index = (pod.body["metadata"].get("annotations") or {}).get(INDEX_ANNOTATION)
    return None if index is None else str(index)
