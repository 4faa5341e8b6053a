"""Tests that pods are expected to run as long as the last two of their owner, and that the estimate says when capacity is free."""

from dataclasses import replace

import pytest

from allaboard.cluster import run_times as run_times_module
from allaboard.cluster.run_times import RunTimes
from allaboard.cluster.running import BASES, Basis
from allaboard.cluster.view import ClusterView
from allaboard.model.pod import Owner, Pod
from tests.unit.placement.clusters import GPU, node, pods

NOW = 1_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Scene:
    """A cluster of one node whose pods come and go, and what is learnt of them."""

    def __init__(self) -> None:
        self.clock, self.view = Clock(), ClusterView()
        self.run_times = RunTimes(self.clock)
        self.run_times.follow(self.view)
        self.view.upsert_node(node("n", {GPU: 8}))

    def ran(self, owner: str, seconds: float, *, namespace: str = "default", phase: str = "Succeeded") -> None:
        """Let a pod of ``owner`` run for so many seconds."""
        pod = a_pod(owner, namespace=namespace, started=self.clock.now)
        self.view.upsert_pod(pod)
        self.clock.now += seconds
        self.view.upsert_pod(replace(pod, phase=phase))


def a_pod(owner: str, *, namespace: str = "default", started: float = 0.0) -> Pod:
    [pod] = pods(f"{owner}-pod", 1, {GPU: 1})
    of = Owner("batch/v1", "Job", owner, f"uid-{owner}")
    return replace(pod, namespace=namespace, owner=of, node_name="n", phase="Running", started=started)


def test_estimate_is_the_mean_of_the_last_two_run_times_of_the_owner_without_the_number_of_the_submission() -> None:
    scene = Scene()
    for number, seconds in enumerate((1000.0, 200.0, 400.0)):
        scene.ran(f"train-{number}", seconds)
    assert scene.run_times.estimate(a_pod("train-7")) == 300.0
    assert scene.run_times.estimate(a_pod("train-5f3ab2")) == 300.0


def test_last_pods_of_the_namespace_count_if_the_owner_is_unknown_and_failed_pods_do_not() -> None:
    scene = Scene()
    scene.ran("a", 100.0)
    scene.ran("b", 300.0)
    scene.ran("c", 7.0, phase="Failed")
    assert scene.run_times.estimate(a_pod("c")) == 200.0
    assert scene.run_times.estimate(a_pod("a")) == 100.0
    assert scene.run_times.estimate(a_pod("a", namespace="other")) == 0.0


def test_pod_without_a_walltime_is_expected_to_end_by_its_estimate() -> None:
    scene = Scene()
    scene.ran("train-1", 5000.0)
    started = scene.clock.now
    scene.view.upsert_pod(a_pod("train-2", started=started))
    snapshot = scene.view.snapshot()
    departures = scene.view.running.departures(snapshot.nodes, snapshot.resources, started + 60.0)
    assert departures.ends.tolist() == [started + 5000.0]
    assert [BASES[int(each)] for each in departures.basis] == [Basis.GUESSED]
    outrun = scene.view.running.departures(snapshot.nodes, snapshot.resources, started + 8000.0)
    assert outrun.ends.tolist() == [started + 8000.0 + 3000.0]


def test_walltime_counts_before_the_estimate() -> None:
    scene = Scene()
    scene.ran("train-1", 5000.0)
    scene.view.upsert_pod(replace(a_pod("train-2", started=scene.clock.now), walltime=900.0))
    snapshot = scene.view.snapshot()
    departures = scene.view.running.departures(snapshot.nodes, snapshot.resources, scene.clock.now)
    assert departures.ends.tolist() == [scene.clock.now + 900.0]


def test_number_of_owners_that_are_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times_module, "_MOST_OWNERS", 3)
    scene = Scene()
    for name in ("a", "b", "c", "d"):
        scene.ran(name, 10.0, namespace=name)
    assert scene.run_times.estimate(a_pod("a", namespace="a")) == 0.0
    assert scene.run_times.estimate(a_pod("d", namespace="d")) == 10.0
