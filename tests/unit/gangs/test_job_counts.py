"""The pods that a batch Job will still create, computed from its status and from the known pods."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.gangs.job_counts import JobCounts, JobStore, SeenPods

FEW = st.integers(0, 5)


@given(parallelism=st.integers(1, 20), shown=FEW, looks_alive=FEW, deleted=FEW, bound=FEW, not_started=FEW)
def test_computed_number_of_pods_that_a_job_will_create_is_never_too_low(
    parallelism: int, shown: int, looks_alive: int, deleted: int, bound: int, not_started: int
) -> None:
    """The computed number is exact, unless some pods run and others were deleted.

    The pods watch may be behind the Job's status. So of the succeeded pods ``shown`` are seen as succeeded, ``looks_alive`` are still seen
    alive, and ``deleted`` aren't seen.
    """
    done = shown + looks_alive + deleted
    job = JobCounts("u", "u", parallelism, completions=done + bound + not_started, done=done)
    left = job.left(SeenPods(alive=bound + looks_alive, bound=bound + looks_alive, succeeded=shown))
    expected = min(parallelism, bound + not_started + looks_alive)
    assert left >= expected
    if not bound or not deleted:
        assert left == expected


def test_job_that_is_recreated_under_its_name_is_observed_as_deleted_and_created() -> None:
    """A watch may leave out the deletion. The store then calls ``observe(old, None)``, so that the old Job's gangs are updated."""
    observed: list[tuple[JobCounts | None, JobCounts | None]] = []
    store = JobStore(lambda old, new: observed.append((old, new)))
    first, second = JobCounts("u1", "u1", 4, 4, 3), JobCounts("u2", "u2", 4, 4, 0)
    for job in (first, second):
        store.upsert("ns/j", job)
    assert observed == [(None, first), (first, None), (None, second)]
    assert list(store.known()) == ["ns/j"]
