"""The view equals the cluster even when lists and watches fail."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Self
from urllib.parse import urlsplit

import pytest

from allaboard.cluster.stores import PodStore
from allaboard.cluster.view import ClusterView
from allaboard.kube import reflector
from allaboard.kube.client import ApiServer
from allaboard.kube.paths import PODS
from allaboard.kube.reflector import Reflector
from allaboard.model.pod import pod_from
from allaboard_sandbox import Fault
from tests.cluster import Cluster

from .conftest import gang_pod


class SilencingProxy:
    """A proxy to the API server that can silence watches, as when a load balancer drops a flow."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._watches: set[asyncio.StreamWriter] = set()
        self._silenced: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self.url = ""

    def silence(self) -> None:
        """Forward nothing more on the connections that carry watches now."""
        self._silenced |= self._watches

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)
        await asyncio.sleep(0)  # let the aborted transports close

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._relays.add(asyncio.ensure_future(self._relay(reader, writer)))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with ExitStack() as ends:
            ends.callback(writer.transport.abort)
            from_api, to_api = await asyncio.open_connection(self._target.hostname, self._target.port)
            ends.callback(to_api.transport.abort)
            directions = [asyncio.create_task(self._send(reader, writer, to_api)), asyncio.create_task(self._send_back(from_api, writer))]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)
                self._watches.discard(writer)

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_api: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if b"watch=1" in data:
                self._watches.add(writer)
            to_api.write(data)

    async def _send_back(self, from_api: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await from_api.read(65536):
            if writer not in self._silenced:
                writer.write(data)


class Mirror:
    """A view that a reflector keeps equal to the cluster's pods."""

    def __init__(self, server: ApiServer) -> None:
        async def no_pause(seconds: float) -> None:
            self.pauses += 1
            await asyncio.sleep(0)

        self.pauses = 0
        self.now = 1000.0
        self.view = ClusterView()
        self.changed = asyncio.Event()
        self.view.listen(on_pod=lambda old, new: self.changed.set())
        self.reflector = Reflector(server, PODS.everywhere, pod_from, PodStore(self.view), sleep=no_pause, clock=lambda: self.now)
        self.task = asyncio.create_task(self.reflector.run())

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(50):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

    def names(self) -> set[str]:
        return {pod.name for pod in self.view.pods()}


@pytest.fixture
async def mirror(kubeconfig: object) -> AsyncIterator[Mirror]:
    async with ApiServer.connect() as server:
        mirror = Mirror(server)
        yield mirror
        mirror.task.cancel()
        await asyncio.gather(mirror.task, return_exceptions=True)


async def test_list_of_several_pages_is_read_completely(cluster: Cluster, mirror: Mirror) -> None:
    for number in range(600):
        cluster.create(gang_pod(f"p{number}"))
    await mirror.until(lambda: len(mirror.names()) == 600)


async def test_created_and_deleted_pods_are_followed(cluster: Cluster, mirror: Mirror) -> None:
    await mirror.reflector.synced.wait()
    cluster.create(gang_pod("a"))
    await mirror.until(lambda: mirror.names() == {"a"})
    cluster.delete("pods", "a")
    await mirror.until(lambda: mirror.names() == set())


async def test_deletion_while_the_watch_was_down_is_noticed(cluster: Cluster, mirror: Mirror) -> None:
    """Kopf misses such deletions: after list [a, b], watch 410 and list [a], pod b stays known for ever."""
    cluster.create(gang_pod("a"))
    cluster.create(gang_pod("b"))
    await mirror.until(lambda: mirror.names() == {"a", "b"})
    cluster.faults.add(Fault("watch", "pods", status=503))
    cluster.drop_watches("pods")
    cluster.delete("pods", "b")
    cluster.compact()
    await mirror.until(lambda: mirror.names() == {"a"})
    assert mirror.reflector.relists == 2


async def test_dropped_watch_is_resumed_without_another_list(cluster: Cluster, mirror: Mirror) -> None:
    cluster.create(gang_pod("a"))
    await mirror.until(lambda: mirror.names() == {"a"})
    for number in range(3):
        cluster.drop_watches("pods")
        cluster.create(gang_pod(f"b{number}"))
        await mirror.until(lambda number=number: f"b{number}" in mirror.names())  # type: ignore[misc]
    assert mirror.reflector.relists == 1


@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_failed_list_is_retried(status: int, cluster: Cluster, mirror: Mirror) -> None:
    cluster.faults.add(Fault("list", "pods", status=status, times=3))
    cluster.create(gang_pod("a"))
    await mirror.until(lambda: mirror.names() == {"a"})


@pytest.mark.sandbox_only("a real API server takes no malformed pod")
async def test_pod_that_cannot_be_parsed_is_kept_as_malformed(cluster: Cluster, mirror: Mirror) -> None:
    await mirror.reflector.synced.wait()
    raw = gang_pod("odd")
    raw["spec"]["tolerations"] = "everything"
    cluster.load([{**raw, "metadata": {**raw["metadata"], "uid": "odd", "resourceVersion": "1"}, "status": {"phase": "Pending"}}])
    cluster.create(gang_pod("a"))
    cluster.drop_watches("pods")
    cluster.compact()
    await mirror.until(lambda: "a" in mirror.names() and "odd" in mirror.names())
    odd = mirror.view.pod("default/odd")
    assert odd is not None
    assert "spec.tolerations" in odd.malformed


@pytest.fixture
def _short_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "_WATCH_SECONDS", 1)
    monkeypatch.setattr(reflector, "_GRACE_SECONDS", 0.3)


@pytest.mark.usefixtures("_short_watches")
async def test_changes_during_a_silenced_watch_are_seen_by_the_next_watch(cluster: Cluster, kubeconfig: object) -> None:
    cluster.create(gang_pod("a"))
    async with SilencingProxy(cluster.url) as proxy, ApiServer.connect() as server:
        server.configuration.host = proxy.url
        mirror = Mirror(server)
        await mirror.until(lambda: mirror.names() == {"a"})
        for number in range(3):
            cluster.create(gang_pod(f"b{number}"))
            await mirror.until(lambda number=number: f"b{number}" in mirror.names())  # type: ignore[misc]
            proxy.silence()
            cluster.delete("pods", f"b{number}", grace=0)
            await mirror.until(lambda: mirror.names() == {"a"})
        assert mirror.reflector.relists == 1
        mirror.task.cancel()
        await asyncio.gather(mirror.task, return_exceptions=True)


@pytest.mark.usefixtures("_short_watches")
async def test_end_of_a_watch_without_events_counts_as_a_sign_of_life(cluster: Cluster, mirror: Mirror) -> None:
    """Objects of a resource may never change; that alone must not make the operator unready."""
    await mirror.reflector.synced.wait()
    mirror.now += 1000
    assert mirror.reflector.silence_seconds == 1000
    async with asyncio.timeout(50):
        while mirror.reflector.silence_seconds >= 1000:  # the reflector has no event to wait for
            await asyncio.sleep(0.01)
            mirror.now += 0.1
    assert mirror.reflector.silence_seconds < 1
