"""Whose binds wait for whose."""

import asyncio
from typing import Any

from allaboard.cluster.bind import Binder
from allaboard.cluster.client import ApiServer
from allaboard.cluster.paths import ApiPath
from allaboard.model.pod import Pod, pod_from


class Server(ApiServer):
    """Answers no bind in the namespace evil."""

    def __init__(self) -> None:
        self.asked = 0

    async def post(self, path: ApiPath, body: Any, query: Any = None) -> dict[str, Any]:
        if "/evil/" in str(path):
            self.asked += 1
            await asyncio.Future()
        return {}


def a_pod(name: str, namespace: str) -> Pod:
    return pod_from({"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}, "spec": {}, "status": {}})


async def test_a_gang_of_thousands_leaves_turns_to_other_namespaces() -> None:
    server = Server()
    binder = Binder(server, concurrency=8)
    evil = [asyncio.create_task(binder.bind(a_pod(f"e{number}", "evil"), "n1", "stamp")) for number in range(1000)]
    while not server.asked:  # noqa: ASYNC110  # the server tells nobody
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert (await binder.bind(a_pod("a", "team"), "n1", "stamp")).is_bound
    assert server.asked == 6
    for task in evil:
        task.cancel()
    await asyncio.gather(*evil, return_exceptions=True)
