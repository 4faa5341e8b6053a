"""training-operator's TFJob controller (v1.9), with the behaviour that matters to a gang scheduler.

Pods have fixed names, so a lost pod is replaced by a pod with the same name and a new UID. A Running pod that is being deleted counts as
failed and fails the whole job, whatever its restart policy. A pod that doesn't run yet is simply created again. (Both were observed on the
real operator.)
Left out: TF_CONFIG, back-off limits, deadlines, time to live.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from allaboard_sandbox import quantities
from allaboard_sandbox.api import Api
from allaboard_sandbox.controllers import workload
from allaboard_sandbox.controllers.ownership import Ownership, keys_of, reference_to
from allaboard_sandbox.store import Body, Change, Key, Record

TABLE = "tfjobs.kubeflow.org"
COMPONENT = "tfjob-controller"
LABEL = "training.kubeflow.org/"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
CANONICAL_TYPES = {each.lower(): each for each in ("PS", "Worker", "Chief", "Master", "Evaluator")}
PORT = {"name": "tfjob-port", "port": 2222, "targetPort": 2222}
RETRYABLE_EXIT_CODES = range(128, 256)


@dataclass(frozen=True, slots=True)
class _Role:
    """One replica type of a TFJob."""

    type: str
    replicas: int
    restart_policy: str
    template: Body


@dataclass(slots=True)
class _Count:
    """The numbers of a role's pods by state, as the job's status counts them."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    restarting: bool = False


class TFJobController:
    """The controller that runs the pods of each TFJob, and writes its PodGroup if a gang scheduler is configured."""

    def __init__(self, api: Api, ownership: Ownership, *, gang_scheduler_name: str = "") -> None:
        self._api = api
        self._ownership = ownership
        self._scheduler = gang_scheduler_name

    def keys(self, change: Change) -> Iterator[Key]:
        """Return the TFJob that a changed object is or belongs to."""
        return keys_of(change, TABLE, "TFJob", ("pods", "services", "podgroups.scheduling.x-k8s.io"))

    def reconcile(self, key: Key) -> None:
        """Create or delete the pods of a TFJob as its state requires, and write its status."""
        job = workload.living(self._api, TABLE, key)
        if job is None:
            return
        roles = _roles(job.body)
        if workload.has_condition(job.body, "Succeeded") or workload.has_condition(job.body, "Failed"):
            self._clean_up(job)
            return
        if (job.body["spec"].get("runPolicy") or {}).get("suspend"):
            self._suspend(job)
            return
        if self._scheduler:
            self._sync_pod_group(job, roles)
        counts = {role.type: self._sync_role(job, role, roles) for role in roles}
        self._write_status(job, roles, counts)

    def _sync_role(self, job: Record, role: _Role, roles: list[_Role]) -> _Count:
        count = _Count()
        owned = {pod.key[1]: pod for pod in self._ownership.owned(job, "pods")}
        for index in range(role.replicas):
            name = f"{job.key[1]}-{role.type.lower()}-{index}"
            pod = owned.get(name)
            if pod is None:
                self._create_pod(job, role, roles, index, name)
            elif pod.body["status"].get("phase") == "Failed" and _is_restartable(role, pod):
                count.restarting = True
                self._api.delete(self._api.resource("pods"), *pod.key)
            else:
                _count_pod(count, pod)
            if self._api.store.table("services").get((job.key[0], name)) is None:
                self._create_service(job, role, index, name)
        return count

    def _create_pod(self, job: Record, role: _Role, roles: list[_Role], index: int, name: str) -> None:
        labels = _labels(job, role, index)
        if role.type in ("Chief", "Master") or (role.type == "Worker" and index == 0 and _chief(roles) is None):
            labels[f"{LABEL}job-role"] = "master"
        template = role.template
        if self._scheduler:
            labels[GROUP_LABEL] = job.key[1]
            template = self._with_scheduler(job, template)
        restart_policy = "Never" if role.restart_policy == "ExitCode" else role.restart_policy
        template = {**template, "spec": {**(template.get("spec") or {}), "restartPolicy": restart_policy}}
        owner = reference_to(self._api.resource(TABLE), job)
        self._api.create(self._api.resource("pods"), job.key[0], workload.pod_from(template, owner, labels=labels, name=name))
        self._emit(job, "Normal", "SuccessfulCreatePod", f"Created pod: {name}")

    def _with_scheduler(self, job: Record, template: Body) -> Body:
        spec = template.get("spec") or {}
        chosen = spec.get("schedulerName") or self._scheduler
        if chosen != self._scheduler:
            warning = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
            self._emit(job, "Warning", "SetPodTemplateSchedulerName", warning)
        return {**template, "spec": {**spec, "schedulerName": chosen}}

    def _create_service(self, job: Record, role: _Role, index: int, name: str) -> None:
        labels = _labels(job, role, index)
        owner = reference_to(self._api.resource(TABLE), job)
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {"clusterIP": "None", "ports": [PORT], "selector": labels},
        }
        self._api.create(self._api.resource("services"), job.key[0], service)
        self._emit(job, "Normal", "SuccessfulCreateService", f"Created service: {name}")

    def _sync_pod_group(self, job: Record, roles: list[_Role]) -> None:
        resource = self._api.registry.get("scheduling.x-k8s.io", "v1alpha1", "podgroups")
        if resource is None:
            return
        policy = (job.body["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
        minimum = policy.get("minAvailable") or sum(role.replicas for role in roles)
        spec = {"minMember": minimum, "minResources": policy.get("minResources") or _minimum_resources(roles, minimum)}
        if timeout := policy.get("scheduleTimeoutSeconds"):
            spec["scheduleTimeoutSeconds"] = timeout
        existing = self._api.store.table(resource.table).get(job.key)
        if existing is not None:
            # training-operator writes only the fields it knows: each reconcile removes all other fields of the spec.
            self._api.update(resource, *job.key, {**existing.body, "spec": spec})
            return
        metadata: Body = {"name": job.key[1], "ownerReferences": [reference_to(self._api.resource(TABLE), job)]}
        if annotations := job.body["metadata"].get("annotations"):
            metadata["annotations"] = annotations
        group = {"apiVersion": resource.group_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
        self._api.create(resource, job.key[0], group)

    def _delete_pod_group(self, job: Record) -> None:
        resource = self._api.registry.get("scheduling.x-k8s.io", "v1alpha1", "podgroups")
        if resource and self._scheduler and self._api.store.table(resource.table).get(job.key):
            self._api.delete(resource, *job.key)
            self._emit(job, "Normal", "SuccessfulDeletePodGroup", f"Deleted PodGroup: {job.key[1]}")

    def _clean_up(self, job: Record) -> None:
        """Delete the PodGroup of a finished job, and the pods that its ``cleanPodPolicy`` names (by default none)."""
        policy = (job.body["spec"].get("runPolicy") or {}).get("cleanPodPolicy") or "None"
        for pod in list(self._ownership.owned(job, "pods")):
            if policy == "All" or (policy == "Running" and workload.is_active(pod)):
                self._api.delete(self._api.resource("pods"), *pod.key)
        self._delete_pod_group(job)

    def _suspend(self, job: Record) -> None:
        for pod in list(self._ownership.owned(job, "pods")):
            if not workload.is_terminating(pod):
                self._api.delete(self._api.resource("pods"), *pod.key)
        self._delete_pod_group(job)
        conditions = self._with_condition(job, "Suspended", "TFJobSuspended", f"TFJob {job.key[1]} is suspended.")
        workload.set_status(self._api, self._api.resource(TABLE), job, {"conditions": conditions, "replicaStatuses": {}})

    def _write_status(self, job: Record, roles: list[_Role], counts: dict[str, _Count]) -> None:
        name, before = job.key[1], job.body.get("status") or {}
        status: Body = {**before, "startTime": before.get("startTime") or self._api.now()}
        if not before.get("conditions"):
            status["conditions"] = self._with_condition(job, "Created", "TFJobCreated", f"TFJob {name} is created.")
        status["replicaStatuses"] = {
            role.type: {field: value for field in ("active", "succeeded", "failed") if (value := getattr(counts[role.type], field))}
            for role in roles
        }
        verdict = self._verdict(job, roles, counts)
        if verdict and not workload.has_condition(job.body, verdict[0]):
            staged = Record(job.key, {**job.body, "status": status}, job.revision)
            status["conditions"] = self._with_condition(staged, *verdict)
            if verdict[0] in ("Succeeded", "Failed"):
                status["completionTime"] = self._api.now()
                self._emit(job, "Normal" if verdict[0] == "Succeeded" else "Warning", verdict[1], verdict[2])
        workload.set_status(self._api, self._api.resource(TABLE), job, status)

    def _verdict(self, job: Record, roles: list[_Role], counts: dict[str, _Count]) -> tuple[str, str, str] | None:
        """Return the condition that follows from the job's pods, or None (training-operator tfjob_controller.go, UpdateJobStatus).

        The condition is a triple of type, reason and message.
        """
        name = f"TFJob {job.key[0]}/{job.key[1]}"
        for role in roles:
            if failed := counts[role.type].failed:
                message = f"{name} has failed because {failed} {role.type} replica(s) failed."
                return "Failed", "TFJobFailed", message
            if counts[role.type].restarting:
                message = f"{name} is restarting because {role.type} replica(s) failed."
                return "Restarting", "TFJobRestarting", message
        leader = _chief(roles) or next((role for role in roles if role.type == "Worker"), None)
        if leader is None:
            return None
        count = counts[leader.type]
        all_workers = job.body["spec"].get("successPolicy") == "AllWorkers"
        first_done = leader.type == "Worker" and not all_workers and self._first_worker_succeeded(job)
        if leader.replicas and (count.succeeded >= leader.replicas or first_done):
            return "Succeeded", "TFJobSucceeded", f"{name} successfully completed."
        return ("Running", "TFJobRunning", f"{name} is running.") if count.active else None

    def _first_worker_succeeded(self, job: Record) -> bool:
        pod = self._api.store.table("pods").get((job.key[0], f"{job.key[1]}-worker-0"))
        return pod is not None and pod.body["status"].get("phase") == "Succeeded"

    def _with_condition(self, job: Record, type: str, reason: str, message: str) -> list[Body]:
        now, kept = self._api.now(), []
        for each in (job.body.get("status") or {}).get("conditions") or ():
            if each["type"] == type or (type, each["type"]) in (("Restarting", "Running"), ("Running", "Restarting")):
                continue
            # A job that has ended or is suspended is no longer running.
            ended = type in ("Succeeded", "Failed", "Suspended") and each["type"] == "Running"
            kept.append({**each, "status": "False", "lastTransitionTime": now} if ended else each)
        moment = {"lastUpdateTime": now, "lastTransitionTime": now}
        return [*kept, {"type": type, "status": "True", "reason": reason, "message": message, **moment}]

    def _emit(self, job: Record, type: str, reason: str, message: str) -> None:
        workload.emit(self._api, job, COMPONENT, type, reason, message)


def _roles(job: Body) -> list[_Role]:
    return [
        _Role(
            type=CANONICAL_TYPES.get(type.lower(), type),
            replicas=1 if spec.get("replicas") is None else int(spec["replicas"]),
            restart_policy=spec.get("restartPolicy") or "Never",
            template=spec.get("template") or {},
        )
        for type, spec in (job["spec"].get("tfReplicaSpecs") or {}).items()
    ]


def _chief(roles: list[_Role]) -> _Role | None:
    return next((role for role in roles if role.type in ("Chief", "Master")), None)


def _labels(job: Record, role: _Role, index: int) -> dict[str, str]:
    return {
        f"{LABEL}operator-name": COMPONENT,
        f"{LABEL}job-name": job.key[1],
        f"{LABEL}replica-type": role.type.lower(),
        f"{LABEL}replica-index": str(index),
    }


def _count_pod(count: _Count, pod: Record) -> None:
    phase = pod.body["status"].get("phase")
    if phase == "Succeeded":
        count.succeeded += 1
    elif phase == "Failed" or (phase == "Running" and workload.is_terminating(pod)):
        count.failed += 1
    elif phase == "Running":
        count.active += 1


def _is_restartable(role: _Role, pod: Record) -> bool:
    if role.restart_policy in ("OnFailure", "Always"):
        return True
    if role.restart_policy != "ExitCode":
        return False
    states = ((each.get("state") or {}).get("terminated") or {} for each in pod.body["status"].get("containerStatuses") or ())
    return any(state.get("exitCode") in RETRYABLE_EXIT_CODES for state in states)


def _minimum_resources(roles: list[_Role], members: int) -> dict[str, str]:
    """Return the sum of resources that training-operator computes for the first ``members`` pods.

    The sum has training-operator's flaw: the limits of a container count only if the container has no requests at all.
    """
    found: dict[str, list[str]] = {}
    left = members
    for role in roles:
        counted = min(role.replicas, left)
        left -= counted
        for container in (role.template.get("spec") or {}).get("containers") or ():
            resources = container.get("resources") or {}
            for name, amount in (resources.get("requests") or resources.get("limits") or {}).items():
                found.setdefault(name, []).extend([str(amount)] * counted)
    return {name: quantities.total(texts) for name, texts in found.items() if texts}
