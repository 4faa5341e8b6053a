"""Random schedules of faults on a real control plane, judged like those in virtual time, by what the API server reports."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cluster import Cluster, Home
from tests.faults.judge import Judge, ViolationError
from tests.faults.live import Feed, play_live

AT_ONCE = 25


def number(name: str, default: int) -> int:
    """Return the number that a variable of the environment states, or ``default``. Raises ``pytest.UsageError`` unless it is above 0."""
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or not int(text):
        raise pytest.UsageError(f"{name} must be a number above 0, not {text!r}")
    return int(text)


SCHEDULES = number("SCHEDULES", 50)
SEED = number("SEED", random.SystemRandom().randrange(1, 10**6))


@asynccontextmanager
async def administrator(control_plane: Any) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """Yield a session with an administrator's rights, and the URL of the API server."""
    access = control_plane.access
    headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.tls()), headers=headers, read_bufsize=1 << 20) as session:
        yield session, access.url


@pytest.mark.timeout(900)
async def test_every_gang_on_a_real_control_plane_ends_whole_or_absent_or_is_kept_open_by_a_rule(
    alone: None, home: Home, control_plane: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(text: str) -> None:
        with capsys.disabled():  # the test takes minutes, and a failure needs the command that repeats it
            print(f"\n{text}", flush=True)  # noqa: T201

    again = f"to play them again: make judged SCHEDULES={SCHEDULES} SEED={SEED}"
    say(f"{SCHEDULES} schedules; {again}")
    played = 0
    async with administrator(control_plane) as (session, url):
        for first in range(0, SCHEDULES, AT_ONCE):
            cluster: Cluster
            async with home.open() as cluster:
                kubeconfig = tmp_path / f"kubeconfig-{first}"
                home.write_operator_kubeconfig(cluster, kubeconfig)
                count = min(AT_ONCE, SCHEDULES - first)

                def feed(judge: Judge) -> Feed:
                    return Feed(session, url, judge)

                folder = tmp_path / str(first)
                try:
                    result = await play_live(cluster, cluster.wire, feed, kubeconfig, folder, seed=SEED + first, schedules=count)
                except ViolationError as error:
                    pytest.fail(f"{error}; {again}")
                except Exception as error:
                    error.add_note(again)  # when pytest runs several processes, only the error of this one is shown
                    raise
                played += result.played
                stalled = f"; the machine stalled {result.stalls} times" if result.stalls else ""
                say(f"{played} of {SCHEDULES} played{stalled}")
            await asyncio.sleep(0)
    assert played == SCHEDULES
