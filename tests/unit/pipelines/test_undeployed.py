"""While pipelines are off, a pipeline that nobody deploys is told so, once, and no other is touched."""

from typing import Any, cast

import pytest

from allaboard.kube.client import ApiError, ApiServer
from allaboard.pipelines.objects import MLFLOWS, Body
from allaboard.pipelines.undeployed import GRACE_SECONDS, PIPELINES_ARE_OFF, UndeployedPipelines, undeployed_from, until_readable
from allaboard.report.events import EventRecorder
from allaboard.report.writer import Writer
from tests.unit.pipelines.mlflows import mlflow
from tests.unit.pipelines.test_reconciler import Line, Server


class Cluster:
    """MLFlows on a server, and who tells them. ``apply`` is what a user does, and the watch event of it."""

    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.now, self.leads = 100.0, True
        self.server, self.line = Server(), Line()
        server, writer = cast(ApiServer, self.server), cast(Writer, self.line)
        events = EventRecorder(server, writer, "allaboard", "allaboard-1")
        self.undeployed = UndeployedPipelines(
            server, writer, events, leads=lambda: self.leads, namespaces=namespaces, clock=lambda: self.now
        )

    def apply(self, raw: Body) -> None:
        self.server.put(MLFLOWS.kind, raw)
        self.hear()

    def hear(self) -> None:
        raw = self.server.objects[MLFLOWS.kind, "ml", "lstm"]
        self.undeployed.upsert("ml/lstm", undeployed_from(raw))

    async def after(self, seconds: float) -> None:
        self.now += seconds
        self.undeployed.look()
        await self.line.drain()

    def told(self) -> Any:
        return self.server.objects[MLFLOWS.kind, "ml", "lstm"].get("status")

    def events(self) -> list[tuple[str, str]]:
        return [(each["reason"], each["note"]) for key, each in self.server.objects.items() if key[0] == "Event"]


async def test_a_pipeline_that_nobody_deploys_is_told_so_by_an_event_and_its_condition() -> None:
    cluster = Cluster()
    cluster.apply(mlflow())
    await cluster.after(GRACE_SECONDS - 1)
    assert (cluster.told(), cluster.events()) == (None, [])
    await cluster.after(1)
    (condition,) = cluster.told()["conditions"]
    assert (condition["type"], condition["status"], condition["message"]) == ("Ready", "False", PIPELINES_ARE_OFF)
    assert (cluster.told()["phase"], cluster.told()["observedGeneration"]) == ("Failed", 3)
    assert cluster.events() == [("PipelinesOff", PIPELINES_ARE_OFF)]
    cluster.hear()
    await cluster.after(60)
    assert len(cluster.events()) == 1


async def test_a_pipeline_that_another_operator_deploys_is_left_alone() -> None:
    cluster = Cluster()
    cluster.apply(mlflow())
    status = {"status": {"observedGeneration": 3, "phase": "Deploying"}}
    cluster.apply({**mlflow(), **status})
    await cluster.after(60)
    assert (cluster.told(), cluster.events()) == (status["status"], [])
    # Nobody has taken a change of it, which is another generation.
    raw = mlflow()
    cluster.apply({**raw, **status, "metadata": {**raw["metadata"], "generation": 4}})
    await cluster.after(GRACE_SECONDS)
    assert cluster.told()["message"] == PIPELINES_ARE_OFF


@pytest.mark.parametrize("change", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}], ids=["terminating", "gone"])
async def test_a_pipeline_that_goes_is_told_nothing(change: dict[str, str]) -> None:
    cluster = Cluster()
    raw = mlflow()
    cluster.apply(raw)
    if change:
        cluster.apply({**raw, "metadata": {**raw["metadata"], **change}})
    else:
        cluster.undeployed.remove("ml/lstm")
    assert set(cluster.undeployed.known()) == ({"ml/lstm"} if change else set())
    await cluster.after(60)
    assert cluster.events() == []


async def test_pipelines_of_other_operators_namespaces_are_told_nothing() -> None:
    cluster = Cluster(namespaces=("research",))
    cluster.apply(mlflow())
    await cluster.after(60)
    assert cluster.events() == []


async def test_only_the_leader_tells_and_a_new_one_does() -> None:
    cluster = Cluster()
    cluster.leads = False
    cluster.apply(mlflow())
    await cluster.after(60)
    assert cluster.events() == []
    cluster.leads = True
    await cluster.after(0)
    assert len(cluster.events()) == 1


async def test_a_pipeline_that_can_not_be_read_is_told_the_same() -> None:
    cluster = Cluster()
    cluster.apply({**mlflow(), "spec": {"pipeline": {"first": {}}}})
    await cluster.after(GRACE_SECONDS)
    assert cluster.told()["message"] == PIPELINES_ARE_OFF


async def test_until_the_kind_is_known_and_may_be_read_nothing_is_complained_of(caplog: pytest.LogCaptureFixture) -> None:
    answers = [ApiError(404, "NotFound", "no such kind"), ApiError(403, "Forbidden", "not yours"), None]
    slept: list[float] = []

    class Served:
        async def get(self, path: object, query: object) -> dict[str, object]:
            if error := answers.pop(0):
                raise error
            return {"items": []}

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await until_readable(cast(ApiServer, Served()), MLFLOWS.everywhere, sleep)
    assert (len(slept), answers) == (2, [])
    assert caplog.records == []
