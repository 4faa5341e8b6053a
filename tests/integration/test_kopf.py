"""What Kopf's handler of pending pods is good for, and what goes on without it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allaboard.app import App
from allaboard.cli.embedded import operator
from allaboard.kube.reflector import Reflector
from tests.cluster import Cluster
from tests.stories import gang_pod

from .conftest import StartApp
from .test_all_or_none import bound
from .test_recovery import bind


def create_gang(cluster: Cluster) -> None:
    for index in range(3):
        cluster.create(gang_pod(f"gang-{index}"))


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the reflectors take none of what their watches tell of pods, which they believe to be alive."""

    def take_none(self: Reflector, event: dict[str, Any]) -> None:
        if event["object"]["kind"] == "Pod":
            self._heard = self._clock()
        else:
            note(self, event)

    note = Reflector._note
    return lambda: monkeypatch.setattr(Reflector, "_note", take_none)


async def test_what_kopf_hears_alone_brings_a_label_pair_gang_its_first_look(cluster: Cluster, kubeconfig: Path, deaf: Any) -> None:
    cluster.add_node("node-1", cpu="4")
    async with operator(kubeconfig):
        deaf()
        create_gang(cluster)
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)
        await cluster.wait_for(lambda s: s.get("podgroups", "gang") is not None, message="and its PodGroup")


async def test_a_gang_of_another_spelling_waits_for_the_reflector(cluster: Cluster, kubeconfig: Path, deaf: Any) -> None:
    """So that the test before tells of Kopf."""
    cluster.add_node("node-1", cpu="4")
    async with operator(kubeconfig):
        deaf()
        single = gang_pod("single")
        single["metadata"]["labels"] = {}
        cluster.create(single)
        create_gang(cluster)
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)
        assert not bound(cluster, "single")


async def test_without_kopfs_news_the_reflector_brings_the_gang(
    cluster: Cluster, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "observe_pending_pod", lambda self, event, raw: None)
    cluster.add_node("node-1", cpu="4")
    async with operator(kubeconfig):
        create_gang(cluster)
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)


async def test_of_a_gang_that_has_begun_the_reflector_alone_tells(
    cluster: Cluster, kubeconfig: Path, deaf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a newcomer known before another's end, the gang would be completed around a member that is gone."""
    heard: list[str] = []

    def noting(self: App, event: str | None, raw: dict[str, Any]) -> None:
        observe(self, event, raw)
        heard.append(raw["metadata"]["name"])

    observe = App.observe_pending_pod
    monkeypatch.setattr(App, "observe_pending_pod", noting)
    cluster.add_node("node-1", cpu="4")
    async with operator(kubeconfig) as app:
        create_gang(cluster)
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)
        await cluster.wait_for(lambda s: sum(pod.is_bound for pod in app.view.pods()) == 3)
        deaf()
        cluster.delete("pods", "gang-0", grace=0)
        cluster.create(gang_pod("gang-9"))
        await cluster.wait_for(lambda s: "gang-9" in heard)
        assert app.view.pod("default/gang-0")
        assert app.view.pod("default/gang-9") is None


class Late:
    """Has what the pods' watch tells wait until it is called."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        reflector, self._waiting = app._reflectors["pods"], list[dict[str, Any]]()
        self._note = reflector._note
        monkeypatch.setattr(reflector, "_note", self._waiting.append)

    def waits(self, name: str) -> bool:
        """Whether a pod is among those who wait."""
        return any(event["object"]["metadata"].get("name") == name for event in self._waiting)

    def __call__(self, until: str = "") -> None:
        while self._waiting and self._waiting[0]["object"]["metadata"].get("name") != until:
            self._note(self._waiting.pop(0))


MakeLate = Callable[[App], Late]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> MakeLate:
    """Has what the pods' watch tells wait, from when it is called until what it returns is."""
    return lambda app: Late(app, monkeypatch)


def hear(app: App, cluster: Cluster, name: str) -> None:
    app.observe_pending_pod("ADDED", {"kind": "Pod", **(cluster.get("pods", name) or {})})


async def test_a_gang_that_we_have_seated_takes_nobody_who_is_only_heard_of(cluster: Cluster, start_app: StartApp, late: MakeLate) -> None:
    """Though the watch hasn't told of its binds, and may tell of its members' end long after."""
    cluster.add_node("node-1", cpu="4")
    app = await start_app()
    late(app)
    for name in ("gang-0", "gang-1"):
        cluster.create(gang_pod(name, minimum=2))
        hear(app, cluster, name)
    await cluster.wait_for(lambda s: len(bound(s, "gang")) == 2)
    for name in ("gang-0", "gang-1"):
        cluster.delete("pods", name, grace=0)
    cluster.create(gang_pod("gang-9", minimum=2))
    hear(app, cluster, "gang-9")
    await asyncio.sleep(0)
    assert app.view.pod("default/gang-9") is None


async def test_what_becomes_of_a_pod_that_is_known_is_for_the_reflector_to_tell(
    cluster: Cluster, start_app: StartApp, late: MakeLate
) -> None:
    """Or the gangs that Kopf hears of would be free to go, as after a seal, before those of higher priority of which it doesn't."""
    app = await start_app()
    cluster.create(gang_pod("gang-0"))
    await cluster.wait_for(lambda s: app.view.pod("default/gang-0") is not None)
    late(app)
    before = app.view.pod("default/gang-0")
    cluster.patch("pods", "gang-0", {"metadata": {"annotations": {"allaboard.dev/objective": "spread"}}})
    hear(app, cluster, "gang-0")
    await asyncio.sleep(0)
    assert app.view.pod("default/gang-0") is before


async def test_that_a_pod_is_pending_no_more_is_for_the_reflector_to_tell(cluster: Cluster, start_app: StartApp, late: MakeLate) -> None:
    cluster.add_node("node-1", cpu="4")
    app = await start_app()
    late(app)
    cluster.create(gang_pod("gang-0"))
    app.observe_pending_pod("DELETED", {"kind": "Pod", **(cluster.get("pods", "gang-0") or {})})
    await asyncio.sleep(0)
    assert app.view.pod("default/gang-0") is None


async def test_whoever_was_heard_of_is_forgotten_until_the_watch_has_come_to_it_when_its_gang_turns_out_to_have_begun(
    cluster: Cluster, start_app: StartApp, late: MakeLate
) -> None:
    """Somebody else has bound a member, which ended before the newcomer came: of the two there never was a gang."""
    cluster.add_node("node-1", cpu="4")
    app = await start_app()
    tell = late(app)
    cluster.create(gang_pod("gang-0", minimum=2))
    await bind(cluster, "gang-0", "node-1", 2)
    cluster.create(gang_pod("marker", gang="other"))
    cluster.delete("pods", "gang-0", grace=0)
    cluster.create(gang_pod("gang-9", minimum=2))
    hear(app, cluster, "gang-9")
    await cluster.wait_for(lambda s: app.view.pod("default/gang-9") is not None)
    await cluster.wait_for(lambda s: tell.waits("marker"))
    tell("marker")
    await cluster.wait_for(lambda s: any(pod.node_name for pod in app.view.pods()))
    assert app.view.pod("default/gang-9") is None
    await cluster.wait_for(lambda s: tell.waits("gang-9"))
    tell()
    await cluster.wait_for(lambda s: app.view.pod("default/gang-9") is not None)
    assert app.view.pod("default/gang-0") is None
    assert not bound(cluster, "gang")
