"""The options of a request are parsed, and malformed options are answered 400."""

from typing import Any

import aiohttp
import pytest

from allaboard_sandbox import Sandbox, requests
from allaboard_sandbox.watch import DEFAULT_TIMEOUT_SECONDS

PODS = "/api/v1/namespaces/default/pods"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SYNTAX, RANGE = "invalid syntax", "value out of range"


async def refusal(sandbox: Sandbox, method: str, path: str, **options: Any) -> str:
    async with aiohttp.ClientSession(sandbox.url) as session, session.request(method, path, **options) as response:
        answer = await response.json()
    assert (response.status, answer["code"], answer["reason"]) == (400, 400, "BadRequest")
    return str(answer["message"])


@pytest.mark.parametrize(
    ("text", "problem"), [("abc", SYNTAX), ("1.5", SYNTAX), ("nan", SYNTAX), ("1_0", SYNTAX), ("9" * 19, RANGE), ("9" * 5000, RANGE)]
)
@pytest.mark.parametrize(
    ("method", "path", "option"),
    [("GET", PODS, "limit"), ("GET", f"{PODS}?watch=1", "timeoutSeconds"), ("DELETE", f"{PODS}/p", "gracePeriodSeconds")],
)
async def test_an_option_that_is_not_a_number_is_a_bad_request(
    method: str, path: str, option: str, text: str, problem: str, sandbox: Sandbox
) -> None:
    joint = "&" if "?" in path else "?"
    assert await refusal(sandbox, method, f"{path}{joint}{option}={text}") == f'strconv.ParseInt: parsing "{text}": {problem}'


@pytest.mark.parametrize("body", [[1], "text", 5, {"preconditions": 3}], ids=str)
async def test_delete_options_that_are_not_an_object_are_a_bad_request(body: Any, sandbox: Sandbox) -> None:
    assert "must be of type Object" in await refusal(sandbox, "DELETE", f"{PODS}/p", json=body)


async def test_an_access_review_that_is_not_an_object_is_a_bad_request(sandbox: Sandbox) -> None:
    assert "must be of type Object" in await refusal(sandbox, "POST", REVIEWS, json=[1])


@pytest.mark.parametrize("query", [{}, {"timeoutSeconds": "0"}], ids=str)
def test_a_watch_without_a_timeout_or_with_a_timeout_of_0_gets_the_default_timeout(query: dict[str, str]) -> None:
    """A timeout of 0 means the server's default (kubernetes apiserver endpoints/handlers/get.go, ListResource)."""
    assert requests.watch_options_of(query).timeout_seconds == DEFAULT_TIMEOUT_SECONDS
