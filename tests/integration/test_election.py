"""Nothing that holds up the scheduler's loop keeps the lease from being renewed."""

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
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A sandbox that goes on when this test's loop is held up."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    sandbox = Sandbox()

    def there(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    there(sandbox.__aenter__())
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield sandbox
    there(sandbox.__aexit__(None, None, None))
    there(loop.shutdown_default_executor())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def made(server: Server) -> Lease:
    return Lease(server, namespace="default", name="allaboard", identity="us", times=TIMES)


def lease_of(sandbox: Sandbox) -> dict[str, Any]:
    return (sandbox.get("leases", "allaboard", "default") or {}).get("spec") or {}


async def within(seconds: float, work: Awaitable[Any]) -> None:
    async with asyncio.timeout(seconds):
        await work


async def test_a_loop_that_is_held_up_for_longer_than_the_lease_lasts_keeps_it(elsewhere: Sandbox) -> None:
    async with in_own_thread(made) as candidate:
        assert not candidate.is_held
        assert candidate.seconds_left() == 0
        running = asyncio.create_task(candidate.run())
        await within(10, candidate.acquired.wait())
        renewed = lease_of(elsewhere)["renewTime"]
        time.sleep(1.5 * TIMES.duration)  # noqa: ASYNC251  # what is tested: nobody gives way
        assert candidate.is_held
        assert candidate.seconds_left() > TIMES.duration - TIMES.renew_deadline
        assert lease_of(elsewhere)["renewTime"] > renewed
        await asyncio.sleep(0)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert lease_of(elsewhere)["holderIdentity"] == "us"
        await candidate.release()
        assert lease_of(elsewhere)["holderIdentity"] == ""
        assert not candidate.is_held
    await candidate.release()  # once more, by whoever stops twice


async def test_a_lease_that_is_lost_is_told_as_ever(elsewhere: Sandbox) -> None:
    async with in_own_thread(made) as candidate:
        running = asyncio.create_task(candidate.run())
        await within(10, candidate.acquired.wait())
        elsewhere.faults.add(Fault("update", "leases", times=FOR_EVER, status=503))
        with pytest.raises(LeaseLostError, match="could not be renewed"):
            await within(10, running)
        assert not candidate.is_held


async def test_the_lease_is_in_the_cluster_that_the_settings_name(
    elsewhere: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    async with in_own_thread(made, str(tmp_path / "kubeconfig")) as candidate:
        running = asyncio.create_task(candidate.run())
        await within(10, candidate.acquired.wait())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert lease_of(elsewhere)["holderIdentity"] == "us"


async def test_no_thread_is_left_behind(elsewhere: Sandbox) -> None:
    async with in_own_thread(made) as candidate:
        running = asyncio.create_task(candidate.run())
        await within(10, candidate.acquired.wait())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert "election" in {thread.name for thread in threading.enumerate()}
    assert "election" not in {thread.name for thread in threading.enumerate()}
