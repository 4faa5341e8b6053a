"""Tests the reconciler while other clients change the same objects: it never touches foreign objects, and misses no change."""

import copy
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import pytest

from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import ApiPath
from allaboard.model.limits import Limit
from allaboard.pipelines.objects import DEPLOYMENTS, FUNCTIONS, MLFLOWS, Body
from allaboard.pipelines.reconciler import PipelineReconciler
from allaboard.pipelines.stages import Policy, pipeline_from
from allaboard.report.events import EventRecorder
from allaboard.report.writer import Job, Writer
from tests.unit.pipelines.mlflows import mlflow, stage, status, step


class Server:
    """An API server with objects by kind, namespace and name. ``hooks[verb, kind]`` is called once, before such a request is answered."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Body] = {}
        self.hooks: dict[tuple[str, str], Callable[[], object]] = {}
        self.version = 0

    def put(self, kind: str, body: Body) -> Body:
        """Store ``body`` with a new version, and with a new UID if it has none."""
        self.version += 1
        metadata = {"uid": f"uid-{self.version}", **body["metadata"], "resourceVersion": str(self.version)}
        stored = self.objects[kind, metadata["namespace"], metadata["name"]] = copy.deepcopy({**body, "metadata": metadata})
        return copy.deepcopy(stored)

    def deployments(self) -> dict[str, str]:
        """Return the images of all Deployments, by namespace and name."""
        found = {f"{key[1]}/{key[2]}": each for key, each in self.objects.items() if key[0] == DEPLOYMENTS.kind}
        return {name: each["spec"]["template"]["spec"]["containers"][0]["image"] for name, each in found.items()}

    async def get(self, path: ApiPath, query: Mapping[str, str] | None = None) -> Body:
        self._run_hook("get" if query is None else "list", path)
        if query is None:
            return copy.deepcopy(self._found(path))
        if path.resource is FUNCTIONS:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        key, _, value = query["labelSelector"].partition("=")
        present = [each for (kind, namespace, _), each in self.objects.items() if (kind, namespace) == (path.resource.kind, path.namespace)]
        labels = [each["metadata"].get("labels") or {} for each in present]
        items = [each for each, own in zip(present, labels, strict=True) if key in own and value in ("", own[key])]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": copy.deepcopy(items)}

    async def post(self, path: ApiPath, body: Body) -> Body:
        self._run_hook("post", path)
        if path.resource is DEPLOYMENTS and (body["kind"], path.namespace, body["metadata"]["name"]) in self.objects:
            raise ApiError(409, "AlreadyExists", "it exists")
        return self.put(body["kind"], body)

    async def patch(self, path: ApiPath, body: Body) -> Body:
        self._run_hook("patch", path)
        found = self._found(path)
        self._check(found, body.get("metadata", {}))
        return self.put(path.resource.kind, {**found, **body, "metadata": {**found["metadata"], **body.get("metadata", {})}})

    async def delete(self, path: ApiPath, body: Body) -> Body:
        self._run_hook("delete", path)
        self._check(self._found(path), body.get("preconditions", {}))
        return self.objects.pop((path.resource.kind, path.namespace, path.name))

    def _check(self, found: Body, wanted: Body) -> None:
        if any(wanted.get(key, found["metadata"][key]) != found["metadata"][key] for key in ("uid", "resourceVersion")):
            raise ApiError(409, "Conflict", "it has changed")

    def _run_hook(self, verb: str, path: ApiPath) -> None:
        self.hooks.pop((verb, path.resource.kind), lambda: None)()

    def _found(self, path: ApiPath) -> Body:
        try:
            return self.objects[path.resource.kind, path.namespace, path.name]
        except KeyError:
            raise ApiError(404, "NotFound", "no such object", details={"name": path.name}) from None


class ManualWriter:
    """A ``Writer`` that does its jobs when a test calls ``once`` or ``drain``."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}

    def put(self, key: str, job: Job, tenant: str = "", *, is_low: bool = False) -> bool:
        self.jobs[key] = job
        return True

    async def once(self) -> None:
        """Do the jobs that wait now, and not the jobs that these put."""
        jobs, self.jobs = self.jobs, {}
        for job in jobs.values():
            await job()

    async def drain(self) -> None:
        while self.jobs:
            await self.once()


class Cluster:
    """A reconciler and its server. ``apply`` creates or changes an MLFlow, and delivers its watch event."""

    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.server, self.writer = Server(), ManualWriter()
        server, writer = cast(ApiServer, self.server), cast(Writer, self.writer)
        events = EventRecorder(server, writer, "allaboard", "allaboard-1")
        self.reconciler = PipelineReconciler(server, writer, events, Policy(namespaces=namespaces), leads=lambda: True, why=lambda gang: "")

    def store(self, raw: Body, generation: int = 3, uid: str = "") -> Body:
        """Store a pipeline on the server, without its watch event."""
        metadata = {**raw["metadata"], "generation": generation, "uid": uid or raw["metadata"]["uid"]}
        old = self.server.objects.get((MLFLOWS.kind, metadata["namespace"], metadata["name"]), {})
        return self.server.put(MLFLOWS.kind, {"status": old.get("status", {}), **raw, "metadata": metadata})

    def observe(self, name: str = "lstm") -> None:
        """Deliver the watch event of a pipeline's newest state."""
        self.reconciler.upsert(f"ml/{name}", pipeline_from(self.server.objects[MLFLOWS.kind, "ml", name]))

    async def apply(self, raw: Body, generation: int = 3, uid: str = "") -> None:
        self.store(raw, generation, uid)
        self.observe(raw["metadata"]["name"])
        await self.writer.drain()

    def events(self) -> list[tuple[str, str, str]]:
        """Return type, reason and note of each event, in the order of creation."""
        return [(each["type"], each["reason"], each["note"]) for key, each in self.server.objects.items() if key[0] == "Event"]

    def status(self, name: str = "lstm") -> Any:
        return self.server.objects[MLFLOWS.kind, "ml", name]["status"]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster(("fn",))
    yield made
    for timer in made.reconciler._timers.values():
        timer.cancel()


def foreign(name: str, namespace: str = "ml") -> Body:
    """Return a Deployment that another client has created."""
    template = {"spec": {"containers": [{"name": "main", "image": "theirs"}]}}
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"app": "payroll"}}, "spec": {"template": template}}


def of_image(image: str) -> Body:
    return mlflow(stage1={"step": [step("a", mlfun=image)]})


async def test_foreign_deployment_that_replaces_ours_before_the_patch_is_not_changed(cluster: Cluster) -> None:
    await cluster.apply(of_image("old"))
    cluster.server.hooks["patch", "Deployment"] = lambda: cluster.server.put("Deployment", foreign("lstm-a"))
    await cluster.apply(of_image("new"), 4)
    assert cluster.server.deployments() == {"ml/lstm-a": "theirs"}
    assert cluster.status()["phase"] == "Deploying"
    assert cluster.reconciler._timers.keys() == {"ml/lstm"}, "the pipeline is reconciled again"


async def test_deployment_that_was_changed_before_the_patch_is_repaired_at_the_next_reconciliation(cluster: Cluster) -> None:
    await cluster.apply(of_image("old"))
    key = ("Deployment", "ml", "lstm-a")
    cluster.server.hooks["patch", "Deployment"] = lambda: cluster.server.put("Deployment", cluster.server.objects[key])
    await cluster.apply(of_image("new"), 4)
    assert cluster.server.deployments() == {"ml/lstm-a": "old"}
    cluster.reconciler._queue("ml/lstm")
    await cluster.writer.drain()
    assert cluster.server.deployments() == {"ml/lstm-a": "new"}


async def test_foreign_deployment_with_the_name_of_a_removed_step_is_not_deleted(cluster: Cluster) -> None:
    await cluster.apply(mlflow(stage1=stage("a", "b")))
    cluster.server.hooks["get", "Deployment"] = lambda: cluster.server.put("Deployment", foreign("lstm-b"))
    await cluster.apply(mlflow(stage1=stage("a")), 4)
    assert cluster.server.deployments() == {"ml/lstm-a": "example/a:1", "ml/lstm-b": "theirs"}


async def test_foreign_deployment_that_replaces_ours_before_the_deletion_is_not_deleted(cluster: Cluster) -> None:
    await cluster.apply(mlflow(stage1=stage("a", "b")))
    cluster.server.hooks["delete", "Deployment"] = lambda: cluster.server.put("Deployment", foreign("lstm-b"))
    await cluster.apply(mlflow(stage1=stage("a")), 4)
    assert cluster.server.deployments() == {"ml/lstm-a": "example/a:1", "ml/lstm-b": "theirs"}


async def test_change_that_only_the_reply_to_a_status_write_shows_is_carried_out(cluster: Cluster) -> None:
    await cluster.apply(of_image("old"))
    found = cluster.server.objects["Deployment", "ml", "lstm-a"]
    cluster.server.put("Deployment", found | status(ready=True))
    cluster.server.hooks["patch", "MLFlow"] = lambda: cluster.store(of_image("new"), 4)
    cluster.reconciler._queue("ml/lstm")
    await cluster.writer.once()
    cluster.observe()  # one event for both changes, with the state that the reply already had
    await cluster.writer.drain()
    assert cluster.server.deployments() == {"ml/lstm-a": "new"}
    assert cluster.status()["observedGeneration"] == 4


async def test_pipeline_that_is_created_again_during_a_status_write_gets_its_own_objects_and_status(cluster: Cluster) -> None:
    cluster.server.hooks["patch", "MLFlow"] = lambda: cluster.store(of_image("new"), uid="another")
    await cluster.apply(mlflow(stage1=stage("b")))
    cluster.observe()
    await cluster.writer.drain()
    assert cluster.server.deployments() == {"ml/lstm-a": "new", "ml/lstm-b": "example/b:1"}, "the garbage collector deletes the old one"
    assert cluster.server.objects["Deployment", "ml", "lstm-a"]["metadata"]["ownerReferences"][0]["uid"] == "another"
    assert cluster.status()["stages"][0]["total"] == 1


async def test_pipeline_beyond_the_limit_stays_undeployed_when_it_is_reconciled_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allaboard.pipelines.reconciler.PIPELINES", Limit("pipelines", 1, "pipelines of a namespace"))
    await cluster.apply(mlflow("first", stage1=stage("a")))
    await cluster.apply(mlflow("second", stage1=stage("a")))
    cluster.reconciler._queue("ml/second")  # its status was written, and the watch event of that has not arrived
    await cluster.writer.drain()
    assert cluster.server.deployments() == {"ml/first-a": "example/a:1"}
    assert "more than 1 pipelines of a namespace" in cluster.status("second")["message"]


async def test_pipeline_that_is_created_again_deletes_the_objects_of_the_deleted_one(cluster: Cluster) -> None:
    elsewhere = mlflow(stage1={**stage("a"), "namespace": "fn"})
    await cluster.apply(elsewhere)
    assert cluster.server.deployments() == {"fn/lstm-a": "example/a:1"}
    await cluster.apply(mlflow(stage1=stage("b")), uid="another")
    assert cluster.server.deployments() == {"ml/lstm-b": "example/b:1"}


async def test_failure_is_reported_by_an_event_and_in_the_log_once_until_it_changes(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    stages = {"stage1": stage("Not_A_Name"), "stage2": stage("b")}
    await cluster.apply(mlflow(**stages))
    cluster.observe()
    cluster.reconciler._queue("ml/lstm")
    await cluster.writer.drain()
    ((kind, reason, note),) = cluster.events()
    assert (kind, reason) == ("Warning", "StageFailed")
    assert note.startswith("stage1: spec.pipeline.stage1.step[0].name: 'Not_A_Name' must be")
    assert [each.getMessage() for each in caplog.records] == [f"pipeline ml/lstm: {note}"]

    await cluster.apply(mlflow(**stages, stage3=stage("c", namespace="closed")), 4)
    assert [reason for _, reason, _ in cluster.events()] == ["StageFailed", "StageFailed"]
    assert cluster.events()[1][2].startswith("stage3: pipelines of namespace ml may not deploy into closed")

    await cluster.apply(mlflow(first=stage("a")), 5)
    assert cluster.events()[2][1:] == ("PipelineFailed", "spec.pipeline: 'first' is not the name of a stage, such as stage1")
    assert len(caplog.records) == 3


async def test_failure_that_was_fixed_and_returns_is_reported_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.apply(mlflow(stage1=stage("A")), 3)
    await cluster.apply(mlflow(stage1=stage("a")), 4)
    await cluster.apply(mlflow(stage1=stage("A")), 5)
    assert len(caplog.records) == 2
