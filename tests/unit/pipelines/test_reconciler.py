"""What the keeper does while others change the same objects: it never touches what isn't its own, and misses nothing."""

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
    """Objects by kind, namespace and name. ``then[verb, kind]`` happens once, when such a request comes, before it is answered."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Body] = {}
        self.then: dict[tuple[str, str], Callable[[], object]] = {}
        self.version = 0

    def put(self, kind: str, body: Body) -> Body:
        """Keep ``body`` as an API server does: with a version, and a UID where it has none."""
        self.version += 1
        metadata = {"uid": f"uid-{self.version}", **body["metadata"], "resourceVersion": str(self.version)}
        kept = self.objects[kind, metadata["namespace"], metadata["name"]] = copy.deepcopy({**body, "metadata": metadata})
        return copy.deepcopy(kept)

    def deployments(self) -> dict[str, str]:
        """The images of the Deployments there are, by namespace and name."""
        found = {f"{key[1]}/{key[2]}": each for key, each in self.objects.items() if key[0] == DEPLOYMENTS.kind}
        return {name: each["spec"]["template"]["spec"]["containers"][0]["image"] for name, each in found.items()}

    async def get(self, path: ApiPath, query: Mapping[str, str] | None = None) -> Body:
        self._turn("get" if query is None else "list", path)
        if query is None:
            return copy.deepcopy(self._found(path))
        if path.resource is FUNCTIONS:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        key, _, value = query["labelSelector"].partition("=")
        there = [each for (kind, namespace, _), each in self.objects.items() if (kind, namespace) == (path.resource.kind, path.namespace)]
        labels = [each["metadata"].get("labels") or {} for each in there]
        items = [each for each, own in zip(there, labels, strict=True) if key in own and value in ("", own[key])]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": copy.deepcopy(items)}

    async def post(self, path: ApiPath, body: Body) -> Body:
        self._turn("post", path)
        if path.resource is DEPLOYMENTS and (body["kind"], path.namespace, body["metadata"]["name"]) in self.objects:
            raise ApiError(409, "AlreadyExists", "it exists")
        return self.put(body["kind"], body)

    async def patch(self, path: ApiPath, body: Body) -> Body:
        self._turn("patch", path)
        found = self._found(path)
        self._check(found, body.get("metadata", {}))
        return self.put(path.resource.kind, {**found, **body, "metadata": {**found["metadata"], **body.get("metadata", {})}})

    async def delete(self, path: ApiPath, body: Body) -> Body:
        self._turn("delete", path)
        self._check(self._found(path), body.get("preconditions", {}))
        return self.objects.pop((path.resource.kind, path.namespace, path.name))

    def _check(self, found: Body, wanted: Body) -> None:
        if any(wanted.get(key, found["metadata"][key]) != found["metadata"][key] for key in ("uid", "resourceVersion")):
            raise ApiError(409, "Conflict", "it has changed")

    def _turn(self, verb: str, path: ApiPath) -> None:
        self.then.pop((verb, path.resource.kind), lambda: None)()

    def _found(self, path: ApiPath) -> Body:
        try:
            return self.objects[path.resource.kind, path.namespace, path.name]
        except KeyError:
            raise ApiError(404, "NotFound", "no such object", details={"name": path.name}) from None


class Line:
    """A ``Writer`` that does what it was given when it is told to."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}

    def put(self, key: str, job: Job, tenant: str = "", *, is_low: bool = False) -> bool:
        self.jobs[key] = job
        return True

    async def once(self) -> None:
        """Do what waits now, and not what that brings about."""
        jobs, self.jobs = self.jobs, {}
        for job in jobs.values():
            await job()

    async def drain(self) -> None:
        while self.jobs:
            await self.once()


class Cluster:
    """A keeper of pipelines and its server. ``apply`` is what a user does, and the watch event of it."""

    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.server, self.line = Server(), Line()
        server, writer = cast(ApiServer, self.server), cast(Writer, self.line)
        events = EventRecorder(server, writer, "allaboard", "allaboard-1")
        self.reconciler = PipelineReconciler(server, writer, events, Policy(namespaces=namespaces), leads=lambda: True, why=lambda gang: "")

    def store(self, raw: Body, generation: int = 3, uid: str = "") -> Body:
        """Have a pipeline on the server, of which nobody hears yet."""
        metadata = {**raw["metadata"], "generation": generation, "uid": uid or raw["metadata"]["uid"]}
        old = self.server.objects.get((MLFLOWS.kind, metadata["namespace"], metadata["name"]), {})
        return self.server.put(MLFLOWS.kind, {"status": old.get("status", {}), **raw, "metadata": metadata})

    def hear(self, name: str = "lstm") -> None:
        """The watch event of its newest state."""
        self.reconciler.upsert(f"ml/{name}", pipeline_from(self.server.objects[MLFLOWS.kind, "ml", name]))

    async def apply(self, raw: Body, generation: int = 3, uid: str = "") -> None:
        self.store(raw, generation, uid)
        self.hear(raw["metadata"]["name"])
        await self.line.drain()

    def events(self) -> list[tuple[str, str, str]]:
        """The type, reason and note of each event, in the order in which they came."""
        return [(each["type"], each["reason"], each["note"]) for key, each in self.server.objects.items() if key[0] == "Event"]

    def told(self, name: str = "lstm") -> Any:
        return self.server.objects[MLFLOWS.kind, "ml", name]["status"]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster(("fn",))
    yield made
    for timer in made.reconciler._timers.values():
        timer.cancel()


def stranger(name: str, namespace: str = "ml") -> Body:
    """A Deployment that somebody else has made."""
    template = {"spec": {"containers": [{"name": "main", "image": "theirs"}]}}
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"app": "payroll"}}, "spec": {"template": template}}


def of_image(image: str) -> Body:
    return mlflow(stage1={"step": [step("a", mlfun=image)]})


async def test_a_deployment_that_took_the_name_of_ours_while_we_looked_is_not_changed(cluster: Cluster) -> None:
    await cluster.apply(of_image("old"))
    cluster.server.then["patch", "Deployment"] = lambda: cluster.server.put("Deployment", stranger("lstm-a"))
    await cluster.apply(of_image("new"), 4)
    assert cluster.server.deployments() == {"ml/lstm-a": "theirs"}
    assert cluster.told()["phase"] == "Deploying"
    assert cluster.reconciler._timers.keys() == {"ml/lstm"}, "it is looked at again"


async def test_what_was_changed_while_we_looked_is_mended_at_the_next_look(cluster: Cluster) -> None:
    await cluster.apply(of_image("old"))
    key = ("Deployment", "ml", "lstm-a")
    cluster.server.then["patch", "Deployment"] = lambda: cluster.server.put("Deployment", cluster.server.objects[key])
    await cluster.apply(of_image("new"), 4)
    assert cluster.server.deployments() == {"ml/lstm-a": "old"}
    cluster.reconciler._look("ml/lstm")
    await cluster.line.drain()
    assert cluster.server.deployments() == {"ml/lstm-a": "new"}


async def test_a_deployment_that_took_the_name_of_a_step_taken_out_is_not_deleted(cluster: Cluster) -> None:
    await cluster.apply(mlflow(stage1=stage("a", "b")))
    cluster.server.then["get", "Deployment"] = lambda: cluster.server.put("Deployment", stranger("lstm-b"))
    await cluster.apply(mlflow(stage1=stage("a")), 4)
    assert cluster.server.deployments() == {"ml/lstm-a": "example/a:1", "ml/lstm-b": "theirs"}


async def test_a_deployment_that_comes_between_the_last_look_and_the_deletion_is_not_deleted(cluster: Cluster) -> None:
    await cluster.apply(mlflow(stage1=stage("a", "b")))
    cluster.server.then["delete", "Deployment"] = lambda: cluster.server.put("Deployment", stranger("lstm-b"))
    await cluster.apply(mlflow(stage1=stage("a")), 4)
    assert cluster.server.deployments() == {"ml/lstm-a": "example/a:1", "ml/lstm-b": "theirs"}


async def test_a_change_that_only_the_reply_to_a_status_tells_of_is_carried_out(cluster: Cluster) -> None:
    await cluster.apply(of_image("old"))
    found = cluster.server.objects["Deployment", "ml", "lstm-a"]
    cluster.server.put("Deployment", found | status(ready=True))
    cluster.server.then["patch", "MLFlow"] = lambda: cluster.store(of_image("new"), 4)
    cluster.reconciler._look("ml/lstm")
    await cluster.line.once()
    cluster.hear()  # one event for both changes, which tells nothing that the reply hasn't told
    await cluster.line.drain()
    assert cluster.server.deployments() == {"ml/lstm-a": "new"}
    assert cluster.told()["observedGeneration"] == 4


async def test_a_pipeline_made_anew_while_a_status_was_written_is_told_of_its_own(cluster: Cluster) -> None:
    cluster.server.then["patch", "MLFlow"] = lambda: cluster.store(of_image("new"), uid="another")
    await cluster.apply(mlflow(stage1=stage("b")))
    cluster.hear()
    await cluster.line.drain()
    assert cluster.server.deployments() == {"ml/lstm-a": "new", "ml/lstm-b": "example/b:1"}, "the garbage collector deletes the old one"
    assert cluster.server.objects["Deployment", "ml", "lstm-a"]["metadata"]["ownerReferences"][0]["uid"] == "another"
    assert cluster.told()["stages"][0]["total"] == 1


async def test_a_pipeline_beyond_the_limit_stays_undeployed_however_often_it_is_looked_at(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allaboard.pipelines.reconciler.PIPELINES", Limit("pipelines", 1, "pipelines of a namespace"))
    await cluster.apply(mlflow("first", stage1=stage("a")))
    await cluster.apply(mlflow("second", stage1=stage("a")))
    cluster.reconciler._look("ml/second")  # its status has been written, and the event of that hasn't come
    await cluster.line.drain()
    assert cluster.server.deployments() == {"ml/first-a": "example/a:1"}
    assert "more than 1 pipelines of a namespace" in cluster.told("second")["message"]


async def test_a_pipeline_that_was_made_anew_takes_nothing_from_the_one_before_and_leaves_nothing_of_it(cluster: Cluster) -> None:
    there = mlflow(stage1={**stage("a"), "namespace": "fn"})
    await cluster.apply(there)
    assert cluster.server.deployments() == {"fn/lstm-a": "example/a:1"}
    await cluster.apply(mlflow(stage1=stage("b")), uid="another")
    assert cluster.server.deployments() == {"ml/lstm-b": "example/b:1"}


async def test_what_fails_is_told_by_an_event_and_in_the_log_once_until_it_changes(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    stages = {"stage1": stage("Not_A_Name"), "stage2": stage("b")}
    await cluster.apply(mlflow(**stages))
    cluster.hear()
    cluster.reconciler._look("ml/lstm")
    await cluster.line.drain()
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


async def test_what_fails_again_after_it_was_mended_is_told_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.apply(mlflow(stage1=stage("A")), 3)
    await cluster.apply(mlflow(stage1=stage("a")), 4)
    await cluster.apply(mlflow(stage1=stage("A")), 5)
    assert len(caplog.records) == 2
