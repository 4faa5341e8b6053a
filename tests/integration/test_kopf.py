"""What Kopf's handler of pending pods is good for, and what goes on without it."""

from pathlib import Path
from typing import Any

import pytest

from allaboard.app import App
from allaboard.cli.embedded import operator
from allaboard.cluster.reflector import Reflector
from tests.cluster import Cluster
from tests.stories import gang_pod

from .test_all_or_none import bound


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
