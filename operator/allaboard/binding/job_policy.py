"""Read from a batch Job whether it counts an evicted pod as failed.

A Job counts every lost pod as a failure, also a pod that was evicted before it ran, unless the Job's policy ignores disruptions.
"""

from collections.abc import Collection
from dataclasses import dataclass

from allaboard.kube.client import ApiServer, RawObject
from allaboard.kube.errors import ApiError, InvalidNameError
from allaboard.kube.paths import JOBS, ApiPath
from allaboard.model.disruption import policy_ignores_disruption
from allaboard.model.pod import OPTION_PREFIX, Pod

SUSPENDED = f"{OPTION_PREFIX}suspended"
"""Label of a Job that this scheduler has suspended. A Job without this label is never resumed.

The write that suspends the Job also adds the label, and the write that resumes the Job also removes it.
"""

_JOB_CONTROLLER = "kubernetes.io/job-controller"
_KUEUE_LABEL = "kueue.x-k8s.io/queue-name"  # Kueue suspends and resumes such a Job without owning it
_CONTROLLER_LABEL = "batch.kubernetes.io/controller-uid"


@dataclass(frozen=True, slots=True)
class Job:
    """A batch Job at one resourceVersion.

    ``manager`` is the name of another controller that suspends and resumes the Job, empty if there is none. ``is_labelled`` is true if
    this scheduler has suspended the Job. ``is_ending`` is true if the Job is being deleted.
    """

    path: ApiPath
    uid: str
    version: str
    selector: str
    manager: str
    is_suspended: bool
    is_labelled: bool
    is_ending: bool

    @classmethod
    def of(cls, raw: RawObject) -> "Job":
        """Return the record of a raw Job."""
        metadata, spec = raw["metadata"], raw["spec"]
        labels = metadata.get("labels") or {}
        selected = (spec.get("selector") or {}).get("matchLabels") or {_CONTROLLER_LABEL: metadata["uid"]}
        return cls(
            path=JOBS.named(metadata["namespace"], metadata["name"]),
            uid=metadata["uid"],
            version=metadata["resourceVersion"],
            selector=",".join(f"{key}={value}" for key, value in selected.items()),
            manager=_manager_of(metadata, spec, labels),
            is_suspended=spec.get("suspend") is True,
            is_labelled=SUSPENDED in labels,
            is_ending="deletionTimestamp" in metadata,
        )


async def ignores_disruption(server: ApiServer, pod: Pod) -> bool:
    """Return whether the batch Job of ``pod`` doesn't count an evicted pod as failed. Raises ``ApiError``.

    Returns false if the owner's name is no valid Job name, if the Job of that name has another UID, or if the scheduler may not read the
    Job (403). The pod is then left alone.
    """
    if pod.owner is None or not pod.is_of_job:
        return False
    try:
        job = await server.get(JOBS.named(pod.namespace, pod.owner.name))
    except InvalidNameError:
        return False
    except ApiError as error:
        if error.status == 404:
            return True  # no Job is left that could count the pod
        if error.status == 403:
            return False
        raise
    return job["metadata"].get("uid") == pod.owner.uid and policy_ignores_disruption(job)


def _manager_of(metadata: RawObject, spec: RawObject, labels: Collection[str]) -> str:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") is True:
            return f"{owner['kind']} {owner['name']}"
    managed_by = str(spec.get("managedBy") or _JOB_CONTROLLER)
    if managed_by != _JOB_CONTROLLER:
        return managed_by
    return "Kueue" if _KUEUE_LABEL in labels else ""
