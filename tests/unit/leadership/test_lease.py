"""At most one of several replicas leads, whatever the API server does."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.kube.client import ApiError
from allaboard.leadership import lease as module
from allaboard.leadership.lease import Lease, LeaseLostError, LeaseTimes, fenced, own_namespace

from .elections import Answer, Connection, LeaseServer, Replica, now, virtually

HELD_BY_ANOTHER = {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 4}}


async def until(is_true: Callable[[], bool], seconds: float = 120.0) -> float:
    """Wait until ``is_true`` returns true, and return the virtual time of that."""
    async with asyncio.timeout(seconds):
        while not is_true():  # noqa: ASYNC110  # polling costs nothing in virtual time
            await asyncio.sleep(0.01)
    return now()


def test_missing_lease_is_created_as_client_go_creates_it() -> None:
    async def play() -> None:
        server = LeaseServer()
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        assert server.lease is not None
        assert server.lease["metadata"] == {"namespace": "ns", "name": "allaboard", "resourceVersion": "101"}
        assert server.spec["holderIdentity"] == "a"
        assert (server.spec["leaseDurationSeconds"], server.spec["leaseTransitions"]) == (15, 0)
        assert server.spec["acquireTime"] == server.spec["renewTime"]
        assert len(server.spec["renewTime"].partition(".")[2]) == len("123456Z")
        assert datetime.fromisoformat(server.spec["renewTime"]).tzinfo is not None
        assert await replica.end() is None

    virtually(play())


def test_lease_expires_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "clock_gettime", {module.time.CLOCK_BOOTTIME: 7.0}.get)
    assert module.boot_clock() == 7.0
    assert inspect.signature(Lease).parameters["clock"].default is module.boot_clock


def test_holder_renews_the_lease_and_keeps_its_acquire_time() -> None:
    async def play() -> None:
        server = LeaseServer()
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        acquired = server.spec["acquireTime"]
        await asyncio.sleep(100)
        assert replica.lease.is_held
        assert server.spec["acquireTime"] == acquired
        assert server.spec["renewTime"] > acquired
        assert len(server.requests) == pytest.approx(50, abs=3)
        await replica.end()

    virtually(play())


def test_follower_takes_the_lease_when_it_expires() -> None:
    async def play() -> None:
        server = LeaseServer(HELD_BY_ANOTHER)
        replica = Replica(server, "b", offset=1e5)
        await replica.lease.acquired.wait()
        assert now() == pytest.approx(15, abs=0.02)
        assert server.spec["holderIdentity"] == "b"
        assert replica.lease.transitions == server.spec["leaseTransitions"] == 5
        await replica.end()

    virtually(play())


def test_follower_waits_while_the_holder_renews() -> None:
    async def play() -> None:
        server = LeaseServer()
        leader = Replica(server, "a")
        await leader.lease.acquired.wait()
        follower = Replica(server, "b")
        await asyncio.sleep(300)
        assert leader.lease.is_held
        assert not follower.lease.is_held
        await leader.end()
        killed = now()
        await follower.lease.acquired.wait()
        assert 13 <= now() - killed <= 15.5, "the follower waits a lease duration from the last renewal, and no further retry period"
        await follower.end()

    virtually(play())


def test_one_of_two_followers_that_try_at_once_gets_the_lease() -> None:
    async def play() -> None:
        server = LeaseServer(HELD_BY_ANOTHER)
        replicas = [Replica(server, name) for name in "bc"]
        await until(lambda: any(replica.lease.is_held for replica in replicas))
        await asyncio.sleep(30)
        assert sorted(replica.lease.is_held for replica in replicas) == [False, True]
        assert server.spec["leaseTransitions"] == 5
        for replica in replicas:
            assert await replica.end() is None

    virtually(play())


def test_holder_that_cannot_renew_stops_before_another_replica_can_take_the_lease() -> None:
    async def play() -> None:
        server = LeaseServer()
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        began = now()
        assert replica.lease.seconds_left() == pytest.approx(15)
        server.is_hanging = True
        ended = await until(replica.task.done)
        assert ended - began == pytest.approx(10, abs=0.05)
        assert replica.lease.seconds_left() == 0
        with pytest.raises(LeaseLostError, match="could not be renewed for 10 s: no answer within"):
            await replica.task
        assert len(server.requests) == 2 + 3, "a request that hangs leaves time for further tries"

    virtually(play())


def test_validity_of_a_lease_counts_from_before_its_renewal_was_sent() -> None:
    async def play() -> None:
        server = LeaseServer(script=[Answer(), Answer(before=1, after=2)])
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        assert now() == 3
        assert replica.lease.seconds_left() == pytest.approx(12)
        await replica.end()

    virtually(play())


@pytest.mark.parametrize(
    "bad", [Answer(lost=True), Answer(refused=503), Answer(refused=429), Answer(before=9), Answer(after=9), Answer(refused=409)]
)
def test_renewal_that_fails_or_gets_no_answer_is_retried(bad: Answer) -> None:
    async def play() -> None:
        server = LeaseServer(script=[Answer(), Answer(), bad])
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        await asyncio.sleep(60)
        assert replica.lease.is_held
        assert server.spec["leaseTransitions"] == 0
        await replica.end()

    virtually(play())


def test_lost_answer_to_the_acquisition_delays_the_leader_by_less_than_a_lease_duration() -> None:
    async def play() -> None:
        server = LeaseServer(script=[Answer(), Answer(lost=True)])
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        assert now() < 5
        assert server.spec["leaseTransitions"] == 0
        await replica.end()

    virtually(play())


def test_holder_whose_machine_slept_does_not_lead_when_it_wakes() -> None:
    async def play() -> None:
        server = LeaseServer()
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        replica.slept = 11
        assert not replica.lease.is_held
        assert replica.lease.seconds_left() == 0
        with pytest.raises(LeaseLostError, match="held up"):
            await replica.task

    virtually(play())


def test_follower_whose_connection_was_cut_does_not_take_the_lease_of_a_living_holder() -> None:
    async def play() -> None:
        server = LeaseServer()
        leader, connection = Replica(server, "a"), Connection(server)
        await leader.lease.acquired.wait()
        follower = Replica(connection, "b")
        await asyncio.sleep(5)
        connection.is_cut = True
        await asyncio.sleep(30)
        connection.is_cut = False
        await asyncio.sleep(30)
        assert leader.lease.is_held
        assert not follower.lease.is_held
        assert server.spec["holderIdentity"] == "a"
        await leader.end()
        await follower.end()

    virtually(play())


def test_holder_ends_at_once_when_another_replica_has_taken_the_lease() -> None:
    async def play() -> None:
        server = LeaseServer()
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        server.store({**(server.lease or {}), **HELD_BY_ANOTHER})
        with pytest.raises(LeaseLostError, match="held by other now"):
            await replica.task
        assert server.spec["holderIdentity"] == "other"

    virtually(play())


def test_deleted_lease_is_created_again_by_its_holder_while_a_follower_waits() -> None:
    async def play() -> None:
        server = LeaseServer(HELD_BY_ANOTHER)
        leader = Replica(server, "a")
        await leader.lease.acquired.wait()
        follower = Replica(server, "b")
        await asyncio.sleep(5)
        server.lease = None
        await asyncio.sleep(30)
        assert leader.lease.is_held
        assert server.spec["holderIdentity"] == "a"
        assert server.spec["leaseTransitions"] == 5
        await leader.end()
        await follower.end()

    virtually(play())


def test_released_lease_is_taken_at_once() -> None:
    async def play() -> None:
        server = LeaseServer()
        leader = Replica(server, "a")
        await leader.lease.acquired.wait()
        follower = Replica(server, "b")
        await asyncio.sleep(20)
        await leader.end()
        await leader.lease.release()
        released = now()
        assert not leader.lease.is_held
        assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == ("", 1)
        await follower.lease.acquired.wait()
        assert now() - released <= 0.5
        assert server.spec["leaseTransitions"] == 1
        await follower.end()

    virtually(play())


def test_release_leaves_the_lease_of_another_holder_unchanged_and_ends_within_two_seconds() -> None:
    async def play() -> None:
        server = LeaseServer()
        leader = Replica(server, "a")
        await leader.lease.acquired.wait()
        await leader.end()
        server.store({**(server.lease or {}), **HELD_BY_ANOTHER})
        await leader.lease.release()
        assert server.spec["holderIdentity"] == "other"
        server.is_hanging = True
        began = now()
        await leader.lease.release()
        assert now() - began <= 2

    virtually(play())


def test_follower_that_stops_sends_no_request_to_release_the_lease() -> None:
    async def play() -> None:
        server = LeaseServer(HELD_BY_ANOTHER)
        follower = Replica(server, "b")
        await asyncio.sleep(1)
        await follower.end()
        before = len(server.requests)
        await follower.lease.release()
        assert len(server.requests) == before

    virtually(play())


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        "nonsense",
        {"holderIdentity": None},
        {"holderIdentity": 7, "leaseDurationSeconds": "15"},
        {"holderIdentity": "gone", "leaseDurationSeconds": -3, "renewTime": "yesterday", "leaseTransitions": "many"},
        {"holderIdentity": "gone", "leaseDurationSeconds": 10**9, "acquireTime": 12, "leaseTransitions": -1},
        {"holderIdentity": "gone", "leaseDurationSeconds": True, "leaseTransitions": 1.5},
        {"holderIdentity": "gone", "leaseDurationSeconds": 15, "leaseTransitions": 2**31 - 1},
    ],
)
def test_malformed_lease_is_taken_after_a_lease_duration_at_most(spec: Any) -> None:
    async def play() -> None:
        server = LeaseServer({"spec": spec})
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        assert now() <= 15.02
        assert server.spec["holderIdentity"] == "a"
        assert server.spec["leaseTransitions"] in (0, 1)
        assert isinstance(server.spec["acquireTime"], str)
        await replica.end()

    virtually(play())


def test_fields_that_other_clients_have_written_into_the_lease_are_kept() -> None:
    async def play() -> None:
        server = LeaseServer({"metadata": {"labels": {"a": "b"}}, "spec": {"strategy": "OldestEmulationVersion"}})
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        assert server.lease is not None
        assert server.lease["metadata"]["labels"] == {"a": "b"}
        assert server.spec["strategy"] == "OldestEmulationVersion"
        await replica.end()

    virtually(play())


def test_follower_logs_once_which_replica_holds_the_lease(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        replica = Replica(LeaseServer(HELD_BY_ANOTHER), "b")
        await asyncio.sleep(10)
        await replica.end()

    caplog.set_level(logging.INFO)
    virtually(play())
    assert [record.getMessage() for record in caplog.records] == ["waiting for the lease ns/allaboard, which other holds"]


@pytest.mark.parametrize("status", [403, 404])  # 404: the lease can't be created, since its namespace doesn't exist
def test_lease_that_cannot_be_accessed_is_logged_with_the_option_for_its_namespace(status: int, caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        replica = Replica(LeaseServer(script=[Answer(refused=status)] * 100), "b")
        await asyncio.sleep(5)
        assert not replica.lease.is_held
        await replica.end()

    virtually(play())
    (logged,) = {record.getMessage() for record in caplog.records}
    assert "the lease ns/allaboard can't be read or taken" in logged
    assert "--lease-namespace (lease_namespace) says where the lease is" in logged


def test_server_error_is_logged_without_the_option_for_the_namespace(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        replica = Replica(LeaseServer(script=[Answer(refused=500)] * 100), "b")
        await asyncio.sleep(5)
        await replica.end()

    virtually(play())
    assert caplog.records
    assert not [record for record in caplog.records if "lease-namespace" in record.getMessage()]


def test_request_of_the_leader_is_ended_before_another_replica_can_take_the_lease() -> None:
    async def play() -> None:
        server = LeaseServer()
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        with pytest.raises(ApiError, match="before the lease may be taken") as caught:
            async with fenced(replica.lease):
                server.is_hanging = True
                await asyncio.sleep(3600)
        assert caught.value.is_transient
        assert now() == pytest.approx(15)
        with pytest.raises(LeaseLostError):
            async with fenced(replica.lease):
                pytest.fail("a request was sent without the lease")
        await replica.end()

    virtually(play())


def test_lease_is_in_the_namespace_of_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "namespace"
    monkeypatch.setattr(module, "_NAMESPACE_FILE", path)
    assert own_namespace() == "default"
    path.write_text("allaboard-system\n")
    assert own_namespace() == "allaboard-system"


_SECONDS = st.sampled_from([0.0, 0.1, 1.0, 2.9, 5.0, 20.0])
_ANSWER = st.one_of(
    st.builds(Answer),
    st.builds(Answer, before=_SECONDS, after=_SECONDS),
    st.builds(Answer, refused=st.sampled_from([401, 409, 429, 500, 503])),
    st.builds(Answer, before=_SECONDS, lost=st.just(True)),
)
_EVENT = st.tuples(st.floats(0.1, 25), st.sampled_from(["kill", "stop", "sleep"]), st.integers(0, 1))


class Watched:
    """Two replicas that are replaced when they end, and the check that at most one leads at a time."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self._leases: list[Lease] = []
        self._last_request: dict[Lease, float] = {}
        self.replicas = [self._start(), self._start()]

    def _start(self) -> Replica:
        replica = Replica(self._server, f"replica-{len(self._leases)}", offset=1000.0 * len(self._leases))
        self._leases.append(replica.lease)
        return replica

    async def watch(self) -> None:
        while True:
            leading = [lease for lease in self._leases if lease.is_held]
            assert len(leading) <= 1
            for lease in leading:
                assert all(end <= now() + 1e-6 for other, end in self._last_request.items() if other is not lease)
                self._last_request[lease] = now() + lease.seconds_left()
            await asyncio.sleep(0.05)

    async def do(self, event: str, number: int) -> None:
        replica = self.replicas[number]
        if event == "sleep":
            # Only a leader's machine sleeps: a follower's sleep is no danger, since the leader renews.
            replica.slept += 12 * replica.lease.is_held
            return
        await replica.end()
        if event == "stop":  # a replica that stops waits until its requests have ended
            self._last_request.pop(replica.lease, None)
            await replica.lease.release()
        self.replicas[number] = self._start()

    async def replace_the_ended(self) -> None:
        for number, replica in enumerate(self.replicas):
            if replica.task.done():
                assert isinstance(await replica.end(), LeaseLostError)
                self.replicas[number] = self._start()


@settings(max_examples=100)
@given(script=st.lists(_ANSWER, max_size=60), happenings=st.lists(_EVENT, max_size=8))
def test_two_replicas_never_lead_at_once_and_a_leaders_requests_end_before_the_next_leader_begins(
    script: list[Answer], happenings: list[tuple[float, str, int]]
) -> None:
    async def play() -> None:
        election = Watched(LeaseServer(script=script))
        watching = asyncio.create_task(election.watch())
        for pause, event, number in happenings:
            await asyncio.sleep(pause)
            await election.replace_the_ended()
            await election.do(event, number)
        await until(lambda: watching.done() or any(replica.lease.is_held for replica in election.replicas), seconds=1000)
        for replica in election.replicas:
            await replica.end()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    virtually(play())


def test_election_works_with_times_below_a_second() -> None:
    async def play() -> None:
        server = LeaseServer()
        times = LeaseTimes(duration=1, renew_deadline=0.6, retry=0.1)
        leader = Replica(server, "a", times)
        await leader.lease.acquired.wait()
        follower = Replica(server, "b", times)
        await asyncio.sleep(20)
        assert leader.lease.is_held
        await leader.end()
        killed = now()
        await follower.lease.acquired.wait()
        assert now() - killed <= 1.1
        await follower.end()

    virtually(play())


def test_follower_with_a_shorter_lease_duration_waits_for_the_duration_that_the_holder_stated() -> None:
    """Otherwise two replicas could lead while an update changes the times."""

    async def play() -> None:
        server = LeaseServer()
        leader = Replica(server, "a", LeaseTimes(60, 50.0, 2.0))
        await leader.lease.acquired.wait()
        follower = Replica(server, "b", LeaseTimes(15, 10.0, 2.0))
        await asyncio.sleep(5)
        await leader.end()
        killed = now()
        await follower.lease.acquired.wait()
        assert not leader.lease.is_held
        assert now() - killed > 55
        await follower.end()

    virtually(play())


def test_holder_whose_lease_was_taken_does_not_lead_once_its_renewal_task_has_ended() -> None:
    async def play() -> None:
        server = LeaseServer()
        replica = Replica(server, "a")
        await replica.lease.acquired.wait()
        server.store({"metadata": server.lease["metadata"], "spec": {**server.spec, "holderIdentity": "b"}})  # type: ignore[index]
        await until(replica.task.done)
        assert not replica.lease.is_held
        assert replica.lease.seconds_left() == 0
        await replica.end()

    virtually(play())
