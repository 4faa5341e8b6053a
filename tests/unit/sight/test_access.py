"""Tests that a caller reads what the API server says the caller may read, and that few questions are asked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest

from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError
from allaboard.kube.rate_limit import RateLimit
from allaboard.sight.access import ByToken, RefusedError, Rights

Body = Mapping[str, Any]


class Reviewer:
    """An API server that knows tokens that begin with ``valid``, and allows to list what ``allowed`` names, as "resource namespace".

    It denies what ``denied`` names. It answers reviews of tokens while ``answers`` is set.
    """

    def __init__(self, *allowed: str) -> None:
        self.allowed, self.denied, self.requests, self.error = set(allowed), set[str](), list[str](), None
        self.error: ApiError | None
        self.user: Body = {"username": "ann", "groups": ["team"]}
        self.valid = "good"
        self.answers = asyncio.Event()
        self.answers.set()

    async def post(self, path: str, body: Body) -> Body:
        if self.error:
            raise self.error
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            self.requests.append("token")
            await self.answers.wait()
            return {"status": {"authenticated": spec["token"].startswith(self.valid), "user": self.user}}
        asked = spec["resourceAttributes"]
        assert (spec["user"], spec["groups"], asked["verb"]) == (self.user["username"], self.user["groups"], "list")
        assert asked["group"] == {"podgroups": "scheduling.x-k8s.io", "nodes": ""}[asked["resource"]]
        self.requests.append(what := f"{asked['resource']} {asked['namespace']}".strip())
        await asyncio.sleep(0)
        return {"status": {"allowed": what in self.allowed, "denied": what in self.denied}}


def access_of(reviewer: Reviewer, clock: Callable[[], float] = lambda: 0.0, **limits: RateLimit) -> ByToken:
    return ByToken(cast("ApiServer", reviewer), clock, **limits)


def slept(pauses: list[float]) -> Callable[[float], Awaitable[None]]:
    """Return a function that notes how long it should sleep."""

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    return sleep


GOOD = {"Authorization": "Bearer good"}


async def test_rights_are_those_that_the_api_server_states() -> None:
    for allowed, expected in (
        (["podgroups", "nodes"], Rights(None, nodes=True)),
        (["podgroups a"], Rights(frozenset("a"), nodes=False)),
        ([], Rights(frozenset(), nodes=False)),
    ):
        assert await access_of(Reviewer(*allowed)).rights(GOOD, ["a", "b"]) == expected


async def test_a_right_that_the_api_server_denies_is_not_allowed() -> None:
    reviewer = Reviewer("podgroups", "nodes", "podgroups a")
    reviewer.denied = {"podgroups", "nodes", "podgroups a"}
    assert await access_of(reviewer).rights(GOOD, ["a"]) == Rights(frozenset(), nodes=False)


async def test_an_answer_counts_for_half_a_minute() -> None:
    now = 0.0
    reviewer = Reviewer("podgroups a")
    access = access_of(reviewer, lambda: now)
    for now in (0.0, 10.0, 29.0):  # noqa: B007
        await access.rights(GOOD, ["a"])
    assert reviewer.requests == ["token", "nodes", "podgroups", "podgroups a"]
    now, reviewer.allowed = 31.0, set()
    assert await access.rights(GOOD, ["a"]) == Rights(frozenset(), nodes=False)


async def test_a_refused_namespace_is_asked_about_again_after_five_minutes() -> None:
    now = 0.0
    reviewer = Reviewer("podgroups a")
    access = access_of(reviewer, lambda: now)
    for now in (0.0, 100.0, 299.0):  # noqa: B007
        assert await access.rights(GOOD, ["a", "b"]) == Rights(frozenset("a"), nodes=False)
    assert (reviewer.requests.count("podgroups a"), reviewer.requests.count("podgroups b")) == (3, 1)
    now, reviewer.allowed = 330.0, {"podgroups b"}
    assert await access.rights(GOOD, ["a", "b"]) == Rights(frozenset("b"), nodes=False)


async def test_answers_about_a_user_do_not_count_for_a_user_of_other_groups() -> None:
    now = 0.0
    reviewer = Reviewer()
    access = access_of(reviewer, lambda: now)
    await access.rights(GOOD, ["a"])
    now, reviewer.allowed, reviewer.user = 31.0, {"podgroups a"}, {"username": "ann", "groups": ["team", "more"]}
    assert await access.rights(GOOD, ["a"]) == Rights(frozenset("a"), nodes=False)


async def test_a_token_that_is_no_longer_valid_is_refused() -> None:
    now = 0.0
    reviewer = Reviewer("podgroups")
    access = access_of(reviewer, lambda: now)
    assert (await access.rights(GOOD, [])).namespaces is None
    now, reviewer.valid = 31.0, "other"
    for _ in range(2):
        with pytest.raises(RefusedError) as refused:
            await access.rights(GOOD, [])
        assert refused.value.status == 401
    assert (reviewer.requests.count("token"), len(access._callers)) == (2, 0)


@pytest.mark.parametrize("header", [None, "", "Basic Zm9v", "Bearer ", "Bearer bad", f"Bearer {'x' * 20_000}", "Bearer gööd"])
async def test_a_caller_without_a_valid_token_is_refused(header: str | None) -> None:
    with pytest.raises(RefusedError) as refused:
        await access_of(Reviewer()).rights({} if header is None else {"Authorization": header}, [])
    assert refused.value.status == 401


async def test_an_unknown_token_is_asked_about_only_once() -> None:
    reviewer = Reviewer()
    access = access_of(reviewer)
    for _ in range(3):
        with pytest.raises(RefusedError):
            await access.rights({"Authorization": "Bearer bad"}, [])
    assert reviewer.requests == ["token"]


async def test_few_callers_and_few_refused_tokens_are_remembered() -> None:
    access = access_of(Reviewer())
    for number in range(600):
        with pytest.raises(RefusedError):
            await access.rights({"Authorization": f"Bearer {number}"}, [])
        await access.rights({"Authorization": f"Bearer good{number}"}, [])
    assert (len(access._callers), len(access._refused)) == (256, 256)


async def test_unknown_tokens_displace_no_caller() -> None:
    reviewer = Reviewer()
    access = access_of(reviewer)
    await access.rights(GOOD, [])
    for number in range(600):
        with pytest.raises(RefusedError):
            await access.rights({"Authorization": f"Bearer {number}"}, [])
    asked = len(reviewer.requests)
    await access.rights(GOOD, [])
    assert len(reviewer.requests) == asked


async def test_few_requests_with_unknown_tokens_wait_and_callers_are_answered_meanwhile() -> None:
    now = 0.0
    reviewer = Reviewer()
    access = access_of(reviewer, lambda: now)
    await access.rights(GOOD, [])
    reviewer.answers.clear()
    unknown = [asyncio.create_task(access.rights({"Authorization": f"Bearer {number}"}, [])) for number in range(2000)]
    refused, waiting = await asyncio.wait(unknown, timeout=0.5)
    assert len(waiting) == 32
    errors = [task.exception() for task in refused]
    assert all(isinstance(error, RefusedError) and (error.status, error.retry_after) == (503, 5) for error in errors)
    assert await access.rights(GOOD, ["a"]) == Rights(frozenset(), nodes=False)
    now = 31.0  # the caller's token is reviewed again, but takes no turn of unknown tokens
    again = asyncio.create_task(access.rights(GOOD, ["a"]))
    await asyncio.sleep(0)
    reviewer.answers.set()
    assert await again == Rights(frozenset(), nodes=False)
    await asyncio.wait(unknown)


async def test_reviews_about_callers_do_not_wait_behind_reviews_of_unknown_tokens() -> None:
    now, unknown, known = 0.0, list[float](), list[float]()
    limits = {
        "of_unknown": RateLimit(1.0, 1, lambda: now, slept(unknown)),
        "of_known": RateLimit(1.0, 4, lambda: now, slept(known)),
    }
    access = access_of(Reviewer(), lambda: now, **limits)
    await access.rights(GOOD, [])
    for number in range(3):
        with pytest.raises(RefusedError):
            await access.rights({"Authorization": f"Bearer {number}"}, [])
    assert (unknown, known) == ([1.0, 2.0, 3.0], [])
    now = 31.0
    await access.rights(GOOD, ["a"])  # the token, nodes, PodGroups everywhere, and those of a namespace
    assert (len(unknown), known) == (3, [])
    await access.rights(GOOD, ["b"])
    assert (len(unknown), known) == (3, [1.0])


async def test_requests_that_need_the_same_answers_ask_once() -> None:
    reviewer = Reviewer("podgroups a")
    access = access_of(reviewer)
    await asyncio.gather(*(access.rights(GOOD, ["a", "b"]) for _ in range(5)))
    assert sorted(reviewer.requests) == ["nodes", "podgroups", "podgroups a", "podgroups b", "token"]


async def test_an_api_server_that_cannot_answer_allows_nothing() -> None:
    reviewer = Reviewer("podgroups")
    reviewer.error = ApiError(500, "InternalError", "etcd is down")
    with pytest.raises(RefusedError, match="etcd is down") as refused:
        await access_of(reviewer).rights(GOOD, [])
    assert refused.value.status == 503


async def test_callers_with_the_same_token_at_the_same_time_are_answered_alike() -> None:
    access = access_of(Reviewer("podgroups a"))
    found = await asyncio.gather(*(access.rights(GOOD, ["a", "b"]) for _ in range(5)))
    assert set(found) == {Rights(frozenset("a"), nodes=False)}
