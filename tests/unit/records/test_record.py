"""The records of gangs."""

from dataclasses import replace

from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.records.partial_bind import KeptOpen, Releasing
from allaboard.records.record import GangRecord, GangRecords, QueueState
from tests.unit.placement.clusters import pods

A, B = GangKey("default", "a"), GangKey("default", "b")


def test_method_find_adds_no_record_for_a_new_gang_and_method_of_adds_one() -> None:
    records = GangRecords()
    assert records.find(A) is None
    assert records.of(A) is records.of(A) is records.find(A)
    assert records.of(A) == GangRecord(A)
    assert len(records) == 1


def test_partial_binds_are_found_without_reading_all_records() -> None:
    records = GangRecords()
    records.of(A)
    partial = records.partial_bind(B)
    assert list(records.partial_binds()) == [(B, partial)]
    assert records.find_partial_bind(A) is None
    assert records.of(B).partial_bind is records.partial_bind(B) is partial


def test_forgetting_a_gang_deletes_its_whole_record() -> None:
    records = GangRecords()
    records.partial_bind(A).state = KeptOpen()
    record = records.of(A)
    record.queue.attempts, record.whole_runs, record.was_undone = 3, {"run"}, True
    records.forget(A)
    records.forget(A)
    assert not records.partial_binds()
    assert records.of(A) == GangRecord(A)
    assert records.of(A).queue == QueueState()


def test_a_partially_bound_gang_has_timed_out_at_the_end_of_its_time_out() -> None:
    partial = GangRecords().partial_bind(A)
    assert not partial.has_timed_out(1e9)
    partial.expires = 10.0
    assert [partial.has_timed_out(now) for now in (9.9, 10.0)] == [False, True]
    assert not partial.is_going(0.0)
    partial.state = Releasing(None, 5.0)
    assert partial.is_going(4.0)


def a_run(name: str, *others: str) -> Gang:
    members = {run: tuple(replace(pod, uid=run, node_name="n", transaction=run) for pod in pods("p", 1, {})) for run in (name, *others)}
    rest = tuple(pod for run in others for pod in members[run])
    return Gang(A, 1, members[name], 0, 0.0, Objective.BINPACK, 60, others=rest)


def test_whole_runs_are_remembered_while_their_pods_are_visible() -> None:
    record = GangRecord(A)
    for number in range(64):
        assert record.note_whole(a_run(f"run-{number}"))
        assert not record.note_whole(a_run(f"run-{number}"))
    assert record.note_whole(a_run("another", "run-3"))
    assert record.whole_runs == {"another", "run-3"}
    many = [f"many-{number}" for number in range(100)]
    for name in many:
        record.note_whole(a_run(name, *many))
    assert len(record.whole_runs) == 64
    assert not record.note_whole(a_run("many-99", *many))
