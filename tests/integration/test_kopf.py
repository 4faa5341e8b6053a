"""Kopf's handler of pending pods makes label-pair gangs known early; all else is taken from the reflector."""

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
def ignore_pod_events(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes the reflectors ignore all pod events and believe that their watches are alive."""

    def take_none(self: Reflector, event: dict[str, Any]) -> None:
        if event["object"]["kind"] == "Pod":
            self._last_heard = self._clock()
        else:
            note(self, event)

    note = Reflector._queue_event
    return lambda: monkeypatch.setattr(Reflector, "_queue_event", take_none)


async def test_gang_declared_by_the_pair_of_labels_is_scheduled_from_kopfs_events_alone(
    cluster: Cluster, kubeconfig: Path, ignore_pod_events: Any
) -> None:
    cluster.add_node("node-1", cpu="4")
    async with operator(kubeconfig):
        ignore_pod_events()
        create_gang(cluster)
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)
        await cluster.wait_for(lambda s: s.get("podgroups", "gang") is not None, message="and its PodGroup")


async def test_pod_without_gang_labels_waits_for_the_reflector(cluster: Cluster, kubeconfig: Path, ignore_pod_events: Any) -> None:
    """This shows that ``ignore_pod_events`` works: without the reflector's events, only Kopf's events make a gang known."""
    cluster.add_node("node-1", cpu="4")
    async with operator(kubeconfig):
        ignore_pod_events()
        single = gang_pod("single")
        single["metadata"]["labels"] = {}
        cluster.create(single)
        create_gang(cluster)
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)
        assert not bound(cluster, "single")


async def test_gang_is_scheduled_from_the_reflectors_events_alone(
    cluster: Cluster, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "observe_pending_pod", lambda self, event, raw: None)
    cluster.add_node("node-1", cpu="4")
    async with operator(kubeconfig):
        create_gang(cluster)
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)


async def test_kopfs_events_about_a_started_gang_are_ignored(
    cluster: Cluster, kubeconfig: Path, ignore_pod_events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a new member were known before the deletion of an old one, the gang would be completed around a deleted member."""
    observed: list[str] = []

    def noting(self: App, event: str | None, raw: dict[str, Any]) -> None:
        observe(self, event, raw)
        observed.append(raw["metadata"]["name"])

    observe = App.observe_pending_pod
    monkeypatch.setattr(App, "observe_pending_pod", noting)
    cluster.add_node("node-1", cpu="4")
    async with operator(kubeconfig) as app:
        create_gang(cluster)
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)
        await cluster.wait_for(lambda s: sum(pod.is_bound for pod in app.view.pods()) == 3)
        ignore_pod_events()
        cluster.delete("pods", "gang-0", grace=0)
        cluster.create(gang_pod("gang-9"))
        await cluster.wait_for(lambda s: "gang-9" in observed)
        assert app.view.pod("default/gang-0")
        assert app.view.pod("default/gang-9") is None


class HeldEvents:
    """Holds back the events of the pods' watch until they are delivered."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        reflector, self._waiting = app._reflectors["pods"], list[dict[str, Any]]()
        self._note = reflector._queue_event
        monkeypatch.setattr(reflector, "_queue_event", self._waiting.append)

    def holds(self, name: str) -> bool:
        """Return whether an event about a pod is held back."""
        return any(event["object"]["metadata"].get("name") == name for event in self._waiting)

    def deliver(self, until: str = "") -> None:
        """Deliver the events in order, up to the first one about the pod ``until``, or all if it is empty."""
        while self._waiting and self._waiting[0]["object"]["metadata"].get("name") != until:
            self._note(self._waiting.pop(0))


HoldPodEvents = Callable[[App], HeldEvents]


@pytest.fixture
def hold_pod_events(monkeypatch: pytest.MonkeyPatch) -> HoldPodEvents:
    """Return a function that holds back the events of an app's pods' watch from now on."""
    return lambda app: HeldEvents(app, monkeypatch)


def observe_pending(app: App, cluster: Cluster, name: str) -> None:
    app.observe_pending_pod("ADDED", {"kind": "Pod", **(cluster.get("pods", name) or {})})


async def test_gang_that_we_have_bound_gets_no_member_that_only_kopf_has_reported(
    cluster: Cluster, start_app: StartApp, hold_pod_events: HoldPodEvents
) -> None:
    """This holds although the watch hasn't reported the binds, and may report the members' end much later."""
    cluster.add_node("node-1", cpu="4")
    app = await start_app()
    hold_pod_events(app)
    for name in ("gang-0", "gang-1"):
        cluster.create(gang_pod(name, minimum=2))
        observe_pending(app, cluster, name)
    await cluster.wait_for(lambda s: len(bound(s, "gang")) == 2)
    for name in ("gang-0", "gang-1"):
        cluster.delete("pods", name, grace=0)
    cluster.create(gang_pod("gang-9", minimum=2))
    observe_pending(app, cluster, "gang-9")
    await asyncio.sleep(0)
    assert app.view.pod("default/gang-9") is None


async def test_changes_of_a_known_pod_are_taken_only_from_the_reflector(
    cluster: Cluster, start_app: StartApp, hold_pod_events: HoldPodEvents
) -> None:
    """Otherwise a gang known from Kopf could be scheduled before a gang of higher priority that Kopf doesn't report."""
    app = await start_app()
    cluster.create(gang_pod("gang-0"))
    await cluster.wait_for(lambda s: app.view.pod("default/gang-0") is not None)
    hold_pod_events(app)
    before = app.view.pod("default/gang-0")
    cluster.patch("pods", "gang-0", {"metadata": {"annotations": {"allaboard.dev/objective": "spread"}}})
    observe_pending(app, cluster, "gang-0")
    await asyncio.sleep(0)
    assert app.view.pod("default/gang-0") is before


async def test_kopfs_deletion_events_are_ignored(cluster: Cluster, start_app: StartApp, hold_pod_events: HoldPodEvents) -> None:
    cluster.add_node("node-1", cpu="4")
    app = await start_app()
    hold_pod_events(app)
    cluster.create(gang_pod("gang-0"))
    app.observe_pending_pod("DELETED", {"kind": "Pod", **(cluster.get("pods", "gang-0") or {})})
    await asyncio.sleep(0)
    assert app.view.pod("default/gang-0") is None


async def test_pod_that_only_kopf_has_reported_is_dropped_when_its_gang_turns_out_to_have_started(
    cluster: Cluster, start_app: StartApp, hold_pod_events: HoldPodEvents
) -> None:
    """Another process has bound gang-0, which was deleted before gang-9 was created: the two never formed a gang."""
    cluster.add_node("node-1", cpu="4")
    app = await start_app()
    held = hold_pod_events(app)
    cluster.create(gang_pod("gang-0", minimum=2))
    await bind(cluster, "gang-0", "node-1", 2)
    cluster.create(gang_pod("marker", gang="other"))
    cluster.delete("pods", "gang-0", grace=0)
    cluster.create(gang_pod("gang-9", minimum=2))
    observe_pending(app, cluster, "gang-9")
    await cluster.wait_for(lambda s: app.view.pod("default/gang-9") is not None)
    await cluster.wait_for(lambda s: held.holds("marker"))
    held.deliver("marker")
    await cluster.wait_for(lambda s: any(pod.node_name for pod in app.view.pods()))
    assert app.view.pod("default/gang-9") is None
    await cluster.wait_for(lambda s: held.holds("gang-9"))
    held.deliver()
    await cluster.wait_for(lambda s: app.view.pod("default/gang-9") is not None)
    assert app.view.pod("default/gang-0") is None
    assert not bound(cluster, "gang")
