"""Tests that only the operator's own pods are asked for the board, and none that a tenant labelled as the operator."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from allaboard.cli import boards
from allaboard.cli.boards import open_operator
from allaboard.sight.values import Status
from tests.unit.cli.apis import an_api

STATUS = Status(at=1.0, version="1", leads=True, is_ready=True, cache_age=0.0).model_dump_json(by_alias=True)
Ask = Callable[..., Any]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return a function that opens the operator's board of a cluster where pods of the given namespaces have the operator's label.

    The function returns the namespaces of the pods that were asked, and why there is no board.
    """

    async def ask(*namespaces: str) -> tuple[list[str], str]:
        asked: list[str] = []

        async def listed(*request: object) -> list[Mapping[str, Any]]:
            return [{"metadata": {"namespace": namespace, "name": "allaboard-1"}} for namespace in namespaces]

        @asynccontextmanager
        async def forwarded(server: object, namespace: str, pod: str, port: int) -> AsyncIterator[int]:
            asked.append(namespace)
            yield int(api.rpartition(":")[2])

        monkeypatch.setattr(boards, "listed", listed)
        monkeypatch.setattr(boards, "forwarded", forwarded)
        with an_api({"status": STATUS}) as api:
            async with AsyncExitStack() as stack:
                board, why = await open_operator(stack, None)  # type: ignore[arg-type]
        assert (board is None) == bool(why)
        return asked, why

    return ask


async def test_pods_of_other_namespaces_are_not_asked(ask: Ask) -> None:
    assert await ask("a-tenant", "allaboard-system") == (["allaboard-system"], "")
    asked, why = await ask("d", "c", "b", "a")
    assert not asked
    assert why == (
        "no running operator of Allaboard was found in namespace allaboard-system or kube-system, and what claims to be one in namespace "
        "a, b, c and 1 more is not trusted; if you installed it there, set ALLABOARD_OPERATOR_NAMESPACE=a"
    )


async def test_a_static_pod_of_the_operator_is_asked(ask: Ask) -> None:
    assert await ask("kube-system") == (["kube-system"], "")


async def test_the_namespace_that_the_environment_names_is_the_only_one_that_is_asked(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_OPERATOR_NAMESPACE", "second-system")
    assert await ask("allaboard-system", "second-system") == (["second-system"], "")
    assert "no running operator of Allaboard was found in namespace second-system" in (await ask("allaboard-system"))[1]


async def test_a_cluster_without_an_operator_has_none(ask: Ask) -> None:
    assert await ask() == ([], "no running operator of Allaboard was found in the cluster")
