"""Tests of the two ports of the API: who reaches them, and what they ask a caller for."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

from allaboard.settings.options import load_settings
from allaboard.sight.serving import open_api
from tests.unit.scheduling.schedulers import World
from tests.unit.sight.test_board import a_board

_ANOTHER_ADDRESS = "127.0.0.2"  # of this machine, too


@asynccontextmanager
async def served(folder: Path, **ports: int) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve a board on ``ports``, with an API server that doesn't answer."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{unused_port()}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {"token": "t"}}]
    config = {"kind": "Config", "clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"}
    (folder / "kubeconfig").write_text(json.dumps(config))
    settings = load_settings({"kubeconfig": str(folder / "kubeconfig"), "api_port": 0, "api_service_port": 0, **ports})
    async with World() as world, open_api(settings, a_board(world)), aiohttp.ClientSession() as session:
        yield session


async def test_the_port_without_a_token_is_on_the_loopback_address_only(tmp_path: Path) -> None:
    port = unused_port()
    async with served(tmp_path, api_port=port) as session:
        async with session.get(f"http://127.0.0.1:{port}/api/v1/queue") as answer:
            assert answer.status == 200
        async with session.get(f"http://127.0.0.1:{port}/api/v1/queue", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(_ANOTHER_ADDRESS, port)


async def test_the_port_of_the_service_asks_each_caller_for_a_token(tmp_path: Path) -> None:
    port = unused_port()
    async with served(tmp_path, api_service_port=port) as session:
        for host in ("127.0.0.1", _ANOTHER_ADDRESS):
            async with session.get(f"http://{host}:{port}/api/v1/queue", headers={"Host": "127.0.0.1"}) as answer:
                assert answer.status == 401
        async with session.get(f"http://127.0.0.1:{port}/api/v1/queue", headers={"Authorization": "Bearer some"}) as answer:
            assert answer.status == 503  # the API server can't be asked
