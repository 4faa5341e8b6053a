"""Tests that a caller reads what the API server says the caller may read, and that few questions are asked."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError
from allaboard.sight.access import ByToken, RefusedError, Rights

Body = Mapping[str, Any]


class Reviewer:
    """An API server that knows the token "good" and allows to list what ``allowed`` names, as "resource namespace"."""

    def __init__(self, *allowed: str) -> None:
        self.allowed, self.requests, self.error = set(allowed), list[str](), None
        self.error: ApiError | None

    async def post(self, path: str, body: Body) -> Body:
        if self.error:
            raise self.error
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            self.requests.append("token")
            return {"status": {"authenticated": spec["token"] == "good", "user": {"username": "ann", "groups": ["team"]}}}
        asked = spec["resourceAttributes"]
        assert (spec["user"], spec["groups"], asked["verb"]) == ("ann", ["team"], "list")
        self.requests.append(what := f"{asked['resource']} {asked['namespace']}".strip())
        return {"status": {"allowed": what in self.allowed}}


def access_of(reviewer: Reviewer, clock: Callable[[], float] = lambda: 0.0) -> ByToken:
    return ByToken(cast("ApiServer", reviewer), clock)


GOOD = {"Authorization": "Bearer good"}


async def test_rights_are_those_that_the_api_server_states() -> None:
    for allowed, expected in (
        (["podgroups", "nodes"], Rights(None, nodes=True)),
        (["podgroups a"], Rights(frozenset("a"), nodes=False)),
        ([], Rights(frozenset(), nodes=False)),
    ):
        assert await access_of(Reviewer(*allowed)).rights(GOOD, ["a", "b"]) == expected


async def test_an_answer_counts_for_half_a_minute() -> None:
    now = 0.0
    reviewer = Reviewer("podgroups a")
    access = access_of(reviewer, lambda: now)
    for now in (0.0, 10.0, 29.0):  # noqa: B007
        await access.rights(GOOD, ["a"])
    assert reviewer.requests == ["token", "nodes", "podgroups", "podgroups a"]
    now, reviewer.allowed = 31.0, set()
    assert await access.rights(GOOD, ["a"]) == Rights(frozenset(), nodes=False)


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


async def test_few_callers_are_remembered() -> None:
    access = access_of(Reviewer())
    for number in range(600):
        with pytest.raises(RefusedError):
            await access.rights({"Authorization": f"Bearer {number}"}, [])
    assert len(access._callers) == 256


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
