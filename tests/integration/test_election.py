"""The lease is renewed even while the scheduler's event loop is blocked."""

import asyncio
import threading
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from allaboard.leadership.lease import Lease, LeaseLostError, LeaseTimes, Server
from allaboard.leadership.own_thread import in_own_thread
from allaboard_sandbox import Fault, Sandbox
from allaboard_sandbox.faults import FOR_EVER

TIMES = LeaseTimes(duration=2, renew_deadline=1.2, retry=0.2)


@pytest.fixture
def threaded_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield a sandbox in a thread of its own, which answers while this test's loop is blocked."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    sandbox = Sandbox()

    def run_in_thread(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    run_in_thread(sandbox.__aenter__())
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield sandbox
    run_in_thread(sandbox.__aexit__(None, None, None))
    run_in_thread(loop.shutdown_default_executor())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def make_lease(server: Server) -> Lease:
    return Lease(server, namespace="default", name="allaboard", identity="us", times=TIMES)


def lease_of(sandbox: Sandbox) -> dict[str, Any]:
    return (sandbox.get("leases", "allaboard", "default") or {}).get("spec") or {}


async def within(seconds: float, work: Awaitable[Any]) -> None:
    async with asyncio.timeout(seconds):
        await work


async def test_lease_is_kept_while_the_loop_is_blocked_longer_than_the_lease_lasts(threaded_sandbox: Sandbox) -> None:
    async with in_own_thread(make_lease) as candidate:
        assert not candidate.is_held
        assert candidate.seconds_left() == 0
        running = asyncio.create_task(candidate.run())
        await within(10, candidate.acquired.wait())
        renewed = lease_of(threaded_sandbox)["renewTime"]
        time.sleep(1.5 * TIMES.duration)  # noqa: ASYNC251  # the loop must be blocked
        assert candidate.is_held
        assert candidate.seconds_left() > TIMES.duration - TIMES.renew_deadline
        assert lease_of(threaded_sandbox)["renewTime"] > renewed
        await asyncio.sleep(0)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert lease_of(threaded_sandbox)["holderIdentity"] == "us"
        await candidate.release()
        assert lease_of(threaded_sandbox)["holderIdentity"] == ""
        assert not candidate.is_held
    await candidate.release()  # a second release changes nothing


async def test_losing_the_lease_raises_an_error_in_the_event_loop_of_the_caller(threaded_sandbox: Sandbox) -> None:
    async with in_own_thread(make_lease) as candidate:
        running = asyncio.create_task(candidate.run())
        await within(10, candidate.acquired.wait())
        threaded_sandbox.faults.add(Fault("update", "leases", times=FOR_EVER, status=503))
        with pytest.raises(LeaseLostError, match="could not be renewed"):
            await within(10, running)
        assert not candidate.is_held


async def test_lease_is_in_the_cluster_that_the_settings_name(
    threaded_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    async with in_own_thread(make_lease, str(tmp_path / "kubeconfig")) as candidate:
        running = asyncio.create_task(candidate.run())
        await within(10, candidate.acquired.wait())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert lease_of(threaded_sandbox)["holderIdentity"] == "us"


async def test_leader_election_thread_ends_when_its_context_is_left(threaded_sandbox: Sandbox) -> None:
    async with in_own_thread(make_lease) as candidate:
        running = asyncio.create_task(candidate.run())
        await within(10, candidate.acquired.wait())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert "election" in {thread.name for thread in threading.enumerate()}
    assert "election" not in {thread.name for thread in threading.enumerate()}
