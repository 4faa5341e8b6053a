"""Tests of what the operator shows of gangs, the queue, nodes and decisions, beside a scheduler that takes single steps."""

import asyncio
from dataclasses import replace

import pytest

from allaboard.gangs.membership import POD_GROUP_LABEL
from allaboard.gangs.podgroup import PodGroup
from allaboard.model.gang import GangKey
from allaboard.model.node import Taint
from allaboard.model.walltime import NEVER
from allaboard.sight.board import Board
from tests.unit.placement.clusters import GPU, node, pods
from tests.unit.scheduling.schedulers import JOB, World


def a_board(world: World) -> Board:
    return Board(world.registry, world.records, world.ledger, world.view, now=world.clock)


async def test_the_queue_has_the_gangs_that_wait_in_the_order_of_attempts() -> None:
    async with World(cpus=2) as world:
        board = a_board(world)
        for name, size, priority in (("bound", 2, 9), ("later", 2, 0), ("first", 2, 5)):
            world.add(name, size, priority=priority, created=world.now)
        await world.run_cycle()
        queue = await board.queue()
        assert [(row.name, row.position, row.state) for row in queue.gangs] == [("first", 1, "Insufficient"), ("later", 2, "Insufficient")]
        row = queue.gangs[0]
        assert (row.members.needed, row.members.bound, row.members.present) == (2, 0, 2)
        assert row.message == world.message_of(GangKey("default", "first"))
        assert row.waiting_since == world.now
        assert queue.hidden == 0


async def test_positions_that_are_sorted_in_several_runs_are_in_the_order_of_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.sight.board._SORTED_AT_ONCE", 2)
    async with World() as world:
        for number, priority in enumerate((3, 1, 4, 0, 5, 9, 2, 6)):
            world.add(f"g{number}", priority=priority)
        assert [row.priority for row in (await a_board(world).queue()).gangs] == [9, 6, 5, 4, 3, 2, 1, 0]


async def test_a_gang_that_was_never_attempted_waits_since_its_creation() -> None:
    async with World() as world:
        world.add("new", created=7.0)
        row = (await a_board(world).queue()).gangs[0]
        assert (row.state, row.message, row.waiting_since, row.expected_start) == ("", "", 7.0, None)


async def test_a_pod_that_is_in_no_gang_shows_why_it_waits_until_it_is_bound() -> None:
    async with World(cpus=1) as world:
        board = a_board(world)
        (pod,) = pods("alone", 1, {"cpu": 2000})
        world.view.upsert_pod(pod)
        await world.run_cycle()
        row = (await board.queue()).gangs[0]
        assert (row.kind, row.name, row.state) == ("Pod", "alone-0", "NeverFits")
        assert "Insufficient cpu" in row.message
        world.resize(4)
        world.now += 60.0
        await world.run_cycle()
        assert world.records.report_state(GangKey("default", "alone-0", "Pod")).opinion is None
        await world.write_reports()
        assert not any("podgroups" in path for path in world.api.written)


async def test_gangs_of_other_namespaces_are_only_counted() -> None:
    async with World() as world:
        board = a_board(world)
        world.add("mine", namespace="a")
        world.add("theirs", namespace="b")
        queue, gangs = await board.queue("a".__eq__), await board.gangs("a".__eq__)
        assert ([row.name for row in queue.gangs], queue.hidden) == (["mine"], 1)
        assert ([row.name for row in gangs.gangs], gangs.hidden) == (["mine"], 1)
        assert queue.gangs[0].position == 1


async def test_a_gang_shows_its_roles_members_and_history() -> None:
    async with World(cpus=2) as world:
        board = a_board(world)
        key = world.add("g", 2, bound=1)
        await world.run_cycle()
        found = await board.gang(*key[:2])
        assert found is not None
        assert [(role.pods, role.bound, role.requests) for role in found.roles] == [(["g-0", "g-1"], 1, {"cpu": 1.0, "pods": 1})]
        assert [(member.pod, member.node) for member in found.members] == [("g-0", "n"), ("g-1", "")]
        assert [(each.decision, each.times) for each in found.history][-1] == ("Whole", 1)
        assert found.plan is not None
        assert found.plan.placed == 1
        assert await board.gang("default", "none") is None


async def test_a_gang_with_a_reservation_shows_where_it_will_run_and_which_gangs_must_end_before() -> None:
    async with World(cpus=4) as world:
        board = a_board(world)
        world.add("old", 3, bound=3, walltime=600.0, started=world.now)
        key = world.add("wide", 3, created=1.0)
        await world.run_cycle()
        found = await board.gang(*key[:2])
        assert found is not None
        assert found.outlook is not None
        assert (found.outlook.kind, found.outlook.begins, found.outlook.unplaced) == ("reserved", found.row.expected_start, 0)
        assert [(each.node, each.pods, each.requests["cpu"], each.lacks) for each in found.outlook.nodes] == [("n", 3, 3.0, {"cpu": 2.0})]
        assert [(each.gang, each.ends, each.basis, each.nodes) for each in found.outlook.waits_for] == [
            ("default/old", world.now + 600.0, "stated", ["n"])
        ]
        assert found.row.waits_for == "default/old"
        hidden = await board.gang(*key[:2], lambda namespace: False)
        assert hidden is not None
        assert hidden.outlook is not None
        assert ([each.gang for each in hidden.outlook.waits_for], hidden.row.waits_for) == ([""], "")


async def test_a_gang_that_leaves_capacity_to_another_names_that_gang() -> None:
    async with World(cpus=5) as world:
        board = a_board(world)
        world.add("old", 3, bound=3, walltime=600.0, started=world.now)
        world.add("wide", 4, created=1.0)
        key = world.add("small", 1, cpus=2, created=2.0)
        await world.run_cycle()
        row = (await board.gangs()).gangs[1]
        assert (row.name, row.state, row.waits_for) == ("small", "Reserved", "default/wide")
        found = await board.gang(*key[:2])
        assert found is not None
        assert [(each.takes, each.reasons) for each in found.node_groups] == [
            (0, ["Insufficient cpu", "some of it is reserved for other gangs"])
        ]


async def test_a_gang_without_a_reservation_shows_the_placement_that_lacks_least() -> None:
    async with World(cpus=4) as world:
        board = a_board(world)
        world.add("old", 3, bound=3, walltime=NEVER)
        key = world.add("wide", 3)
        await world.run_cycle()
        await world.run_other_tasks()
        found = await board.gang(*key[:2])
        assert found is not None
        assert found.advice.startswith("Would fit with 2 more cpu (2 on n)")
        assert found.outlook is not None
        assert (found.outlook.kind, found.outlook.begins, found.outlook.waits_for) == ("nearest", None, [])
        assert [(each.node, each.pods, each.requests["cpu"], each.lacks) for each in found.outlook.nodes] == [("n", 3, 3.0, {"cpu": 2.0})]


async def test_nodes_are_grouped_by_what_they_lack_for_one_more_member() -> None:
    async with World(cpus=4) as world:
        board = a_board(world)
        for name, cpus in (("half-1", 1), ("half-2", 1), ("tainted", 8)):
            taints = (Taint("dedicated", "ml", "NoSchedule"),) if name == "tainted" else ()
            world.view.upsert_node(node(name, {"cpu": cpus * 1000}, taints=taints))
        key = world.add("g", 3, cpus=2)
        found = await board.gang(*key[:2])
        assert found is not None
        assert [(each.nodes, each.names, each.takes, each.lacks) for each in found.node_groups] == [
            (1, ["n"], 2, {}),
            (2, ["half-1", "half-2"], 0, {"cpu": 1.0}),
            (1, ["tainted"], 0, {}),
        ]
        assert found.node_groups[2].reasons == ["node(s) had untolerated taint {dedicated: ml}"]


async def test_a_node_shows_what_each_gang_uses_of_it() -> None:
    async with World(cpus=8) as world:
        board = a_board(world)
        world.add("g", 3, bound=2, cpus=2)
        world.add("other", 1, bound=1, namespace="b")
        node = (await board.nodes()).nodes[0]
        assert (node.name, node.allocatable["cpu"], node.free["cpu"]) == ("n", 8.0, 3.0)
        assert [(share.gang, share.pods, share.requests["cpu"]) for share in node.shares] == [("b/other", 1, 1.0), ("default/g", 2, 4.0)]
        hidden = (await board.nodes("default".__eq__)).nodes[0]
        assert [share.gang for share in hidden.shares] == ["", "default/g"]


async def test_a_node_shows_its_present_pods_after_each_change() -> None:
    async with World(cpus=8) as world:
        board = a_board(world)
        key = world.add("g", 2, bound=2)
        assert (await board.nodes()).nodes[0].free["cpu"] == 6.0
        world.remove(key)
        node = (await board.nodes()).nodes[0]
        assert (node.free["cpu"], node.shares) == (8.0, [])
        world.resize(4)
        assert (await board.nodes()).nodes[0].allocatable["cpu"] == 4.0
        world.view.remove_node("n")
        assert (await board.nodes()).nodes == []
        assert not board._rows


async def test_the_timeline_has_the_use_of_gpus_and_the_gangs_that_wait() -> None:
    async with World() as world:
        board = a_board(world)
        world.view.upsert_node(node("gpus", {"cpu": 8000, GPU: 4}))
        (pod,) = pods("p", 1, {"cpu": 1000, GPU: 1})
        world.view.upsert_pod(replace(pod, node_name="gpus", phase="Running"))
        await board.take_sample()
        world.add("g", 2)
        world.now += 15.0
        await board.take_sample()
        samples = board.timeline().samples
        assert [(each.at, each.gpus, each.gpus_used, each.waiting) for each in samples] == [(1000.0, 4.0, 1.0, 0), (1015.0, 4.0, 1.0, 1)]
        for _ in range(300):
            await board.take_sample()
        assert len(board.timeline().samples) == 240


async def test_nodes_are_grouped_by_any_label_that_several_nodes_share() -> None:
    async with World() as world:
        board = a_board(world)
        for name, zone in (("a", "x"), ("b", "x"), ("c", "y")):
            labels = {"zone": zone, "own": name, "kubernetes.io/hostname": name}
            world.view.upsert_node(node(name, {"cpu": 1000}, labels=labels))
        found = await board.domains("zone")
        assert (found.domains, found.labels) == ({"a": "x", "b": "x", "c": "y"}, ["zone"])
        assert (await board.domains("own")).domains == {"a": "a", "b": "b", "c": "c"}
        assert (await board.domains()).domains == {}
        assert (await board.snapshot()).labels == {"zone": {"a": "x", "b": "x", "c": "y"}}


async def test_decisions_are_those_about_visible_gangs() -> None:
    async with World() as world:
        board = a_board(world)
        world.add("mine", namespace="a")
        world.add("theirs", namespace="b")
        await world.run_cycle()
        shown = await board.decisions("a".__eq__)
        assert {each.name for each in shown.decisions} == {"mine"}
        assert shown.hidden == len((await board.decisions()).decisions) - len(shown.decisions) > 0


async def test_other_tasks_run_while_a_long_queue_is_collected() -> None:
    async with World(cpus=1) as world:
        board = a_board(world)
        for number in range(600):
            world.add(f"g{number}", 2)
        steps = 0

        async def count() -> None:
            nonlocal steps
            while True:
                await asyncio.sleep(0)
                steps += 1

        counting = asyncio.create_task(count())
        assert len((await board.queue()).gangs) == 600
        counting.cancel()
        assert steps > 1


async def test_a_gang_is_found_by_the_names_of_its_pods_and_of_their_owner() -> None:
    async with World(cpus=1) as world:
        board = a_board(world)
        key = world.add("g", 2, owner=JOB)
        for name in ("g", "g-1", "j"):
            found = await board.gang("default", name)
            assert found is not None
            assert found.row.name == key.name
        assert await board.gang("default", "h") is None
        assert await board.gang("other", "g-1") is None


async def test_a_gang_without_members_counts_the_pods_that_name_another_scheduler() -> None:
    async with World() as world:
        board = a_board(world)
        (pod,) = pods("stranger", 1, {"cpu": 1000})
        world.view.upsert_pod(replace(pod, scheduler_name="allabord", labels=((POD_GROUP_LABEL, "ghost"),)))
        world.registry.observe_group(PodGroup(GangKey("default", "ghost"), "u", 1, 2, 60, 0.0, {}))
        found = await board.gang("default", "ghost")
        assert found is not None
        assert (found.members, dict(found.pods_of_others)) == ([], {"allabord": 1})
        key = world.add("g", 1)
        mine = await board.gang(*key[:2])
        assert mine is not None
        assert not mine.pods_of_others


async def test_gangs_that_must_end_before_are_shown_on_all_nodes_that_lack_something() -> None:
    async with World(cpus=4) as world:
        board = a_board(world)
        world.view.upsert_node(node("m", {"cpu": 4000}))
        old = world.add("old", 2, bound=2, cpus=3, walltime=600.0, started=world.now)
        moved = world.gang(old).bound[1]
        world.view.upsert_pod(replace(moved, node_name="m"))
        key = world.add("wide", 2, cpus=4, created=1.0)
        await world.run_cycle()
        found = await board.gang(*key[:2])
        assert found is not None
        assert found.outlook is not None
        assert [(each.gang, each.nodes) for each in found.outlook.waits_for] == [("default/old", ["m", "n"])]
