"""The store numbers writes, keeps a limited history, and lists objects at earlier revisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard_sandbox.store import Store


def test_every_write_gets_the_next_revision() -> None:
    store = Store(history=10)
    first = store.put("pods", ("default", "a"), {"metadata": {"name": "a"}})
    second = store.put("nodes", ("", "n"), {"metadata": {"name": "n"}})
    assert second.revision == first.revision + 1
    assert second.body["metadata"]["resourceVersion"] == str(second.revision)


def test_a_record_is_not_changed_by_later_writes() -> None:
    store = Store(history=10)
    first = store.put("pods", ("default", "a"), {"metadata": {"name": "a"}, "spec": {"x": 1}})
    store.put("pods", ("default", "a"), {**first.body, "spec": {"x": 2}})
    assert first.body["spec"] == {"x": 1}


def test_a_removal_gets_a_revision_of_its_own() -> None:
    store = Store(history=10)
    stored = store.put("pods", ("default", "a"), {"metadata": {"name": "a"}})
    removed = store.remove("pods", ("default", "a"))
    assert removed.revision > stored.revision
    assert removed.body["metadata"]["resourceVersion"] == str(removed.revision)


def test_the_log_of_the_store_forgets_changes_beyond_its_capacity() -> None:
    store = Store(history=5)
    for number in range(20):
        store.put("pods", ("default", "a"), {"metadata": {"name": "a"}, "n": number})
    log = store.table("pods").log
    assert log.position_after(2) is None
    assert log.position_after(store.revision) == log.end


def test_a_forgotten_revision_cannot_be_listed() -> None:
    store = Store(history=100)
    old = store.put("pods", ("default", "a"), {"metadata": {"name": "a"}}).revision
    store.put("pods", ("default", "b"), {"metadata": {"name": "b"}})
    store.compact()
    table = store.table("pods")
    assert table.snapshot(None, old, store.revision) is None
    assert [record.key[1] for record in table.snapshot(None, store.revision, store.revision) or ()] == ["a", "b"]


@given(st.lists(st.tuples(st.sampled_from(["x/a", "x/b", "y/a", "y/c"]), st.sampled_from(["put", "remove"])), max_size=40))
def test_every_remembered_revision_can_be_listed_as_it_was(writes: list[tuple[str, str]]) -> None:
    store = Store(history=1000)
    table = store.table("pods")
    seen: dict[int, list[tuple[str, str]]] = {}
    state: dict[tuple[str, str], str] = {}
    for place, verb in writes:
        namespace, _, name = place.partition("/")
        key = (namespace, name)
        if verb == "put":
            state[key] = store.put("pods", key, {"metadata": {"name": name}}).body["metadata"]["resourceVersion"]
        elif key in state:
            store.remove("pods", key)
            del state[key]
        seen[store.revision] = sorted((f"{space}/{each}", version) for (space, each), version in state.items())
    for revision, expected in seen.items():
        listed = table.snapshot(None, revision, store.revision) or []
        assert [("/".join(record.key), record.body["metadata"]["resourceVersion"]) for record in listed] == expected


def test_removing_a_missing_object_is_an_error() -> None:
    with pytest.raises(KeyError):
        Store(history=10).remove("pods", ("default", "a"))
