"""At startup the operator waits for the API server, for a limited time."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from allaboard.kube.client import ApiError
from allaboard.kube.errors import WrongAnswerError
from allaboard.kube.reachable import UnreachableError, reach

GONE = ApiError(0, "Unreachable", "the API server can't be reached")


def server(*answers: Exception | None) -> Any:
    """Return an API server that gives ``answers`` in turn, and the last answer again and again."""
    left = list(answers)

    async def get(*_: object) -> dict[str, object]:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer:
            raise answer
        return {}

    return SimpleNamespace(get=get, kubeconfig="", configuration=SimpleNamespace(host="https://api.example"))


async def paused(server: Any, seconds: float) -> list[float]:
    """Return the pauses that are made until the server is reached, in seconds."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    await reach(server, seconds, sleep)
    return pauses


@pytest.mark.parametrize("answer", [None, ApiError(403, "Forbidden", "nodes is forbidden"), ApiError(404, "NotFound", "")])
async def test_server_with_any_definite_answer_counts_as_reached(answer: Exception | None) -> None:
    assert await paused(server(answer), 0) == []


async def test_unreachable_server_is_tried_again_with_growing_pauses_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    starting = ApiError(503, "ServiceUnavailable", "starting\nup")
    assert await paused(server(GONE, starting, GONE, GONE, GONE, None), 60) == [1, 2, 4, 8, 8]
    assert caplog.messages[:2] == [
        "the API server can't be reached; trying again for 60 s",
        "starting up (503 ServiceUnavailable); trying again for 60 s",
    ]


async def test_error_after_the_time_limit_names_the_server_and_the_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/kubeconfig")
    with pytest.raises(UnreachableError) as caught:
        await paused(server(GONE), 0)
    where = "kubeconfig /no/kubeconfig leads to https://api.example, and the API server can't be reached"
    assert str(caught.value) == f"{where}; start that cluster, or set KUBECONFIG to that of another"


async def test_program_that_is_no_api_server_is_not_asked_again() -> None:
    with pytest.raises(UnreachableError, match="the answer is of the kind"):
        await paused(server(WrongAnswerError("the answer is of the kind 'Page'")), 60)
