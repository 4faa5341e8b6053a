"""The pods that a batch Job still makes, by its status and by the pods that are seen."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.gangs.job_counts import JobCounts, JobStore, SeenPods

FEW = st.integers(0, 5)


@given(parallelism=st.integers(1, 20), shown=FEW, looks_alive=FEW, deleted=FEW, bound=FEW, not_begun=FEW)
def test_a_job_never_has_fewer_pods_left_than_it_still_makes(
    parallelism: int, shown: int, looks_alive: int, deleted: int, bound: int, not_begun: int
) -> None:
    """Of the pods that have succeeded, ``shown`` are seen so, ``looks_alive`` are still seen alive, and ``deleted`` aren't seen.

    The number is exact unless some pods run and others were deleted.
    """
    done = shown + looks_alive + deleted
    job = JobCounts("u", "u", parallelism, completions=done + bound + not_begun, done=done)
    left = job.left(SeenPods(alive=bound + looks_alive, bound=bound + looks_alive, succeeded=shown))
    expected = min(parallelism, bound + not_begun + looks_alive)
    assert left >= expected
    if not bound or not deleted:
        assert left == expected


def test_a_job_made_again_under_its_name_is_another_job() -> None:
    """A watch may leave out the deletion. The gangs of the Job that is gone are told by ``observe(old, None)``."""
    observed: list[tuple[JobCounts | None, JobCounts | None]] = []
    store = JobStore(lambda old, new: observed.append((old, new)))
    first, second = JobCounts("u1", "u1", 4, 4, 3), JobCounts("u2", "u2", 4, 4, 0)
    for job in (first, second):
        store.upsert("ns/j", job)
    assert observed == [(None, first), (first, None), (None, second)]
    assert list(store.known()) == ["ns/j"]
