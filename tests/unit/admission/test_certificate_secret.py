"""Tests which replica creates and renews the certificate, and that every served certificate is trusted."""

import asyncio
import base64
import copy
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from allaboard.admission.certificate_secret import NAME, PROPAGATION_SECONDS, CertificateSecret
from allaboard.admission.certificates import Pair
from allaboard.kube.errors import ApiError
from allaboard.kube.paths import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ApiPath

NAMESPACE = "allaboard-system"
HOSTS = (f"{NAME}.{NAMESPACE}.svc",)
LIFE = timedelta(days=90)
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"
CONFIGURATIONS = (str(MUTATING_WEBHOOKS.clusterwide(NAME)), str(VALIDATING_WEBHOOKS.clusterwide(NAME)))


class FakeServer:
    """An API server with objects by path; ``log`` has the verb and the resource of each write."""

    def __init__(self, *, is_installed: bool = True) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[str] = []
        self.version = 0
        for path in CONFIGURATIONS if is_installed else ():
            self.objects[path] = {"webhooks": [{"name": "a", "clientConfig": {"service": {"name": NAME}}}]}

    async def request(
        self, method: str, path: ApiPath, *, body: Mapping[str, object] | None = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        await asyncio.sleep(0)  # so that other tasks run in between
        key = f"{path}/{NAME}" if method == "POST" else str(path)
        found = self.objects.get(key)
        if method == "GET":
            if found is None:
                raise ApiError(404, "NotFound", "there is none")
            return copy.deepcopy(found)
        wanted: Any = copy.deepcopy(body)
        if method == "POST" and found is not None:
            raise ApiError(409, "AlreadyExists", "there is one")
        if method == "PUT" and (found is None or wanted["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]):
            raise ApiError(409 if found else 404, "Conflict", "it is another")
        self.log.append(f"{method} {key.split('/')[-2]}")
        if method == "PATCH":
            assert found is not None
            for change in wanted["webhooks"]:
                next(each for each in found["webhooks"] if each["name"] == change["name"])["clientConfig"] |= change["clientConfig"]
            return found
        self.version += 1
        wanted["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = wanted
        return copy.deepcopy(self.objects[key])

    @property
    def bundles(self) -> list[str]:
        """The authorities that the API server trusts, for each configuration."""
        bundles = [self.objects[path]["webhooks"][0]["clientConfig"].get("caBundle", "") for path in CONFIGURATIONS]
        return [base64.b64decode(bundle).decode() for bundle in bundles]


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.slept: list[float] = []

    def __call__(self) -> datetime:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def certificate_secret(
    server: FakeServer, clock: Clock, leads: Callable[[], bool] = lambda: True, sleep: Callable[[float], Awaitable[None]] | None = None
) -> CertificateSecret:
    return CertificateSecret(server, namespace=NAMESPACE, hosts=HOSTS, life=LIFE, leads=leads, now=clock, sleep=sleep or clock.sleep)


async def test_first_replica_creates_the_certificate_secret_and_writes_the_ca_bundles(server: FakeServer, clock: Clock) -> None:
    ours = certificate_secret(server, clock)
    pair = await ours.refresh()
    assert server.bundles == [pair.authorities] * 2
    assert ours.is_settled
    assert server.objects[CONFIGURATIONS[0]]["webhooks"][0]["clientConfig"]["service"] == {"name": NAME}


async def test_secret_of_another_type_is_an_error_until_a_user_deletes_it(server: FakeServer, clock: Clock) -> None:
    server.objects[SECRET] = {"type": "Opaque", "metadata": {"resourceVersion": "1"}, "data": {}}
    with pytest.raises(ApiError, match="is of type Opaque, which can't be changed: delete it"):
        await certificate_secret(server, clock).refresh()
    assert server.log == []

    del server.objects[SECRET]
    await certificate_secret(server, clock).refresh()
    assert server.objects[SECRET]["type"] == "kubernetes.io/tls"


async def test_webhooks_of_another_installation_are_not_changed_and_cause_one_warning(
    server: FakeServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for path in CONFIGURATIONS:
        server.objects[path]["webhooks"][0]["clientConfig"]["service"]["namespace"] = "other-system"
    ours = certificate_secret(server, clock)
    for _ in range(3):
        await ours.refresh()
    assert server.bundles == ["", ""]
    assert [record.levelname for record in caplog.records if "other-system" in record.getMessage()] == ["WARNING", "WARNING"]


async def test_two_replicas_that_start_at_once_serve_one_common_certificate(server: FakeServer, clock: Clock) -> None:
    one, two = await asyncio.gather(certificate_secret(server, clock).refresh(), certificate_secret(server, clock, lambda: False).refresh())
    assert one == two
    assert server.log.count("POST secrets") == 1


async def test_second_refresh_of_a_valid_certificate_changes_nothing(server: FakeServer, clock: Clock) -> None:
    ours = certificate_secret(server, clock)
    pair = await ours.refresh()
    before = list(server.log)
    assert await ours.refresh() == pair
    assert server.log == before


async def test_follower_serves_the_stored_certificate_and_leaves_the_ca_bundles_to_the_leader(server: FakeServer, clock: Clock) -> None:
    follower = certificate_secret(server, clock, lambda: False)
    pair = await follower.refresh()
    assert not follower.is_settled
    assert await certificate_secret(server, clock).refresh() == pair
    assert await follower.refresh() == pair
    assert follower.is_settled


async def test_leader_writes_the_new_ca_bundle_before_it_stores_a_renewed_certificate(server: FakeServer, clock: Clock) -> None:
    follower = certificate_secret(server, clock, lambda: False)

    async def propagation(seconds: float) -> None:
        clock.slept.append(seconds)
        assert all(old.authorities in bundle and len(bundle) > len(old.authorities) for bundle in server.bundles)
        assert await follower.refresh() == old

    leader = certificate_secret(server, clock, sleep=propagation)
    old = await leader.refresh()
    clock.now += timedelta(days=61)
    del server.log[:]

    new = await leader.refresh()

    assert new != old
    assert clock.slept == [PROPAGATION_SECONDS]
    assert server.log == [f"PATCH {kind.plural}" for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)] + ["PUT secrets"]
    assert await follower.refresh() == new
    assert follower.is_settled


async def test_certificate_renewal_that_fails_half_way_is_repeated_and_the_old_certificate_stays_trusted(
    server: FakeServer, clock: Clock
) -> None:
    async def die(_: float) -> None:
        raise ApiError(0, "Unreachable", "gone")

    leader = certificate_secret(server, clock, sleep=die)
    old = await leader.refresh()
    clock.now += timedelta(days=61)

    with pytest.raises(ApiError):
        await leader.refresh()
    assert all(old.authorities in bundle for bundle in server.bundles)

    new = await certificate_secret(server, clock).refresh()
    assert server.bundles == [new.authorities] * 2
    assert old.authorities in new.authorities


async def test_leader_creates_a_deleted_secret_again_while_the_old_certificate_stays_trusted(server: FakeServer, clock: Clock) -> None:
    leader, follower = certificate_secret(server, clock), certificate_secret(server, clock, lambda: False)
    old = await leader.refresh()
    assert await follower.refresh() == old
    del server.objects[SECRET]

    assert await follower.refresh() == old
    new = await leader.refresh()

    assert new != old
    assert old.authorities in server.bundles[0]
    assert await follower.refresh() == new


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": "!"}, {"ca.crt": "eA==", "tls.crt": "eA==", "tls.key": "eA=="}, 5])
async def test_malformed_certificate_secret_is_replaced(data: object, server: FakeServer, clock: Clock) -> None:
    server.objects[SECRET] = {"type": "kubernetes.io/tls", "metadata": {"resourceVersion": "7"}, "data": data}
    pair = await certificate_secret(server, clock).refresh()
    assert isinstance(pair, Pair)
    assert await certificate_secret(server, clock).refresh() == pair


async def test_certificate_that_expired_while_no_replica_ran_is_replaced(server: FakeServer, clock: Clock) -> None:
    old = await certificate_secret(server, clock).refresh()
    clock.now += timedelta(days=100)
    new = await certificate_secret(server, clock).refresh()
    assert (new.is_good(clock()), old.is_good(clock())) == (True, False)


async def test_no_ca_bundle_is_written_if_the_webhook_configurations_are_missing(clock: Clock) -> None:
    ours = certificate_secret(FakeServer(is_installed=False), clock)
    await ours.refresh()
    assert ours.is_settled
