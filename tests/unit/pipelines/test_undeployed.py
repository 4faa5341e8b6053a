"""Tests that, while pipelines are off, a pipeline that no operator deploys gets one report, and no other pipeline gets any."""

from typing import Any, cast

import pytest

from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.reachable import until_readable
from allaboard.pipelines.objects import MLFLOWS, Body
from allaboard.pipelines.undeployed import GRACE_SECONDS, PIPELINES_ARE_OFF, UndeployedPipelines, undeployed_from
from allaboard.report.events import EventRecorder
from allaboard.report.writer import Writer
from tests.unit.pipelines.mlflows import mlflow
from tests.unit.pipelines.test_reconciler import ManualWriter, Server


class Cluster:
    """MLFlows on a server, and the reporter under test. ``apply`` creates or changes an MLFlow, and delivers its watch event."""

    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.now, self.leads = 100.0, True
        self.server, self.writer = Server(), ManualWriter()
        server, writer = cast(ApiServer, self.server), cast(Writer, self.writer)
        events = EventRecorder(server, writer, "allaboard", "allaboard-1")
        self.undeployed = UndeployedPipelines(
            server, writer, events, leads=lambda: self.leads, namespaces=namespaces, clock=lambda: self.now
        )

    def apply(self, raw: Body) -> None:
        self.server.put(MLFLOWS.kind, raw)
        self.observe()

    def observe(self) -> None:
        raw = self.server.objects[MLFLOWS.kind, "ml", "lstm"]
        self.undeployed.upsert("ml/lstm", undeployed_from(raw))

    async def after(self, seconds: float) -> None:
        self.now += seconds
        self.undeployed.report_due()
        await self.writer.drain()

    def status(self) -> Any:
        return self.server.objects[MLFLOWS.kind, "ml", "lstm"].get("status")

    def events(self) -> list[tuple[str, str]]:
        return [(each["reason"], each["note"]) for key, each in self.server.objects.items() if key[0] == "Event"]


async def test_pipeline_that_no_operator_deploys_gets_one_event_and_a_condition() -> None:
    cluster = Cluster()
    cluster.apply(mlflow())
    await cluster.after(GRACE_SECONDS - 1)
    assert (cluster.status(), cluster.events()) == (None, [])
    await cluster.after(1)
    (condition,) = cluster.status()["conditions"]
    assert (condition["type"], condition["status"], condition["message"]) == ("Ready", "False", PIPELINES_ARE_OFF)
    assert (cluster.status()["phase"], cluster.status()["observedGeneration"]) == ("Failed", 3)
    assert cluster.events() == [("PipelinesOff", PIPELINES_ARE_OFF)]
    cluster.observe()
    await cluster.after(60)
    assert len(cluster.events()) == 1


async def test_pipeline_that_another_operator_deploys_gets_no_report() -> None:
    cluster = Cluster()
    cluster.apply(mlflow())
    status = {"status": {"observedGeneration": 3, "phase": "Deploying"}}
    cluster.apply({**mlflow(), **status})
    await cluster.after(60)
    assert (cluster.status(), cluster.events()) == (status["status"], [])
    # The status is of an older generation: no operator has deployed the change.
    raw = mlflow()
    cluster.apply({**raw, **status, "metadata": {**raw["metadata"], "generation": 4}})
    await cluster.after(GRACE_SECONDS)
    assert cluster.status()["message"] == PIPELINES_ARE_OFF


@pytest.mark.parametrize("change", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}], ids=["terminating", "gone"])
async def test_pipeline_that_is_deleted_gets_no_report(change: dict[str, str]) -> None:
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


async def test_pipeline_outside_our_namespaces_gets_no_report() -> None:
    cluster = Cluster(namespaces=("research",))
    cluster.apply(mlflow())
    await cluster.after(60)
    assert cluster.events() == []


async def test_only_the_leader_reports_undeployed_pipelines_and_a_new_leader_does_so_at_once() -> None:
    cluster = Cluster()
    cluster.leads = False
    cluster.apply(mlflow())
    await cluster.after(60)
    assert cluster.events() == []
    cluster.leads = True
    await cluster.after(0)
    assert len(cluster.events()) == 1


async def test_pipeline_that_cannot_be_read_is_also_reported_as_not_deployed() -> None:
    cluster = Cluster()
    cluster.apply({**mlflow(), "spec": {"pipeline": {"first": {}}}})
    await cluster.after(GRACE_SECONDS)
    assert cluster.status()["message"] == PIPELINES_ARE_OFF


async def test_reporter_waits_for_a_missing_kind_or_permission_without_a_log_message(caplog: pytest.LogCaptureFixture) -> None:
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
