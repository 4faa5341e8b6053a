"""Tests of the answers of the read-only API: JSON, schema, refusals, and what a caller may read."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from allaboard.sight.access import EVERYTHING, Access, ByHost, RefusedError, Rights
from allaboard.sight.api import Api
from allaboard.sight.values import Gangs, Members, Queue
from tests.unit.scheduling.schedulers import World
from tests.unit.sight.test_board import a_board

NODES_ONLY = Rights(frozenset(), nodes=True)


class Granted:
    """Access that grants the same rights to every request, or refuses every request."""

    def __init__(self, rights: Rights | None = EVERYTHING) -> None:
        self._rights = rights

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        if self._rights is None:
            raise RefusedError(401, "no token")
        return self._rights


@asynccontextmanager
async def client_of(world: World, access: Access) -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(Api(a_board(world), access).application())) as client:
        yield client


@pytest.mark.parametrize("path", ["queue", "gangs", "gangs/default/g", "nodes", "decisions", "timeline", "domains?label=rack", "snapshot"])
async def test_every_answer_has_the_form_that_the_openapi_document_states(path: str) -> None:
    async with World(cpus=3) as world, client_of(world, Granted()) as client:
        world.add("g", 2)
        world.add("waits", 3)
        await world.run_cycle()
        answer = await client.get(f"/api/v1/{path}")
        document = await (await client.get("/api/v1/openapi.json")).json()
        template = "/api/v1/gangs/{namespace}/{name}" if "/" in path else f"/api/v1/{path.partition('?')[0]}"
        stated = document["paths"][template]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(await answer.json(), {**stated, "components": document["components"]})
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-store"


async def test_answers_can_be_read_again_as_values() -> None:
    async with World() as world, client_of(world, Granted()) as client:
        world.add("g", 2)
        text = await (await client.get("/api/v1/queue")).text()
        assert Queue.model_validate_json(text).gangs[0].name == "g"
        assert '"waitingSince":' in text


async def test_a_refused_caller_gets_the_reason() -> None:
    async with World() as world, client_of(world, Granted(None)) as client:
        answer = await client.get("/api/v1/queue")
        assert (answer.status, await answer.json()) == (401, {"status": 401, "message": "no token"})


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("gangs/default/none", 404, "/api/v1/gangs/default/none: there is no such object"),
        ("nothing", 404, "/api/v1/nothing: Not Found"),
        ("gangs/..%2F..%2Fb/x", 404, "/api/v1/gangs/..%2F..%2Fb/x: there is no such object"),
    ],
)
async def test_an_unknown_path_is_named(path: str, status: int, message: str) -> None:
    async with World() as world, client_of(world, Granted()) as client:
        answer = await client.get(f"/api/v1/{path}")
        assert answer.status == status
        assert (await answer.json())["message"].endswith(message.rpartition(": ")[2])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_written(method: str) -> None:
    async with World() as world, client_of(world, Granted()) as client:
        assert (await client.request(method, "/api/v1/queue", data=b"{}")).status == 405


async def test_a_caller_without_rights_sees_counts_only() -> None:
    async with World() as world, client_of(world, Granted(Rights(frozenset(), nodes=False))) as client:
        world.add("secret", 2)
        await world.run_cycle()
        gangs = Gangs.model_validate_json(await (await client.get("/api/v1/gangs")).text())
        assert (gangs.gangs, gangs.hidden) == ([], 1)
        for path in ("nodes", "gangs/default/secret"):
            assert (await client.get(f"/api/v1/{path}")).status == 403
        assert "secret" not in await (await client.get("/api/v1/decisions")).text()


async def test_a_caller_with_rights_to_nodes_only_gets_no_name_of_a_gang() -> None:
    async with World() as world, client_of(world, Granted(NODES_ONLY)) as client:
        world.add("secret", 2, bound=2)
        text = await (await client.get("/api/v1/nodes")).text()
        assert '"pods":2' in text
        assert "secret" not in text
        assert "default" not in text
        snapshot = await (await client.get("/api/v1/snapshot")).text()
        assert '"hidden":1' in snapshot
        assert "secret" not in snapshot
        assert "default" not in snapshot


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1:8082", 200), ("localhost", 200), ("[::1]:80", 200), ("evil.example:8082", 403)])
async def test_on_the_loopback_address_only_its_own_names_are_answered(host: str, status: int) -> None:
    """Otherwise a web page could read the answers through its visitor's browser (DNS rebinding)."""
    async with World() as world, client_of(world, ByHost()) as client:
        assert (await client.get("/api/v1/queue", headers={"Host": host})).status == status


async def test_a_stream_has_an_event_for_each_change_and_for_nothing_else() -> None:
    async with World() as world:
        board = a_board(world)
        api = Api(board, Granted(), pause=0.0, beat=0.05)
        async with TestClient(TestServer(api.application())) as client, client.get("/api/v1/events") as stream:
            first = await event_in(stream)
            assert await stream.content.readline() == b":\n"
            world.add("g", 2)
            assert await event_in(stream) != first


async def test_few_streams_are_open_at_once() -> None:
    async with World() as world:
        api = Api(a_board(world), Granted(), most_streams=1)
        async with TestClient(TestServer(api.application())) as client, client.get("/api/v1/events") as stream:
            await event_in(stream)
            assert (await client.get("/api/v1/events")).status == 503


async def event_in(stream: ClientResponse) -> str:
    """Return the data of the next event, which must be a change."""
    async with asyncio.timeout(50):
        while (line := await stream.content.readline()) in (b":\n", b"\n"):
            pass
        assert line == b"event: changed\n"
        data = (await stream.content.readline()).decode()
        assert await stream.content.readline() == b"\n"
        return data


def test_a_value_whose_json_was_asked_for_equals_one_whose_json_was_not() -> None:
    asked, other = (Members(needed=1, bound=1, running=0, present=1) for _ in range(2))
    assert asked.json_text == '{"needed":1,"bound":1,"running":0,"present":1}'
    assert asked == other
