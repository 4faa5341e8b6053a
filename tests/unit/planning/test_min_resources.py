"""Tests that a PodGroup's minResources must be free before its gang starts, and have no other effect."""

from dataclasses import replace

import pytest

from allaboard.gangs.podgroup import pod_group_from
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.reasons import Code, Kind, Reason
from allaboard.model.requests import Requests
from allaboard.placement.problem.plan import Shortage
from allaboard.planning.min_resources import beyond_members, cause, refusal, shortage_of
from allaboard.planning.round import is_planned_alone
from tests.unit.placement.clusters import node, pods, snapshot
from tests.unit.scheduling.schedulers import World

CLUSTER = [node("a", {"cpu": 4000}), node("b", {"cpu": 4000})]


def a_gang(*roles: tuple[int, int], minimum: int = 0, asked: Requests = (("cpu", 4000),), bound: int = 0) -> Gang:
    """Return a gang with ``roles``, each a number of pods and their millicores; the first ``bound`` pods have a node.

    ``asked`` are the gang's minResources.
    """
    members = [pod for number, (count, cpu) in enumerate(roles) for pod in pods(f"r{number}", count, {"cpu": cpu})]
    members = [replace(pod, node_name="a") if place < bound else pod for place, pod in enumerate(members)]
    return Gang(GangKey("default", "g"), minimum or len(members), tuple(members), 0, 0.0, Objective.SPREAD, 60, min_resources=asked)


@pytest.mark.parametrize(
    ("gang", "beyond"),
    [
        (a_gang((1, 1000)), {"cpu": 4000}),
        (a_gang((4, 1000)), {}),
        (a_gang((1, 1000), (1, 3000)), {}),
        (a_gang((4, 1000), minimum=2), {"cpu": 4000}),
        (a_gang((1, 3000), (2, 1000), minimum=2), {"cpu": 4000}),
        (a_gang((1, 1000), asked=(("cpu", 1000), ("nvidia.com/gpu", 2))), {"nvidia.com/gpu": 2}),
        (a_gang((2, 1000), bound=1), {}),
        (a_gang((1, 1000), asked=()), {}),
    ],
    ids=[
        "a driver",
        "equal members",
        "different members",
        "half of the members",
        "the smallest members",
        "another resource",
        "a bound member",
        "no minResources",
    ],
)
def test_only_min_resources_beyond_the_requests_of_the_members_are_checked(gang: Gang, beyond: dict[str, int]) -> None:
    assert beyond_members(gang) == beyond
    assert is_planned_alone(gang) is bool(beyond or gang.bound)


@pytest.mark.parametrize(
    ("used", "free"),
    [({}, None), ({"a": 4000}, None), ({"a": 3000, "b": 1000}, None), ({"a": 3000, "b": 1001}, 3999), ({"a": 9000, "b": 1}, 3999)],
)
def test_free_resources_are_summed_over_all_nodes(used: dict[str, int], free: int | None) -> None:
    found = shortage_of(a_gang((1, 1000)), snapshot(CLUSTER, {name: {"cpu": amount} for name, amount in used.items()}))
    assert found == (None if free is None else Shortage("cpu", 4000, free))


@pytest.mark.parametrize("closed", [{"is_unschedulable": True}, {"is_ready": False}])
def test_a_node_that_takes_no_pods_counts_as_full(closed: dict[str, bool]) -> None:
    cluster = [node("a", {"cpu": 1000}), replace(node("b", {"cpu": 9000}), **closed)]
    assert shortage_of(a_gang((1, 1000)), snapshot(cluster)) == Shortage("cpu", 4000, 1000)


def test_resources_of_a_terminating_member_count_as_free() -> None:
    gang = a_gang((1, 1000))
    [old] = pods("old", 1, {"cpu": 2000})
    gang = replace(gang, members=(*gang.members, replace(old, node_name="a", is_terminating=True)))
    assert shortage_of(gang, snapshot([node("a", {"cpu": 4000})], {"a": {"cpu": 2000}})) is None


def test_the_scarcest_resource_is_reported_and_one_that_no_node_has_is_never_free() -> None:
    gang, cluster = a_gang((1, 1000), asked=(("cpu", 9000), ("requests.cpu", 4))), snapshot(CLUSTER)
    short = shortage_of(gang, cluster)
    assert short == Shortage("requests.cpu", 4, 0)
    assert shortage_of(a_gang((1, 1000), asked=(("requests.cpu", 4),)), cluster) == Shortage("requests.cpu", 4, 0)


@pytest.mark.parametrize(("asked", "code", "available"), [(6000, Code.INSUFFICIENT, 5000), (8001, Code.NEVER_FITS, 8000)])
def test_a_refusal_for_min_resources_says_whether_they_can_ever_be_free(asked: int, code: Code, available: int) -> None:
    now = snapshot(CLUSTER, {"a": {"cpu": 3000}})
    gang = a_gang((1, 1000), asked=(("cpu", asked),))
    short = shortage_of(gang, now)
    assert short is not None
    rule = Reason(Kind.MIN_RESOURCES, "cpu")
    assert cause(now, short)[:4] == (code, "cpu", asked, available)
    assert cause(now, short).rule == rule
    plan = refusal(gang, now, short)
    assert (plan.feasible, plan.assignments, plan.unplaced) == (False, (), ("r0-0",))
    assert plan.explanation.roles[0].reasons == ((rule, 2),)


def group(name: str, cpu: str, version: int) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"minMember": 1, "minResources": {"cpu": cpu}}}


async def test_spark_drivers_start_while_their_min_resources_are_free_and_the_other_spark_drivers_wait() -> None:
    async with World(cpus=6) as world:
        drivers = [world.add(f"spark-{number}", 1, created=float(number)) for number in range(6)]
        for key in drivers:
            world.registry.observe_group(pod_group_from(group(key.name, "4", 2)))
        await world.run_cycle()
        assert [bool(world.view.counts["assumed_pods"]), world.counted("transactions", outcome="whole")] == [True, 3]
        assert world.message_of(drivers[3]).partition("; expected to start about ")[0] == (
            "podgroup default/spark-3: 0 of 1 members placeable, minResources asks for 4 cpu where 3 are free; "
            "0/1 nodes are available: 1 node(s) together had less free cpu than minResources asks for."
        )
        world.now += 60.0
        world.resize(7)
        await world.run_cycle()
        assert world.counted("transactions", outcome="whole") == 4


async def test_min_resources_beyond_the_cluster_are_reported_until_they_are_changed() -> None:
    async with World(cpus=6) as world:
        key = world.add("spark", 1)
        world.registry.observe_group(pod_group_from(group("spark", "400", 2)))
        await world.run_cycle()
        assert "minResources asks for 400 cpu; the nodes have 6 in all; 0/1 nodes are available" in world.message_of(key)
        world.now += 60.0
        world.registry.observe_group(pod_group_from(group("spark", "4", 3)))
        await world.run_cycle()
        assert world.counted("transactions", outcome="whole") == 1


async def test_min_resources_of_a_gang_that_has_started_are_not_checked_again() -> None:
    async with World(cpus=4) as world:
        world.add("spark", 2, minimum=1, bound=1)
        world.registry.observe_group(pod_group_from(group("spark", "4", 2)))
        await world.run_cycle()
        assert world.counted("transactions", outcome="whole") == 1


async def test_a_gang_that_waits_for_min_resources_starts_when_a_pod_frees_them() -> None:
    async with World(cpus=6) as world:
        busy = world.add("busy", 1, bound=1, cpus=3)
        await world.run_cycle()
        key = world.add("spark", 1)
        world.registry.observe_group(pod_group_from(group("spark", "4", 2)))
        await world.run_cycle()
        assert "minResources asks for 4 cpu where 3 are free" in world.message_of(key)
        world.now += 2.0  # the gang's backoff is over
        world.remove(busy)
        await world.run_cycle()
        assert world.counted("transactions", outcome="whole") == 1
