"""Tests of the metrics of the whole cluster, beside a scheduler that takes single steps."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from allaboard.gangs.podgroup import PodGroup
from allaboard.kube.reflector import Reflector
from allaboard.model.gang import GangKey
from allaboard.report.metrics import Metrics
from allaboard.sight.collector import ClusterCollector
from allaboard.sight.gauges import add_gauges
from allaboard.sight.stranded import Stranded
from tests.unit.placement.clusters import GPU, node, pods
from tests.unit.scheduling.schedulers import World

_OF_A_WATCH = ("cache_age", "watch_silence", "watch_lag")


def collected(world: World) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the value of each label by the metric's name."""
    collector = ClusterCollector(world.registry, world.records, world.ledger, Stranded(world.view), world.clock)
    return {metric.name: {tuple(sample.labels.values()): sample.value for sample in metric.samples} for metric in collector.collect()}


async def test_gpus_are_counted_by_state() -> None:
    async with World() as world:
        world.view.upsert_node(node("gpus", {"cpu": 2000, GPU: 4}))
        (pod,) = pods("p", 1, {"cpu": 2000, GPU: 1})
        world.view.upsert_pod(replace(pod, node_name="gpus", phase="Running"))
        gpus = collected(world)["allaboard_gpus"]
        assert gpus == {("allocatable",): 4.0, ("used",): 1.0, ("free",): 3.0, ("stranded",): 3.0}  # no cpu is left for them


async def test_a_cluster_without_gpus_has_none() -> None:
    async with World() as world:
        assert set(collected(world)["allaboard_gpus"].values()) == {0.0}
        assert collected(world)["allaboard_reserved_gpus"] == {(): 0.0}


async def test_reserved_gpus_are_whole_gpus() -> None:
    async with World() as world:
        world.view.upsert_node(node("gpus", {"cpu": 8000, GPU: 4}))
        (old,) = pods("old", 1, {"cpu": 1000, GPU: 3})
        world.view.upsert_pod(replace(old, node_name="gpus", phase="Running"))
        for pod in pods("wide", 2, {"cpu": 1000, GPU: 2}):
            world.view.upsert_pod(pod)
        await world.run_cycle()
        assert collected(world)["allaboard_reserved_gpus"] == {(): 4.0}


async def test_the_longest_wait_is_shown_for_each_priority() -> None:
    async with World(cpus=1) as world:
        for name, priority in (("first", 0), ("second", 0), ("urgent", 5)):
            world.add(name, 2, priority=priority, created=world.now)
            await world.run_cycle()
            world.now += 10.0
        assert collected(world)["allaboard_oldest_wait_seconds"] == {("5",): pytest.approx(10.0), ("0",): pytest.approx(30.0)}


async def test_registering_the_collector_computes_nothing() -> None:
    async with World() as world:
        collector = ClusterCollector(world.registry, world.records, world.ledger, Stranded(world.view), world.clock)
        assert not list(collector.describe())


async def test_gauges_of_a_watch_are_the_seconds_that_the_watch_states() -> None:
    async with World() as world:
        metrics, reflector = Metrics(), SimpleNamespace(age_seconds=3.0, silence_seconds=2.0, lag_seconds=0.25)
        reflectors = {"pods": cast("Reflector", reflector)}
        add_gauges(metrics, world.queue, world.records, world.view, reflectors, world.writer, lambda: True)
        found = {name: metrics.registry.get_sample_value(f"allaboard_{name}_seconds", {"resource": "pods"}) for name in _OF_A_WATCH}
        assert found == {"cache_age": 3.0, "watch_silence": 2.0, "watch_lag": 0.25}


async def test_pod_groups_are_counted_by_phase_unless_they_are_another_schedulers() -> None:
    statuses: dict[str, dict[str, Any] | None] = {
        "runs": {"phase": "Running", "schedulerName": "allaboard"},
        "ended": {"phase": "Finished", "schedulerName": "allaboard"},
        "foreign": {"phase": "Running", "schedulerName": "other"},
        "odd": {"phase": ["Running"], "schedulerName": "allaboard"},
        "new": None,
        "pruned": {"phase": "Pending"},  # the CRD of scheduler-plugins has no field for the scheduler's name
    }
    async with World() as world:
        world.add("pruned", 2)
        for name, status in statuses.items():
            world.registry.observe_group(PodGroup(GangKey("default", name), f"uid-{name}", 2, 2, 60, 0.0, {}, status=status))
        phases = collected(world)["allaboard_podgroups"]
        assert phases == {("Pending",): 1.0, ("Scheduling",): 0.0, ("Running",): 1.0, ("Finished",): 1.0, ("Failed",): 0.0}
