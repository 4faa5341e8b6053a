"""A Job is suspended and resumed to free its capacity, unless the Job must be left alone."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from allaboard.binding.job_policy import SUSPENDED, Job, ignores_disruption
from allaboard.binding.job_suspension import JobKeptError, JobRestarter
from allaboard.cluster.view import ClusterView
from allaboard.kube.errors import ApiError, TooLargeError, WrongAnswerError
from allaboard.leadership.lease import LeaseLostError
from allaboard.model.pod import Owner, Pod, pod_from
from tests.unit.binding.fences import Deposed
from tests.unit.leadership.elections import now, virtually

JOB = "/apis/batch/v1/namespaces/default/jobs/train"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-job", "controller": True}


def a_job(*, labels: dict[str, str] | None = None, owners: list[Any] | None = None, **spec: object) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": "train", "uid": "uid-job", "resourceVersion": "7", "labels": labels or {}}
    return {"metadata": {**metadata, "ownerReferences": owners}, "spec": {"suspend": False, **spec}}


def a_raw_pod(phase: str = "Pending") -> dict[str, Any]:
    metadata = {"namespace": "default", "name": "a", "uid": "uid-a", "resourceVersion": "3", "ownerReferences": [OWNER]}
    return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": {"phase": phase}}


class Server:
    """A server with one Job and one pod of the Job. Nothing passes its changes on to the view."""

    def __init__(self, job: dict[str, Any] | None, phase: str = "Pending") -> None:
        self.job, self.phase = job, phase
        self.patches: list[dict[str, Any]] = []
        self.listed: list[str] = []
        self.written = asyncio.Event()

    async def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        if path == JOB:
            if self.job is None:
                raise ApiError(404, "NotFound", "no such job")
            return self.job
        self.listed.append(path)
        if path.endswith("/pods"):
            return {"items": [a_raw_pod(self.phase)]}
        is_labelled = self.job is not None and SUSPENDED in self.job["metadata"]["labels"]
        return {"items": [self.job] if is_labelled else []}

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == JOB
        assert self.job is not None
        assert body["metadata"]["resourceVersion"] == self.job["metadata"]["resourceVersion"]
        self.patches.append(body)
        labels = {**self.job["metadata"]["labels"], **body["metadata"]["labels"]}
        metadata = {"resourceVersion": f"{self.job['metadata']['resourceVersion']}0", "labels": {k: v for k, v in labels.items() if v}}
        self.job = {"metadata": {**self.job["metadata"], **metadata}, "spec": {**self.job["spec"], **body["spec"]}}
        self.written.set()
        return self.job


def a_view(pod: Pod) -> ClusterView:
    view = ClusterView()
    view.upsert_pod(pod)
    return view


def a_restarter(server: Server, view: ClusterView | None = None, **options: Any) -> JobRestarter:
    return JobRestarter(server, view or ClusterView(), **options)  # type: ignore[arg-type]  # as much of a server as is used


POD = pod_from(a_raw_pod())


NOT_WANTED = "job train isn't suspended: no gang waits for the capacity of its pods"


async def test_job_is_not_suspended_if_no_gang_waits_for_its_capacity_after_the_checks() -> None:
    server = Server(a_job())
    with pytest.raises(JobKeptError, match=NOT_WANTED):
        await a_restarter(server).restart(
            [POD], is_wanted=lambda: len(server.listed) < 2
        )  # true until the pods of the Job and the suspended Jobs are listed
    assert server.patches == []


@pytest.mark.parametrize("is_done", [False, True])
async def test_job_that_an_unanswered_request_may_have_suspended_is_resumed_if_no_gang_waits(is_done: bool) -> None:
    class Failing(Server):
        async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            if is_done or self.patches:
                await super().patch(path, body)
            if len(self.patches) < 2:
                raise ApiError(503, "ServiceUnavailable", "no answer")
            return {}

    async def at_once(seconds: float) -> None:
        """Pause for no time."""

    server, times = Failing(a_job()), iter([True, False])
    with pytest.raises(JobKeptError, match=NOT_WANTED):
        await a_restarter(server, sleep=at_once).restart([POD], is_wanted=lambda: next(times))
    assert [patch["spec"] for patch in server.patches] == ([{"suspend": True}, {"suspend": False}] if is_done else [])


async def test_all_jobs_of_a_gang_are_suspended_once_one_job_is_suspended() -> None:
    """If only one of two Jobs were suspended, too little capacity would be freed for the waiting gang."""

    class Both(Server):
        async def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
            return await (other.get(JOB) if path == JOB.replace("train", "eval") else super().get(path))

        async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            return await (super().patch(path, body) if path == JOB else other.patch(JOB, body))

    first, second = a_job(), a_job()
    second["metadata"] |= {"name": "eval", "uid": "uid-eval"}
    server, other, times = Both(first), Server(second), iter([True, False])
    other_pod = replace(POD, name="b", uid="uid-b", owner=Owner("batch/v1", "Job", "eval", "uid-eval"))
    await a_restarter(server).restart([POD, other_pod], is_wanted=lambda: next(times))
    assert [[patch["spec"] for patch in each.patches] for each in (server, other)] == [[{"suspend": True}, {"suspend": False}]] * 2


async def test_job_is_suspended_with_a_label_and_resumed_without_it_when_its_pods_are_gone() -> None:
    server, view = Server(a_job()), a_view(POD)
    work = asyncio.create_task(a_restarter(server, view).restart([POD]))
    await server.written.wait()
    await asyncio.sleep(0)
    view.upsert_pod(replace(POD, is_terminating=True))
    await asyncio.sleep(0)
    assert [(patch["spec"], patch["metadata"]["labels"]) for patch in server.patches] == [({"suspend": True}, {SUSPENDED: "true"})]
    view.remove_pod(POD.key)
    await work
    assert [(patch["spec"], patch["metadata"]["labels"]) for patch in server.patches[1:]] == [({"suspend": False}, {SUSPENDED: None})]


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (a_job(suspend=True), "was suspended by another client"),
        (a_job(owners=[{"kind": "JobSet", "name": "set", "controller": True}]), "since JobSet set controls it"),
        (a_job(managedBy="kueue.x-k8s.io/multikueue"), "since kueue.x-k8s.io/multikueue controls it"),
        (a_job(labels={"kueue.x-k8s.io/queue-name": "q"}), "since Kueue controls it"),
    ],
)
async def test_job_that_another_controller_suspends_is_left_alone(job: dict[str, Any], reason: str) -> None:
    server = Server(job)
    with pytest.raises(JobKeptError, match=reason):
        await a_restarter(server).restart([POD])
    assert not server.patches


def test_job_of_a_job_set_whose_managed_by_names_the_job_controller_has_no_other_manager() -> None:
    job = a_job(owners=[{"kind": "JobSet", "name": "set"}], managedBy="kubernetes.io/job-controller")
    assert not Job.of(job).manager


async def test_job_is_not_suspended_if_one_of_its_pods_has_started() -> None:
    server = Server(a_job(), phase="Running")
    with pytest.raises(JobKeptError, match="can't be suspended while its pod a runs"):
        await a_restarter(server).restart([POD])
    assert not server.patches


async def test_each_running_pod_gets_a_dry_run_of_its_eviction_before_its_job_is_suspended() -> None:
    class Guarded(Server):
        """A server with two running pods, of which a disruption budget protects the second."""

        async def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
            found = await super().get(path, query)
            return {"items": runs} if str(path).endswith("/pods") else found

        async def post(self, path: str, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
            assert query == {"dryRun": "All"}
            if "/b/" in str(path):
                raise ApiError(429, "TooManyRequests", "the budget forbids it")
            return {}

    first = a_raw_pod("Running")
    runs = [first, {**first, "metadata": {**first["metadata"], "name": "b", "uid": "uid-b"}}]
    server = Guarded(a_job())
    with pytest.raises(JobKeptError, match="while its pod b runs: the budget forbids it"):
        await a_restarter(server).restart(map(pod_from, runs), even_running=True)
    assert not server.patches


async def test_replica_that_does_not_lead_suspends_and_resumes_no_job() -> None:
    server = Server(a_job())
    with pytest.raises(LeaseLostError):
        await a_restarter(server, fence=Deposed()).restart([POD])
    server.job = a_job(labels={SUSPENDED: "true"}, suspend=True)
    assert not await a_restarter(server, fence=Deposed()).resume_left()
    assert not server.patches


@pytest.mark.parametrize("suspend", [True, False])
async def test_job_that_was_left_suspended_is_resumed_and_a_resumed_job_loses_only_its_label(suspend: bool) -> None:
    server = Server(a_job(labels={SUSPENDED: "true"}, suspend=suspend))
    assert await a_restarter(server).resume_left()
    assert server.job is not None
    assert not server.job["spec"]["suspend"]
    assert not server.job["metadata"]["labels"]
    assert server.patches[0]["spec"] == ({"suspend": False} if suspend else {})


async def test_suspended_jobs_are_listed_only_in_the_scheduled_namespaces() -> None:
    server = Server(None)
    await a_restarter(server).resume_left()
    await a_restarter(server, namespaces=["b", "a"]).resume_left()
    assert server.listed == ["/apis/batch/v1/jobs", "/apis/batch/v1/namespaces/a/jobs", "/apis/batch/v1/namespaces/b/jobs"]


HOSTILE = (
    "../../victim/jobs/train",
    "../../../../../../api/v1/pods",
    "..%2f..%2fvictim%2fjobs%2ftrain",
    "train/status",
    "",
    ".",
    "Train\n",
)


@pytest.mark.parametrize("name", HOSTILE)
async def test_owner_with_an_invalid_job_name_is_left_alone_without_a_request(name: str) -> None:
    requested: list[str] = []

    class Recording(Server):
        async def request(self, path: str, *_: object) -> dict[str, Any]:
            requested.append(path)
            return {}

        get = patch = post = request  # type: ignore[assignment]

    server = Recording(a_job())
    pod = replace(POD, owner=Owner("batch/v1", "Job", name, "uid-job"))
    with pytest.raises(JobKeptError, match="can't be the name of a Job"):
        await a_restarter(server).restart([pod], even_running=True)
    assert not await ignores_disruption(server, pod)  # type: ignore[arg-type]  # as much of a server as is used
    assert not requested


@pytest.mark.parametrize("version", ["batch/v1beta1", "batch/v2", "batch/v1/../v1", "batch", "v1", "batch.volcano.sh/v1alpha1"])
async def test_owner_counts_as_a_job_only_if_it_is_of_batch_v1(version: str) -> None:
    pod = replace(POD, owner=Owner(version, "Job", "train", "uid-job"))
    assert pod.owner is not None
    assert not pod.owner.is_batch_job
    assert not await ignores_disruption(Server(a_job()), pod)  # type: ignore[arg-type]
    server = Server(a_job())
    await a_restarter(server).restart([pod])
    assert not (server.patches or server.listed)


async def test_job_with_another_uid_than_the_pods_owner_is_left_alone() -> None:
    server = Server(a_job())
    pod = replace(POD, owner=Owner("batch/v1", "Job", "train", "uid-of-another"))
    await a_restarter(server).restart([pod], even_running=True)
    assert not server.patches
    assert not any(path.endswith("/pods") for path in server.listed)


@pytest.mark.parametrize("error", [WrongAnswerError("something else"), TooLargeError("a job", 1 << 20), ApiError(400, "BadRequest", "no")])
async def test_job_that_cannot_be_read_is_not_suspended(error: ApiError) -> None:
    class Wrong(Server):
        async def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
            raise error

    with pytest.raises(JobKeptError, match="can't be suspended"):
        await a_restarter(Wrong(a_job())).restart([POD])


async def test_job_that_is_gone_needs_no_suspension() -> None:
    await a_restarter(Server(None)).restart([POD])


def test_suspended_job_whose_pods_stay_is_resumed_after_a_minute_with_an_error() -> None:
    server = Server(a_job())

    async def play() -> None:
        began = now()
        with pytest.raises(JobKeptError, match="was suspended for 60 s at most, and its pods are still there"):
            await a_restarter(server, a_view(POD)).restart([POD])
        assert now() - began == pytest.approx(60.0)

    virtually(play())
    assert server.job is not None
    assert server.job["spec"]["suspend"] is False


def test_job_that_a_late_request_suspends_is_resumed() -> None:
    server = Server(a_job())

    async def play() -> None:
        running = asyncio.create_task(a_restarter(server).run(5.0))
        await asyncio.sleep(60.0)
        assert not server.patches
        server.job = a_job(labels={SUSPENDED: "true"}, suspend=True)
        await asyncio.sleep(60.0)
        running.cancel()

    virtually(play())
    assert [patch["spec"]["suspend"] for patch in server.patches] == [False]


@pytest.mark.parametrize(("uid", "may"), [("uid-job", True), ("another", False)])
async def test_pod_failure_policy_of_a_job_counts_only_for_pods_that_the_job_owns(uid: str, may: bool) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    job = a_job(podFailurePolicy={"rules": [rule]})
    job["metadata"]["uid"] = uid
    assert await ignores_disruption(Server(job), POD) is may  # type: ignore[arg-type]
