"""Equal values become one object, and the interner keeps a bounded number of values."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.interner import Interner
from allaboard.model.limits import CHARACTERS
from allaboard.model.plain_pods import _read
from allaboard.model.pod import Owner, pod_from


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    gc.collect()
    yield


def a_spec(cpu: int = 1) -> SchedulingSpec:
    return SchedulingSpec((("cpu", cpu),))


def test_equal_records_are_one_object_while_they_are_in_use() -> None:
    intern = Interner()
    kept = intern.record(a_spec())
    assert intern.record(a_spec()) is kept
    assert intern.record(Owner("v1", "Job", "a", "u")) == Owner("v1", "Job", "a", "u")
    del kept
    assert not intern._records


def test_the_number_of_kept_texts_is_bounded() -> None:
    intern = Interner(most=2)
    kept = intern(("a", "1"))
    intern(("b", "2"))
    assert intern(("a", "".join(["1"]))) is kept
    intern(("c", "3"))
    assert intern(("a", "".join(["1"]))) == kept
    assert len(intern._texts) <= 2


def test_long_texts_are_not_kept() -> None:
    intern = Interner()
    long = "x" * (CHARACTERS.most + 1)
    assert intern(long) is long
    assert intern(("key", long)) == ("key", long)
    assert not intern._texts


@given(st.lists(st.integers(0, 500), max_size=200))
def test_deleted_pods_leave_no_large_values_in_the_interner(numbers: list[int]) -> None:
    intern = Interner()
    for number in numbers:
        annotations = {"allaboard.dev/x": f"{number}" * 1000, "allaboard.dev/min-members": f"{number}" * 1000}
        metadata = {"name": "p", "uid": str(number), "annotations": annotations, "labels": {"n": str(number)}}
        pod_from({"metadata": metadata, "spec": {"nodeSelector": {"n": str(number)}}}, intern)
    _read.cache_clear()  # keeps the specs of some short pods
    assert not intern._records
    assert all(len(str(text)) < 400 for text in intern._texts)
