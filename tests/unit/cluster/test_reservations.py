"""The capacity that reservations keep from other gangs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from allaboard.cluster.reservations import Applicant, Ledger, Reservation, amounts_of, awaited_by, is_free
from allaboard.cluster.running import Basis, RunningPods
from allaboard.model.backfill import Backfill
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey
from allaboard.model.gpu_sharing import WHOLE
from allaboard.model.snapshot import Snapshot
from allaboard.records.sort_key import PLAIN, Order
from tests.unit.placement.clusters import GPU, node, snapshot

NOW = 1000.0


def order_of(priority: int, created: float = 0.0) -> Order:
    return Order(-priority, True, PLAIN, 0, 0, created, GangKey("default", f"at-{created}"))


def reserved(name: str, gpus: dict[str, int], begins: float, *, priority: int = 0, created: float = 0.0, **fields: object) -> Reservation:
    """Return a reservation of GPUs, by node."""
    stated: dict[str, object] = {"ends": math.inf, "basis": Basis.STATED, "awaited": 1, "takes_effect": -math.inf, **fields}
    amounts = {node: {GPU: number} for node, number in gpus.items()}
    parts = {node: number * WHOLE for node, number in gpus.items()}
    return Reservation(GangKey("default", name), order_of(priority, created), priority, amounts, parts, begins, **stated)  # type: ignore[arg-type]


def asking(*, priority: int = 0, created: float = 9.0, seconds: float = math.inf, name: str = "other") -> Applicant:
    return Applicant(GangKey("default", name), order_of(priority, created), priority, NOW + seconds)


class Scene:
    """A cluster of nodes a and b with 8 GPUs each. A pod on each node uses 5 GPUs, on a until 1100 and on b until 1500."""

    def __init__(self, *reservations: Reservation, backfill: Backfill = Backfill.EASY) -> None:
        self.running = RunningPods()
        for name, walltime in (("a", 100.0), ("b", 500.0)):
            self.running.put(name, name, SchedulingSpec(((GPU, 5),)), unit=name, started=NOW, walltime=walltime)
        self.snapshot = snapshot([node(name, {GPU: 8}) for name in "ab"], {name: {GPU: 5} for name in "ab"})
        self.ledger = Ledger(self.running, lambda key: order_of(0), lambda: NOW, backfill)
        self.ledger.replace_all(reservations)

    def free(self, applicant: Applicant) -> list[int]:
        """Return the GPUs of nodes a and b that a gang may use."""
        return gpus_of(self.ledger.left_to(applicant, self.snapshot))


def gpus_of(found: Snapshot) -> list[int]:
    return [int(amount) for amount in found.free[:, found.resources.index(GPU)]]


def test_a_reservation_keeps_what_the_pods_that_end_until_then_do_not_free() -> None:
    assert Scene(reserved("wide", {"a": 6, "b": 2}, NOW + 200)).free(asking()) == [2, 1]


@pytest.mark.parametrize(
    ("applicant", "free"),
    [
        (asking(), [2, 3]),
        (asking(seconds=200), [3, 3]),  # it has ended when the reservation begins
        (asking(seconds=201), [2, 3]),
        (asking(priority=-1, seconds=1), [2, 3]),  # a lower priority may not use the capacity, however short it is
        (asking(priority=1), [3, 3]),
        (asking(created=-1.0), [3, 3]),  # it is ahead in the queue
        (asking(name="wide"), [3, 3]),  # its own reservation
        (Applicant(GangKey("default", "surplus"), None, 0, math.inf), [2, 3]),
        (Applicant(GangKey("default", "surplus"), None, 1, math.inf), [3, 3]),
    ],
)
def test_a_reservation_binds_gangs_behind_it_that_may_hold_the_capacity_when_it_begins(applicant: Applicant, free: list[int]) -> None:
    assert Scene(reserved("wide", {"a": 6}, NOW + 200)).free(applicant) == free


def test_a_guessed_reservation_binds_lower_priorities_at_once_and_equal_ones_later() -> None:
    scene = Scene(reserved("wide", {"a": 6}, NOW + 200, takes_effect=NOW + 1))
    assert (scene.free(asking()), scene.free(asking(priority=-1))) == ([3, 3], [2, 3])
    scene.ledger.now = lambda: NOW + 1
    assert scene.free(asking()) == [2, 3]


def test_reservations_that_begin_later_keep_capacity_beside_those_before_them() -> None:
    first, second = reserved("first", {"a": 4}, NOW + 200), reserved("second", {"a": 4, "b": 8}, NOW + 600, created=1.0)
    assert Scene(first, second).free(asking()) == [0, 0]
    assert Scene(replace(first, ends=NOW + 500), second).free(asking()) == [3, 0]
    assert Scene(first, second).free(asking(seconds=300)) == [3, 3]


def test_without_backfill_no_gang_passes_a_reservation() -> None:
    scene = Scene(reserved("wide", {"a": 1}, NOW + 200), backfill=Backfill.OFF)
    assert (scene.free(asking(seconds=1)), scene.free(asking(priority=1))) == ([0, 0], [3, 3])


def test_a_dropped_reservation_keeps_nothing() -> None:
    scene = Scene(reserved("wide", {"a": 6}, NOW + 200))
    scene.ledger.drop(GangKey("default", "other"))
    assert scene.free(asking()) == [2, 3]
    scene.ledger.drop(GangKey("default", "wide"))
    assert (scene.free(asking()), scene.ledger.find(GangKey("default", "wide"))) == ([3, 3], None)


@pytest.mark.parametrize(
    ("gpus", "awaited"),
    [({"a": 3}, []), ({"a": 4}, [0]), ({"b": 8}, [1]), ({"a": 4, "b": 4}, [0, 1]), ({"a": 9}, None), ({"gone": 1}, None)],
)
def test_a_reservation_waits_for_the_units_whose_capacity_its_nodes_lack(gpus: dict[str, int], awaited: list[int] | None) -> None:
    scene, wanted = Scene(), reserved("wide", gpus, NOW)
    assert awaited_by(wanted, scene.snapshot, scene.ledger.departures(scene.snapshot)) == awaited
    assert is_free(wanted, scene.snapshot) is (awaited == [])


def test_amounts_of_pods_are_added_up_by_node_and_parts_of_gpus_too() -> None:
    one, part = SchedulingSpec((("cpu", 2), (GPU, 1))), SchedulingSpec((("cpu", 1),), gpu_share=300)
    assert amounts_of([(one, "a"), (one, "a"), (part, "b")]) == ({"a": {"cpu": 4, GPU: 2}, "b": {"cpu": 1}}, {"a": 2000, "b": 300})


def test_kept_parts_of_gpus_are_whole_devices() -> None:
    shared = replace(Scene().snapshot, devices=np.array([[1000, 700, 0], [300, 300, 0]]))
    taken = shared.with_used(np.zeros_like(shared.used), np.array([1200, 0]))
    assert taken.devices is not None
    assert taken.devices.tolist() == [[0, 0, 0], [300, 300, 0]]
    given = shared.with_used(np.zeros_like(shared.used), np.array([0, -900]))
    assert given.devices is not None
    assert given.devices.tolist()[1] == [300, 300, 900]


GPUS = st.integers(0, 8)
reservations = st.lists(st.tuples(GPUS, GPUS, st.sampled_from([0.0, 100.0, 300.0, 600.0]), st.booleans()), max_size=3)
running = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.sampled_from([50.0, 100.0, 200.0, 400.0, 700.0])), max_size=4)


@given(running, reservations, st.tuples(GPUS, GPUS), st.sampled_from([10.0, 100.0, 150.0, 600.0, math.inf]))
def test_a_gang_that_uses_what_is_left_to_it_delays_no_reservation(
    pods: list[tuple[str, int, float]], wanted: list[tuple[int, int, float, bool]], asked: tuple[int, int], seconds: float
) -> None:
    """Reservations that fit at their times, without the gang, also fit with it. All capacity is counted at each time, plainly."""
    scene = Scene()
    scene.running = scene.ledger.running = RunningPods()
    for number, (name, gpus, walltime) in enumerate(pods):
        scene.running.put(f"{number}", name, SchedulingSpec(((GPU, gpus),)), unit=number, started=NOW, walltime=walltime)
    used = {name: {GPU: sum(gpus for where, gpus, _ in pods if where == name)} for name in "ab"}
    assume(all(amounts[GPU] <= 8 for amounts in used.values()))
    scene.snapshot = snapshot([node(name, {GPU: 8}) for name in "ab"], used)
    ledger = [
        reserved(f"{number}", {"a": a, "b": b}, NOW + begins, created=float(number), ends=NOW + begins + 250 if is_short else math.inf)
        for number, (a, b, begins, is_short) in enumerate(wanted)
    ]

    def is_kept(extra: tuple[int, int]) -> bool:
        """Return whether no node is over-committed at any time at which a reservation begins, if a gang uses ``extra``."""
        for when in [each.begins for each in ledger]:
            for row, name in enumerate("ab"):
                total = extra[row] if NOW + seconds > when else 0
                total += sum(gpus for where, gpus, walltime in pods if where == name and NOW + walltime > when)
                total += sum(each.amounts[name][GPU] for each in ledger if each.begins <= when < each.ends)
                if total > 8:
                    return False
        return True

    assume(is_kept((0, 0)))
    scene.ledger.replace_all(ledger)
    free = scene.free(asking(seconds=seconds))
    used_now = tuple(min(one, max(0, left)) for one, left in zip(asked, free, strict=True))
    assert is_kept(used_now)  # type: ignore[arg-type]
    # Nothing is kept in vain: one more GPU of a node delays a reservation, or isn't free.
    for row, left in enumerate(free):
        more = tuple(max(0, amount) + (position == row) for position, amount in enumerate(free))
        assert left >= gpus_of(scene.snapshot)[row] or not is_kept(more)  # type: ignore[arg-type]
