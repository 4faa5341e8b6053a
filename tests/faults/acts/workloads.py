"""Acts on gangs: they arrive, change, run, lose members and end."""

from contextlib import suppress
from dataclasses import replace

from allaboard_sandbox import ApiError
from allaboard_sandbox.faults import FOR_EVER

from ..gangs import HIGH, OWNER, SUSPENDED, Body, GangSpec, app_of, manifests, pod_of, workload_name
from ..judge.facts import QUEUE
from ..simulation import NODES, Simulation, happens


class Workloads(Simulation):
    """A simulation with acts on gangs."""

    @happens
    def add(self, spec: GangSpec) -> GangSpec:
        """Create a gang, and return its spec with the UID of its owner, if it has one."""
        if spec.kind == "operated":
            made = self.sandbox.create({**OWNER, "metadata": {"name": spec.base, "namespace": spec.namespace}})
            spec = replace(spec, owner=made["metadata"]["uid"])
        self.gangs.append(spec)
        for manifest in manifests(spec):
            with suppress(ApiError):  # there may be no PodGroup CRD, or the PodGroup exists already
                self.sandbox.create(manifest)
        return spec

    @happens
    def end_gang(self, spec: GangSpec) -> None:
        """Delete a gang, in whatever state it is."""
        self.ended.add(spec)
        self.judge.note_loss("a gang is deleted", spec)
        self._delete(spec)

    @happens
    def leave(self, spec: GangSpec) -> None:
        """Delete the controllers and pods of a gang; pods with a finalizer stay for a while."""
        self.ended.add(spec)
        self.judge.note_loss("a gang is deleted", spec)
        self._delete(spec, is_forced=False)

    def _delete(self, spec: GangSpec, *, is_forced: bool = True) -> None:
        """Delete a gang: the controllers first, so that they recreate no pod. ``is_forced``: also pods that a finalizer holds."""
        kinds = ("deployments", "replicasets", "jobs", "configmaps")
        workloads = [(plural, workload_name(spec, role)) for plural in kinds for role in spec.roles]
        pods = [("pods", pod["metadata"]["name"]) for pod in self.judge.books.members(spec)]
        is_last = not any((each.namespace, each.name) == (spec.namespace, spec.name) for each in self.present)
        groups = [("podgroups", spec.name)] if self.serves_groups and is_last else []
        for plural, name in (*workloads, *pods, *groups):
            with suppress(ApiError):  # not every gang has each of these objects
                self.sandbox.delete(plural, name, spec.namespace, grace=0)
        if is_forced:
            self.remove_finalizers(f"{spec.base}-")

    @happens
    def delete_member(self, spec: GangSpec, number: int, *, grace: int | None = None) -> None:
        """Delete a member, and note the loss."""
        if members := self.judge.members(spec):
            name = members[number % len(members)]["metadata"]["name"]
            self.judge.note_loss("a member is deleted", spec)
            with suppress(ApiError):
                self.sandbox.delete("pods", name, spec.namespace, grace=grace)

    @happens
    def replace_member(self, spec: GangSpec, number: int) -> None:
        """Delete a bare member at once, and create another of its name."""
        members = self.judge.members(spec)
        if members and spec.is_named:
            name = members[number % len(members)]["metadata"]["name"]
            self.judge.note_loss("a member is replaced", spec)
            self.sandbox.delete("pods", name, spec.namespace, grace=0)
            with suppress(ApiError):
                self.sandbox.create(pod_of(spec, name))

    @happens
    def lose_all_bound(self, spec: GangSpec) -> None:
        """Evict all bound members of a gang."""
        for pod in self.judge.bound(spec):
            self.judge.note_loss("a member is evicted", spec)
            with suppress(ApiError):
                self.sandbox.delete("pods", pod["metadata"]["name"], spec.namespace)

    @happens
    def hold(self, spec: GangSpec) -> None:
        """Set a finalizer on all present members, which holds them when they are deleted."""
        for pod in self.judge.members(spec):
            self.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": ["example.com/held"]}}, spec.namespace)

    @happens
    def remove_finalizers(self, prefix: str) -> None:
        """Remove the finalizers of pods whose names begin with ``prefix``."""
        for pod in self.sandbox.list("pods", "default"):
            if pod["metadata"]["name"].startswith(prefix) and pod["metadata"].get("finalizers"):
                self.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": None}})

    @happens
    def finish(self, spec: GangSpec, number: int | None = None, phase: str = "Succeeded") -> None:
        """Let running members end: one, or all if ``number`` is None."""
        running = [pod for pod in self.judge.bound(spec) if pod["status"].get("phase") == "Running"]
        for pod in running if number is None else running[number % len(running) :][:1] if running else ():
            if phase == "Failed":
                self.judge.note_loss("a member fails", spec)
            else:
                self.judge.note("a member ends", gang=spec)
            self.sandbox.finish_pod(pod["metadata"]["name"], spec.namespace, phase=phase)

    @happens
    def scale(self, spec: GangSpec, replicas: int) -> None:
        """Scale the controller of a gang."""
        plural = {"controlled": "replicasets", "deployed": "deployments"}.get(spec.kind)
        if plural and self.sandbox.get(plural, spec.base, spec.namespace):
            self.judge.note_loss("a workload is scaled", spec)
            self.sandbox.patch(plural, spec.base, {"spec": {"replicas": replicas}}, spec.namespace)

    @happens
    def run_again(self, spec: GangSpec) -> None:
        """Create the next run of a bare gang whose earlier pods have ended and still exist."""
        if not spec.is_bare or self.judge.members(spec):
            return
        self._runs += 1
        for name, role in spec.bare_names.items():
            pod = pod_of(spec, name)
            pod["metadata"]["name"] = f"{name}-run{self._runs}"
            del role
            with suppress(ApiError):
                self.sandbox.create(pod)

    @happens
    def submit_again(self, spec: GangSpec) -> GangSpec | None:
        """Submit a job again under its gang's name; None if a scheduler couldn't distinguish the new pods from the old submission's.

        That is so for a ReplicaSet: pods of a second ReplicaSet would be members of the same run. It is so for bare pods, unless earlier
        pods have succeeded and none was lost.
        """
        if spec.kind not in ("job", "operated", "bare") or spec.is_single or spec.is_gated:
            return None
        if spec.kind == "bare" and not (self.judge.lives.succeeded(spec) and not self.judge.lives.lost(spec)):
            return None
        number = max(each.submission for each in self.gangs if (each.namespace, each.name) == (spec.namespace, spec.name)) + 1
        again = replace(spec, submission=number, owner="")
        if spec.kind == "bare":
            self.superseded.add(spec)
        self.judge.note("a job is submitted again", gang=again)
        return self.add(again)

    @happens
    def roll_out(self, spec: GangSpec, change: Body) -> None:
        """Change the template of a Deployment, which replaces its pods one after the other."""
        if spec.kind == "deployed" and self.sandbox.get("deployments", spec.base, spec.namespace):
            self._late.append(self.judge.note("a workload is rolled out", gang=spec, seconds=FOR_EVER))
            self.sandbox.patch("deployments", spec.base, {"spec": {"template": change}}, spec.namespace)

    @happens
    def raise_priority(self, spec: GangSpec) -> None:
        """Give the template of a ReplicaSet a higher priority."""
        if spec.kind == "controlled":
            self.judge.note("the priority is changed", gang=spec)
            self.sandbox.patch("replicasets", spec.base, {"spec": {"template": {"spec": {"priorityClassName": HIGH}}}}, spec.namespace)

    @happens
    def reject(self, spec: GangSpec, number: int) -> None:
        """Let a kubelet reject a bound member that hasn't started."""
        waiting = [pod for pod in self.judge.bound(spec) if pod["status"].get("phase") == "Pending"]
        if waiting:
            self._reject(spec, waiting[number % len(waiting)])

    @happens
    def reject_every_pod(self, node: int) -> None:
        """Let a kubelet reject every new pod until the world settles."""
        self._rejecting_nodes.add(f"node-{node % NODES}")

    @happens
    def set_minimum(self, spec: GangSpec, minimum: int) -> None:
        """Edit the minMember of a gang's PodGroup."""
        if spec.has_group and self.sandbox.get("podgroups", spec.name, spec.namespace):
            for each in self.gangs:
                if (each.namespace, each.name) == (spec.namespace, spec.name):
                    self.judge.note("the minimum is edited", gang=each)
            self.sandbox.patch("podgroups", spec.name, {"spec": {"minMember": minimum}}, spec.namespace)

    @happens
    def delete_group(self, spec: GangSpec) -> None:
        """Delete a gang's PodGroup."""
        if self.serves_groups and self.sandbox.get("podgroups", spec.name, spec.namespace):
            for each in self.gangs:
                if (each.namespace, each.name) == (spec.namespace, spec.name):
                    self.judge.note("the PodGroup is deleted", gang=each)
            self.sandbox.delete("podgroups", spec.name, spec.namespace)

    @happens
    def suspend(self, spec: GangSpec, *, is_suspended: bool) -> None:
        """Suspend the Jobs of a gang, or resume them."""
        for job in self.sandbox.list("jobs", spec.namespace):
            if spec.kind == "job" and self.judge.books.gang_of_job(job) is spec:
                self.judge.note_loss("a Job is suspended" if is_suspended else "a Job goes on", spec)
                change = {"metadata": {"labels": {SUSPENDED: None}}, "spec": {"suspend": is_suspended}}
                self.sandbox.patch("jobs", job["metadata"]["name"], change, spec.namespace)

    @happens
    def give_to_queue(self, spec: GangSpec) -> None:
        """Give the Jobs of a gang to Kueue."""
        for job in self.sandbox.list("jobs", spec.namespace):
            if self.judge.books.gang_of_job(job) is spec:
                self.judge.note("a Job is given to a queue", gang=spec)
                self.sandbox.patch("jobs", job["metadata"]["name"], {"metadata": {"labels": {QUEUE: "default"}}}, spec.namespace)

    @happens
    def guard(self, spec: GangSpec) -> None:
        """Create a disruption budget that forbids evictions of a gang's pods until the world settles."""
        self._late.append(self.judge.note("a disruption budget is created", gang=spec, seconds=FOR_EVER))
        for role in spec.roles:
            metadata = {"name": workload_name(spec, role), "namespace": spec.namespace}
            budget = {"minAvailable": "100%", "selector": {"matchLabels": {"app": app_of(spec, role)}}}
            body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": budget}
            with suppress(ApiError):  # it exists already
                self.sandbox.create(body)

    @happens
    def annotate(self, spec: GangSpec, annotations: dict[str, str]) -> None:
        """Write annotations to all pods of a gang, as its tenant."""
        self.judge.note("pods are annotated", gang=spec)
        for pod in self.judge.members(spec):
            self.sandbox.patch("pods", pod["metadata"]["name"], {"metadata": {"annotations": annotations}}, spec.namespace)

    @happens
    def open_gates(self, spec: GangSpec) -> None:
        """Remove the scheduling gates of a gang's pods."""
        self.judge.note("gates are opened", gang=spec)
        for pod in self.judge.members(spec):
            if pod["spec"].get("schedulingGates"):
                self.sandbox.patch("pods", pod["metadata"]["name"], {"spec": {"schedulingGates": None}}, spec.namespace)

    @property
    def present(self) -> list[GangSpec]:
        """The gangs that haven't been deleted."""
        return [spec for spec in self.gangs if spec not in self.ended]

    @property
    def serves_groups(self) -> bool:
        """True if the cluster serves PodGroups."""
        return self.crd != "none"
