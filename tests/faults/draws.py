"""Hypothesis strategies for random schedules: gangs, faults, pauses and acts."""

from dataclasses import replace

from hypothesis import strategies as st

from allaboard_sandbox import Fault
from tests.stories import MINIMUM

from .gangs import HIGH, HIGH_PRIORITY, GangSpec, Role
from .simulation import POOLS

BIND_ERRORS = (400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504)

roles = st.builds(Role, name=st.sampled_from(["ps", "chief"]), size=st.integers(1, 2), cpu=st.integers(1, 4), gpus=st.integers(0, 1))
gangs = st.builds(
    GangSpec,
    name=st.just("unnamed"),
    kind=st.sampled_from(["controlled", "controlled", "bare", "recreated", "job", "job", "deployed", "operated"]),
    size=st.integers(2, 6),
    minimum=st.integers(1, 8),
    cpu=st.integers(1, 3),
    has_group=st.booleans(),
    gpus=st.sampled_from([0, 0, 0, 1]),
    others=st.one_of(st.just(()), st.just(()), st.tuples(roles)),
    priority=st.sampled_from([0, 0, HIGH_PRIORITY]),
    pool=st.sampled_from(["", "", "", *POOLS]),
    forgives=st.booleans(),
    completions=st.sampled_from([0, 0, 12]),
    suspends=st.sampled_from([False, False, True]),
    is_single=st.sampled_from([False] * 7 + [True]),
    least=st.sampled_from([0, 0, 1, 2]),
    gives_up=st.sampled_from([False] * 5 + [True]),
    shares_rack=st.sampled_from([False] * 3 + [True]),
    percent=st.sampled_from([0, 0, 30, 60]),
    walltime=st.sampled_from([0, 0, 0, 60, 3600]),
)


def possible(fault: Fault) -> Fault:
    """Return ``fault`` without impossible options: a server that has carried out a request may lose the reply, but doesn't refuse it."""
    return replace(fault, after=fault.after and (fault.drop or fault.status >= 500))


bind_faults = st.builds(
    Fault,
    verb=st.just("bind"),
    resource=st.just("pods"),
    nth=st.integers(1, 5),
    times=st.sampled_from([1, 1, 2, 5, 40]),
    status=st.sampled_from(BIND_ERRORS),
    retry_after=st.sampled_from([None, None, 1, 300]),
    delay=st.sampled_from([0.0, 0.0, 0.0, 20.0]),
    drop=st.booleans(),
    after=st.booleans(),
    dry_run=st.sampled_from([False, False, False, True]),
).map(possible)
pauses = st.sampled_from([0.0, 0.005, 0.03, 0.06, 0.1, 0.4, 2.0, 6.0, 20.0, 40.0])
standstills = st.sampled_from([1.0, 8.0, 15.5, 17.0, 25.0, 40.0])
numbers = st.integers(0, 7)
watched = st.sampled_from(["pods", "nodes"])
rollouts = st.sampled_from(
    [
        {"metadata": {"annotations": {"allaboard.dev/objective": "spread"}}},
        {"metadata": {"annotations": {"example.com/version": "2"}}},
        {"metadata": {"labels": {MINIMUM: "1"}}},
        {"metadata": {"labels": {MINIMUM: "2"}}},
        {"spec": {"priorityClassName": HIGH}},
    ]
)
"""Changes of a Deployment's template."""
acts = st.sampled_from(
    [
        "node deleted",
        "node cordoned",
        "node tainted",
        "node not ready",
        "node shrunk",
        "node re-created",
        "nodes filled",
        "member deleted",
        "member replaced",
        "member finished",
        "minimum edited",
        "PodGroup deleted",
        "Job suspended",
        "watches dropped",
        "watches silent",
    ]
)
"""Acts that may happen while a request is in flight."""
