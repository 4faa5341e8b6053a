"""Tests of the answers of the read-only API: JSON, schema, refusals, and what a caller may read."""

import asyncio
import socket
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from allaboard.sight.access import EVERYTHING, Access, ByHost, RefusedError, Rights
from allaboard.sight.api import Api, _pieces_of
from allaboard.sight.values import Gang, Gangs, Members, Problem, Queue
from tests.unit.placement.clusters import node
from tests.unit.scheduling.schedulers import World
from tests.unit.sight.test_board import a_board

_OTHER_HOSTS = ("evil.example:8082", "127.0.0.1.evil.example", "localhost.evil.example:80", "evil.localhost", "[::1].evil.example", "")
NODES_ONLY = Rights(frozenset(), nodes=True)


class Granted:
    """Access that grants the same rights to every request, or refuses every request."""

    def __init__(self, rights: Rights | None = EVERYTHING) -> None:
        self._rights = rights

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        if self._rights is None:
            raise RefusedError(401, "no token")
        return self._rights


class Reviewed:
    """Access of a caller who may read some namespaces. It notes about which namespaces it was asked."""

    def __init__(self, *allowed: str) -> None:
        self._allowed, self.asked = frozenset(allowed), list[Sequence[str]]()

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        self.asked.append(namespaces)
        return Rights(self._allowed & set(namespaces), nodes=False)


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
        for path in ("nodes", "domains?label=rack", "snapshot", "gangs/default/secret"):
            assert (await client.get(f"/api/v1/{path}")).status == 403
        assert "secret" not in await (await client.get("/api/v1/decisions")).text()


@pytest.mark.parametrize(
    "path", ["status", "queue", "gangs", "gangs/a/b", "nodes", "domains", "decisions", "timeline", "snapshot", "events"]
)
async def test_no_path_is_answered_without_access(path: str) -> None:
    async with World() as world, client_of(world, Granted(None)) as client:
        assert (await client.get(f"/api/v1/{path}")).status == 401


async def test_names_that_one_caller_may_read_are_not_shown_to_the_next() -> None:
    """Rows of nodes are kept as JSON, with the names of gangs."""
    async with World(cpus=4) as world:
        world.add("secret", 2, bound=2)
        access = Granted()
        async with client_of(world, access) as client:
            for path in ("nodes", "snapshot", "nodes"):
                assert "secret" in await (await client.get(f"/api/v1/{path}")).text()
            access._rights = NODES_ONLY
            for path in ("nodes", "snapshot"):
                text = await (await client.get(f"/api/v1/{path}")).text()
                assert '"pods":2' in text
                assert "secret" not in text
                assert "default" not in text


async def test_a_snapshot_has_no_decisions_about_hidden_gangs_and_names_none() -> None:
    async with World(cpus=5) as world, client_of(world, Granted(Rights(frozenset({"mine"}), nodes=True))) as client:
        world.add("old", 3, bound=3, walltime=600.0, started=world.now, namespace="theirs")
        world.add("wide", 4, created=1.0, namespace="mine")
        await world.run_cycle()
        text = await (await client.get("/api/v1/snapshot")).text()
        assert '"name":"wide"' in text
        assert '"hidden":1' in text
        assert "theirs" not in text


async def test_the_gang_for_which_capacity_is_kept_is_not_named_in_another_namespace() -> None:
    async with World(cpus=5) as world, client_of(world, Granted(Rights(frozenset({"mine"}), nodes=True))) as client:
        world.add("old", 3, bound=3, walltime=600.0, started=world.now, namespace="mine")
        world.add("wide", 4, created=1.0, namespace="theirs")
        world.add("small", 1, cpus=2, created=2.0, namespace="mine")
        await world.run_cycle()
        for path in ("queue", "gangs", "gangs/mine/small", "snapshot"):
            text = await (await client.get(f"/api/v1/{path}")).text()
            assert '"state":"Reserved"' in text
            assert "theirs" not in text


async def test_without_the_right_to_list_nodes_groups_of_nodes_have_only_numbers_and_reasons() -> None:
    async with World(cpus=4) as world:
        for name, cpus in (("secret-1", 1000), ("secret-2", 1500)):
            world.view.upsert_node(node(name, {"cpu": cpus}))
        world.add("g", 3, cpus=2)
        expected = {
            True: [(1, ["n"], {}), (1, ["secret-2"], {"cpu": 0.5}), (1, ["secret-1"], {"cpu": 1.0})],
            False: [(1, [], {}), (2, [], {})],
        }
        for may_list, groups in expected.items():
            async with client_of(world, Granted(Rights(frozenset({"default"}), nodes=may_list))) as client:
                text = await (await client.get("/api/v1/gangs/default/g")).text()
                found = Gang.model_validate_json(text).node_groups
                assert [(each.nodes, each.names, each.lacks) for each in found] == groups
                assert [each.reasons for each in found] == [[], *[["Insufficient cpu"]] * (len(groups) - 1)]
                assert ("secret" in text) == may_list


async def test_one_gang_is_shown_without_questions_about_namespaces_that_it_has_nothing_to_do_with() -> None:
    async with World(cpus=4) as world:
        world.add("old", 3, bound=3, walltime=600.0, started=world.now, namespace="b")
        world.add("wide", 3, created=1.0, namespace="a")
        world.add("none", 1, namespace="c")
        await world.run_cycle()
        for allowed, named in ((("a",), ""), (("a", "b"), "b/old")):
            access = Reviewed(*allowed)
            async with client_of(world, access) as client:
                found = Gang.model_validate_json(await (await client.get("/api/v1/gangs/a/wide")).text())
                assert found.outlook is not None
                assert (found.row.waits_for, [each.gang for each in found.outlook.waits_for]) == (named, [named])
                assert access.asked == [["a"], ["a", "b"]]
                assert (await client.get("/api/v1/gangs/d/none")).status == 403
                assert access.asked[2:] == [[]]  # no gang is in that namespace


async def test_few_requests_are_answered_at_once_and_more_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.sight.api._MOST_AT_ONCE", 2)
    monkeypatch.setattr("allaboard.sight.api._MOST_WAITING", 3)
    async with World() as world:
        board, goes_on, running = a_board(world), asyncio.Event(), 0

        async def queue(allows: object) -> Queue:
            nonlocal running
            running += 1
            await goes_on.wait()
            return Queue(at=0.0, gangs=[], hidden=0)

        board_api = Api(board, Granted())
        monkeypatch.setattr(type(board), "queue", lambda self, allows: queue(allows))
        async with TestClient(TestServer(board_api.application())) as client:
            requests = [asyncio.create_task(client.get("/api/v1/queue")) for _ in range(6)]
            done, _ = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
            assert [(task.result().status, task.result().headers["Retry-After"]) for task in done] == [(503, "5")]
            assert running == 2
            goes_on.set()
            assert sorted([(await task).status for task in requests]) == [200] * 5 + [503]


async def test_a_caller_that_reads_nothing_loses_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.sight.api._MOST_AT_ONCE", 1)
    async with World() as world:
        board = a_board(world)
        long = Gangs.model_construct(at=0.0, gangs=[Problem(status=0, message="x" * 10_000)] * 4000, hidden=0)

        async def gangs(allows: object) -> Gangs:
            return long

        monkeypatch.setattr(type(board), "gangs", lambda self, allows: gangs(allows))
        async with TestClient(TestServer(Api(board, Granted(), stall=0.2).application())) as client:
            with socket.create_connection((client.host, client.port)) as stalled:
                stalled.sendall(b"GET /api/v1/gangs HTTP/1.1\r\nHost: a\r\n\r\n")
                async with asyncio.timeout(50):
                    assert (await client.get("/api/v1/queue")).status == 200  # which waits for the stalled request


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


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1:8082", 200), ("localhost", 200), ("[::1]:80", 200), *((host, 403) for host in _OTHER_HOSTS)]
)
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
            stream.close()
            async with asyncio.timeout(50):
                while (await client.get("/api/v1/events")).status != 200:
                    pass


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


async def test_rows_are_freed_one_by_one_as_they_are_written() -> None:
    """To free the rows of thousands of gangs at once would delay the scheduler."""
    rows = [Problem(status=number, message="x" * 2**16) for number in range(3)]
    kept = [weakref.ref(row) for row in rows]
    # One row is longer than a piece of the answer, so that each piece has one row.
    pieces = _pieces_of(Gangs.model_construct(at=0.0, gangs=rows, hidden=0))
    del rows
    left = [sum(ref() is not None for ref in kept) async for _ in pieces]
    assert left == [2, 1, 0, 0]
