"""Watches, told event by event to whoever reads them at leisure."""

import asyncio
import json

from allaboard.sandbox import Sandbox
from allaboard.sandbox.lists import Selection
from allaboard.sandbox.server import JSON
from allaboard.sandbox.watch import LAST_BOOKMARK_SECONDS, WatchOptions, watch


async def test_what_happens_while_a_bookmark_is_read_is_told_at_once() -> None:
    sandbox = Sandbox()
    sandbox.add_node("node-1")
    options = WatchOptions(str(sandbox.store.revision), bookmarks=True, timeout_seconds=LAST_BOOKMARK_SECONDS + 0.05)
    events = watch(sandbox.store, sandbox.api.resource("nodes"), Selection(), options, JSON)
    sandbox.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
    assert json.loads(await anext(events))["type"] == "BOOKMARK"
    sandbox.add_node("node-2")
    async with asyncio.timeout(LAST_BOOKMARK_SECONDS / 2):
        assert json.loads((await anext(events)).splitlines()[0])["object"]["metadata"]["name"] == "node-2"
