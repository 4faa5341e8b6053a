"""Objects that state walltimes are read as soon as the cluster serves them and the operator may read them. No other part waits for that."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from allaboard.gangs.owner_walltimes import OWNER_KINDS, OwnerWalltime
from allaboard.gangs.owner_watches import OwnerWatches
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import ApiPath

TRAINING, MPI = OWNER_KINDS[0], next(kind for kind in OWNER_KINDS if len(kind.resources) > 1)
TF_JOBS = str(TRAINING.resources[0].everywhere)
MPI_JOBS, MPI_JOBS_V2 = (str(resource.everywhere) for resource in MPI.resources)
SHORT, LONG = OwnerWalltime("u", "", 60.0), OwnerWalltime("u", "", 90.0)


def a_job(seconds: int) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"runPolicy": {"activeDeadlineSeconds": seconds}}}


class Server:
    """A server of collections, by path. A status in the place of a collection is the answer to all requests for it."""

    def __init__(self, **collections: list[dict[str, Any]] | int) -> None:
        self.collections = collections
        self.requests = Counter[str]()
        self.end_watches = asyncio.Event()

    def _found(self, path: str) -> list[dict[str, Any]]:
        found = self.collections.get(path, 404)
        if isinstance(found, int):
            raise ApiError(found, "Refused", f"no {path}")
        return found

    async def get(self, path: ApiPath, query: Mapping[str, str]) -> dict[str, Any]:
        self.requests[str(path)] += 1
        return {"metadata": {"resourceVersion": "1"}, "items": self._found(path)}

    @asynccontextmanager
    async def stream(self, path: ApiPath, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        self._found(path)

        async def lines() -> AsyncIterator[bytes]:
            await self.end_watches.wait()
            self._found(path)
            return
            yield b""

        yield lines()


class Watched:
    """Watches of ``kinds`` on a server, with the observed changes. ``later`` lets half a minute pass."""

    def __init__(self, server: Server, *kinds: Any) -> None:
        self.observed: list[tuple[OwnerWalltime | None, OwnerWalltime | None]] = []
        self._tick = asyncio.Event()
        self.watches = OwnerWatches(
            cast(ApiServer, server), lambda old, new: self.observed.append((old, new)), kinds or (TRAINING,), self._sleep
        )

    async def _sleep(self, seconds: float) -> None:
        assert seconds <= 60
        await self._tick.wait()

    async def settled(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def later(self) -> None:
        self._tick.set()
        self._tick = asyncio.Event()
        await self.settled()


@asynccontextmanager
async def watched(server: Server, *kinds: Any) -> AsyncIterator[Watched]:
    found = Watched(server, *kinds)
    task = asyncio.create_task(found.watches.run())
    try:
        async with asyncio.timeout(50):
            await found.watches.wait_until_read(50)
            await found.settled()
            yield found
            assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


async def test_kind_that_is_not_served_is_tried_again_in_silence_until_it_is_served(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    async with watched(server) as found:
        await found.later()
        assert (server.requests[TF_JOBS], found.observed) == (2, [])
        server.collections[TF_JOBS] = [a_job(60)]
        await found.later()
        assert found.observed == [(None, SHORT)]
        await found.later()
    assert server.requests[TF_JOBS] == 3  # what is watched isn't listed again
    assert not warnings(caplog)


async def test_one_warning_lists_the_kinds_that_may_not_be_read(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(**{TF_JOBS: 403, MPI_JOBS: 403})
    async with watched(server, *OWNER_KINDS) as found:
        for _ in range(3):
            await found.later()
        assert warnings(caplog) == [f"walltimes of TFJob.kubeflow.org, MPIJob.kubeflow.org aren't read: no {TF_JOBS} (403 Refused)"]
        server.collections[TF_JOBS] = [a_job(60)]
        await found.later()
        await found.later()
    assert found.observed == [(None, SHORT)]
    assert warnings(caplog)[1:] == [f"walltimes of MPIJob.kubeflow.org aren't read: no {MPI_JOBS} (403 Refused)"]


@pytest.mark.parametrize("status", [403, 404])
async def test_walltimes_are_forgotten_if_a_kind_cannot_be_read_twice_in_turn(status: int, caplog: pytest.LogCaptureFixture) -> None:
    server = Server(**{TF_JOBS: [a_job(60)]})
    async with watched(server) as found:
        server.collections[TF_JOBS] = status
        server.end_watches.set()
        await found.settled()
        assert found.observed == [(None, SHORT)]  # it may be a passing fault
        await found.later()
        assert found.observed == [(None, SHORT), (SHORT, None)]
        server.end_watches.clear()
        server.collections[TF_JOBS] = [a_job(90)]
        await found.later()
        assert found.observed[2:] == [(None, LONG)]
    assert len(warnings(caplog)) == (status == 403)


async def test_passing_fault_loses_no_walltime() -> None:
    server = Server(**{TF_JOBS: [a_job(60)]})
    async with watched(server) as found:
        server.collections[TF_JOBS] = 404
        server.end_watches.set()
        await found.settled()
        server.end_watches.clear()
        server.collections[TF_JOBS] = [a_job(60)]
        await found.later()
    assert found.observed == [(None, SHORT)]


async def test_first_served_version_of_a_kind_is_read_and_the_other_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    """mpi-operator's CRD replaces training-operator's: the same objects are then served as another version."""
    server = Server(**{MPI_JOBS: [a_job(60)], MPI_JOBS_V2: [a_job(60)]})
    async with watched(server, MPI) as found:
        assert (server.requests[MPI_JOBS], server.requests[MPI_JOBS_V2]) == (1, 0)
        del server.collections[MPI_JOBS]
        server.end_watches.set()
        await found.settled()
        server.end_watches.clear()
        await found.later()
        assert server.requests[MPI_JOBS_V2] == 1
    assert found.observed == [(None, SHORT)]
    assert not warnings(caplog)


async def test_a_kind_whose_first_answer_is_an_error_is_waited_for_only_for_a_time() -> None:
    server = Server(**{TF_JOBS: 500})
    found = Watched(server)
    task = asyncio.create_task(found.watches.run())
    await found.watches.wait_until_read(0.01)
    assert not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
