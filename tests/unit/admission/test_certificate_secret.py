"""Who makes and renews the certificate, and in which order it is trusted and served."""

import asyncio
import base64
import copy
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from allaboard.admission.certificate_secret import HEARD_SECONDS, NAME, CertificateSecret
from allaboard.admission.certificates import Pair
from allaboard.kube.errors import ApiError
from allaboard.kube.paths import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ApiPath

NAMESPACE = "allaboard-system"
HOSTS = (f"{NAME}.{NAMESPACE}.svc",)
LIFE = timedelta(days=90)
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"
CONFIGURATIONS = (str(MUTATING_WEBHOOKS.clusterwide(NAME)), str(VALIDATING_WEBHOOKS.clusterwide(NAME)))


class FakeServer:
    """Objects by their paths, with versions; ``log`` has what was written."""

    def __init__(self, *, is_installed: bool = True) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[str] = []
        self.version = 0
        for path in CONFIGURATIONS if is_installed else ():
            self.objects[path] = {"webhooks": [{"name": "a", "clientConfig": {"service": {"name": NAME}}}]}

    async def request(
        self, method: str, path: ApiPath, *, body: Mapping[str, object] | None = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        await asyncio.sleep(0)  # so that others come in between
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
            for told in wanted["webhooks"]:
                next(each for each in found["webhooks"] if each["name"] == told["name"])["clientConfig"] |= told["clientConfig"]
            return found
        self.version += 1
        wanted["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = wanted
        return copy.deepcopy(self.objects[key])

    @property
    def bundles(self) -> list[str]:
        """Whom the API server trusts."""
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


async def test_who_comes_first_makes_it_and_tells_the_api_server(server: FakeServer, clock: Clock) -> None:
    ours = certificate_secret(server, clock)
    pair = await ours.look()
    assert server.bundles == [pair.authorities] * 2
    assert ours.is_settled
    assert server.objects[CONFIGURATIONS[0]]["webhooks"][0]["clientConfig"]["service"] == {"name": NAME}


async def test_a_secret_of_another_type_is_to_be_deleted_by_whoever_made_it(server: FakeServer, clock: Clock) -> None:
    server.objects[SECRET] = {"type": "Opaque", "metadata": {"resourceVersion": "1"}, "data": {}}
    with pytest.raises(ApiError, match="is of type Opaque, which can't be changed: delete it"):
        await certificate_secret(server, clock).look()
    assert server.log == []

    del server.objects[SECRET]
    await certificate_secret(server, clock).look()
    assert server.objects[SECRET]["type"] == "kubernetes.io/tls"


async def test_webhooks_of_another_installation_are_left_to_it_and_that_is_told_once(
    server: FakeServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for path in CONFIGURATIONS:
        server.objects[path]["webhooks"][0]["clientConfig"]["service"]["namespace"] = "somebody-elses"
    ours = certificate_secret(server, clock)
    for _ in range(3):
        await ours.look()
    assert server.bundles == ["", ""]
    assert [record.levelname for record in caplog.records if "somebody-elses" in record.getMessage()] == ["WARNING", "WARNING"]


async def test_of_two_that_come_at_once_both_serve_the_same(server: FakeServer, clock: Clock) -> None:
    one, two = await asyncio.gather(certificate_secret(server, clock).look(), certificate_secret(server, clock, lambda: False).look())
    assert one == two
    assert server.log.count("POST secrets") == 1


async def test_a_second_look_changes_nothing(server: FakeServer, clock: Clock) -> None:
    ours = certificate_secret(server, clock)
    pair = await ours.look()
    before = list(server.log)
    assert await ours.look() == pair
    assert server.log == before


async def test_a_follower_serves_what_is_stored_and_waits_for_the_leader_to_have_it_trusted(server: FakeServer, clock: Clock) -> None:
    follower = certificate_secret(server, clock, lambda: False)
    pair = await follower.look()
    assert not follower.is_settled
    assert await certificate_secret(server, clock).look() == pair
    assert await follower.look() == pair
    assert follower.is_settled


async def test_the_leader_renews_it_and_has_the_next_trusted_before_it_is_stored(server: FakeServer, clock: Clock) -> None:
    follower = certificate_secret(server, clock, lambda: False)

    async def heard(seconds: float) -> None:
        clock.slept.append(seconds)
        assert all(old.authorities in bundle and len(bundle) > len(old.authorities) for bundle in server.bundles)
        assert await follower.look() == old

    leader = certificate_secret(server, clock, sleep=heard)
    old = await leader.look()
    clock.now += timedelta(days=61)
    del server.log[:]

    new = await leader.look()

    assert new != old
    assert clock.slept == [HEARD_SECONDS]
    assert server.log == [f"PATCH {kind.plural}" for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)] + ["PUT secrets"]
    assert await follower.look() == new
    assert follower.is_settled


async def test_a_renewal_that_fails_half_way_is_made_anew_and_nobody_is_cut_off(server: FakeServer, clock: Clock) -> None:
    async def die(_: float) -> None:
        raise ApiError(0, "Unreachable", "gone")

    leader = certificate_secret(server, clock, sleep=die)
    old = await leader.look()
    clock.now += timedelta(days=61)

    with pytest.raises(ApiError):
        await leader.look()
    assert all(old.authorities in bundle for bundle in server.bundles)

    new = await certificate_secret(server, clock).look()
    assert server.bundles == [new.authorities] * 2
    assert old.authorities in new.authorities


async def test_a_secret_that_is_deleted_is_made_anew_by_the_leader_without_a_gap(server: FakeServer, clock: Clock) -> None:
    leader, follower = certificate_secret(server, clock), certificate_secret(server, clock, lambda: False)
    old = await leader.look()
    assert await follower.look() == old
    del server.objects[SECRET]

    assert await follower.look() == old
    new = await leader.look()

    assert new != old
    assert old.authorities in server.bundles[0]
    assert await follower.look() == new


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": "!"}, {"ca.crt": "eA==", "tls.crt": "eA==", "tls.key": "eA=="}, 5])
async def test_a_secret_that_cant_be_used_is_replaced(data: object, server: FakeServer, clock: Clock) -> None:
    server.objects[SECRET] = {"type": "kubernetes.io/tls", "metadata": {"resourceVersion": "7"}, "data": data}
    pair = await certificate_secret(server, clock).look()
    assert isinstance(pair, Pair)
    assert await certificate_secret(server, clock).look() == pair


async def test_one_that_has_expired_while_nobody_ran_is_replaced(server: FakeServer, clock: Clock) -> None:
    old = await certificate_secret(server, clock).look()
    clock.now += timedelta(days=100)
    new = await certificate_secret(server, clock).look()
    assert (new.is_good(clock()), old.is_good(clock())) == (True, False)


async def test_where_no_webhooks_are_installed_nobody_need_be_told(clock: Clock) -> None:
    ours = certificate_secret(FakeServer(is_installed=False), clock)
    await ours.look()
    assert ours.is_settled
