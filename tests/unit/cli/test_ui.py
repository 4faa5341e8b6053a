"""Tests that ``allaboard ui`` serves the page with the data of an operator, or of a snapshot, to this machine only."""

import json
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from allaboard.cli.boards import Wanted, open_board
from allaboard.cli.main import cli
from allaboard.cli.ui import _plan_words, served
from allaboard.sight.remote import RemoteBoard
from allaboard.sight.values import Gang, Queue
from tests.unit.cli.apis import an_api
from tests.unit.cli.plan_command import gpu_node, member


async def answer(url: str, path: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}{path}", headers=headers) as response:
        return response.status, await response.text()


async def test_a_snapshot_is_shown_with_the_page(tmp_path: Path) -> None:
    members = [member(f"m{number}") for number in range(2)]
    for each in members:
        each["metadata"] |= {"namespace": "default", "uid": each["metadata"]["name"]}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n"), *members]}))
    async with open_board(Wanted(snapshots=[str(file)]), []) as board, served(board) as url:
        status, page = await answer(url, "")
        assert (status, '<script type="module"' in page) == (200, True)
        assert [row.name for row in Queue.model_validate_json((await answer(url, "api/v1/queue"))[1]).gangs] == ["g"]
        gang = Gang.model_validate_json((await answer(url, "api/v1/gangs/default/g"))[1])
        assert gang.row.message.startswith("It fits now")
        assert (await answer(url, "api/v1/gangs/default/none"))[0] == 404
        assert (await answer(url, "api/v1/queue", Host="example.com"))[0] == 403


@pytest.mark.processes
async def test_a_manifest_can_be_asked_about(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n")]}))
    wanted = Wanted(snapshots=[str(file)])
    pod = member("m", gang="asked", minimum="1")
    as_yaml = {"Content-Type": "application/yaml"}
    async with open_board(wanted, []) as board, served(board, plan=_plan_words(wanted)) as url, aiohttp.ClientSession(url) as session:
        assert "data-asks" in await (await session.get("/")).text()
        async with session.post("/ask", data=json.dumps(pod), headers=as_yaml) as response:
            (gang,) = (await response.json())["gangs"]
            assert (gang["name"], gang["feasible"], gang["assignments"][0]["node"]) == ("asked", True, "n")
        async with session.post("/ask", data="kind: [", headers=as_yaml) as response:
            assert response.status == 400
            assert "standard input" in (await response.json())["message"]
        assert (await session.post("/ask", data="{}", headers={"Content-Type": "text/plain"})).status == 415
        assert (await session.post("/ask", data="{}", headers={**as_yaml, "Host": "example.com"})).status == 403


def test_a_plan_reads_the_cluster_that_the_board_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _plan_words(Wanted(snapshots=["a", "b"])) == ["--cluster", "a", "--cluster", "b"]
    assert _plan_words(Wanted(kubeconfig="k")) == ["--kubeconfig", "k"]
    assert _plan_words(Wanted(api="http://elsewhere")) is None
    monkeypatch.setenv("ALLABOARD_API", "http://elsewhere")
    assert _plan_words(Wanted()) is None


async def test_without_a_cluster_nothing_can_be_asked(tmp_path: Path) -> None:
    with an_api({}) as operator:
        async with open_board(Wanted(api=operator), []) as board, served(board) as url:
            assert "data-asks" not in (await answer(url, ""))[1]
            assert (await answer(url, "ask"))[0] == 404


async def test_requests_are_passed_on_to_the_operator() -> None:
    queue = Queue(at=0.0, gangs=[], hidden=3).model_dump_json(by_alias=True)
    with an_api({"queue": queue, "gangs/a/b c": '{"status": 404, "message": "none"}'}) as operator:
        async with open_board(Wanted(api=operator), []) as board, served(board) as url:
            assert await answer(url, "api/v1/queue") == (200, queue)
            assert (await answer(url, "api/v1/gangs/a/b%20c"))[1].startswith('{"status": 404')
            assert (await answer(url, "api/v1/queue", Host="example.com"))[0] == 403
            assert (await answer(url, ""))[0] == 200


@pytest.mark.parametrize(("path", "kind"), [("queue", "application/json"), ("events", "text/event-stream")])
async def test_an_answer_that_is_passed_on_is_no_page(path: str, kind: str) -> None:
    async def script(request: web.Request) -> web.Response:
        return web.Response(text="<script>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/api/v1/{path}", script)
    async with TestServer(app) as operator, RemoteBoard.open(str(operator.make_url(""))) as board, served(board) as url:
        session = board.session
        async with session.get(f"{url}api/v1/{path}") as found, session.get(url) as page:
            assert found.content_type == kind
            assert found.headers["X-Content-Type-Options"] == "nosniff"
            assert found.headers["Content-Security-Policy"] == page.headers["Content-Security-Policy"]
            assert found.headers["Cache-Control"] == "no-store"


async def test_a_redirect_of_the_operator_is_not_followed() -> None:
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(text="another", status=302 if request.path == "/api/v1/queue" else 200, headers={"Location": "/another"})

    app = web.Application()
    app.router.add_get("/{path:.*}", redirect)
    async with TestServer(app) as operator, RemoteBoard.open(str(operator.make_url(""))) as board, served(board) as url:
        status, text = await answer(url, "api/v1/queue")
    assert (status, "redirects to '/another'" in text) == (502, True)


async def test_an_operator_that_is_gone_is_reported_to_the_page() -> None:
    async with open_board(Wanted(api="http://127.0.0.1:1"), []) as board, served(board) as url:
        status, text = await answer(url, "api/v1/queue")
        assert status == 502
        assert "the operator can't be asked" in json.loads(text)["message"]


def test_a_port_in_use_is_an_error_in_one_line() -> None:
    with an_api({}) as operator:
        port = operator.rpartition(":")[2]
        result = CliRunner().invoke(cli, ["ui", "--api", operator, "--port", port])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"Error: can't listen on port {port}: Address already in use; --port names another\n"


def test_an_unreadable_snapshot_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    result = CliRunner().invoke(cli, ["ui", "--cluster", str(tmp_path / "x.json")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
