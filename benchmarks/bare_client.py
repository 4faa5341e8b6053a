"""Binds pods as they come, one after another to the nodes in turn: what the API server allows to any scheduler on this machine.

The client looks at nothing and reports nothing. It watches the pods that have no node, and sends one bind for each of them.
"""

import asyncio
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from contenders import Connection

_CONCURRENCY = 64
_PENDING = "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3D"


async def bind_all(connection: Connection) -> None:
    """Bind each pod that has no node, until cancelled."""
    async with connection.session(limit=_CONCURRENCY + 1) as session, asyncio.TaskGroup() as binds:
        async with session.get("/api/v1/nodes") as answer:
            nodes = itertools.cycle([node["metadata"]["name"] for node in (await answer.json())["items"]])
        timeout, seen = aiohttp.ClientTimeout(total=None), set[str]()
        while True:  # The API server closes a watch that lags behind a burst. A new one begins with the pods that have no node yet.
            async with session.get(_PENDING, timeout=timeout, read_bufsize=1 << 22) as watch:
                async for line in watch.content:
                    event = json.loads(line)
                    metadata = event["object"]["metadata"]
                    if event["type"] == "ADDED" and metadata["uid"] not in seen:
                        seen.add(metadata["uid"])
                        binds.create_task(_bind(session, metadata, next(nodes)))


async def _bind(session: aiohttp.ClientSession, pod: dict[str, Any], node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["name"], "uid": pod["uid"]}, "target": target}
    async with session.post(f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}/binding", json=body) as answer:
        if answer.status not in (201, 404):  # 404: the pod of the warm-up may be gone
            raise RuntimeError(f"pod {pod['name']} was not bound: {answer.status} {await answer.text()}")


if __name__ == "__main__":
    asyncio.run(bind_all(Connection.of(Path(sys.argv[1]))))
