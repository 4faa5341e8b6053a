"""The expected ends of running pods, and the capacity that these free."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.cluster.running import BASES, LEAST_RESIDUAL_SECONDS, LEAVING_SECONDS, Basis, RunningPods
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.walltime import LEAVING, NEVER, UNKNOWN
from tests.unit.placement.clusters import GPU, node

NOW = 10_000.0
NODES = [node(name, {"cpu": 8, GPU: 8}) for name in "abc"]
RESOURCES = ("cpu", GPU, "pods")


def spec(gpus: int) -> SchedulingSpec:
    return SchedulingSpec((("cpu", 1), (GPU, gpus)))


@pytest.mark.parametrize(
    ("started", "walltime", "expected", "basis"),
    [
        (NOW - 100, 300.0, NOW + 200, Basis.STATED),
        (0.0, 300.0, NOW + 300, Basis.STATED),  # the kubelet hasn't accepted the pod yet
        (NOW - 4000, UNKNOWN, NOW + 4000, Basis.GUESSED),
        (NOW - 1, UNKNOWN, NOW + LEAST_RESIDUAL_SECONDS, Basis.UNKNOWN),
        (NOW - 1000, 300.0, NOW + 700, Basis.GUESSED),  # it has outrun its walltime by 700 s
        (NOW - 900, 900.0, NOW + LEAST_RESIDUAL_SECONDS, Basis.GUESSED),
        (NOW + 50, 300.0, NOW + 300, Basis.STATED),  # the node's clock is fast
        (0.0, LEAVING, NOW + LEAVING_SECONDS, Basis.STATED),
        (NOW + 20, LEAVING, NOW + LEAVING_SECONDS, Basis.STATED),
        (NOW - 20, LEAVING, NOW + LEAVING_SECONDS, Basis.STATED),
        (NOW + 86_400, LEAVING, NOW + 86_400, Basis.STATED),
        (NOW - 1000, LEAVING, NOW + 1000, Basis.GUESSED),
    ],
)
def test_a_pod_is_expected_to_end_by_its_walltime_or_by_its_age(started: float, walltime: float, expected: float, basis: Basis) -> None:
    running = RunningPods()
    running.put("p", "a", spec(1), unit="p", started=started, walltime=walltime)
    found = running.departures(NODES, RESOURCES, NOW)
    assert (found.ends.tolist(), [BASES[each] for each in found.basis]) == ([expected], [basis])


def test_pods_of_services_and_pods_that_stay_are_not_expected_to_end() -> None:
    running = RunningPods()
    running.put("service", "a", spec(1), unit="service", started=1.0, walltime=NEVER)
    running.put("own", "a", spec(1), unit="own", started=1.0, walltime=10.0)
    assert len(running.departures(NODES, RESOURCES, NOW, ["own", "unknown"]).ends) == 0


def test_a_unit_ends_with_its_last_pod_and_frees_all_its_pods_then() -> None:
    running = RunningPods()
    for number, walltime in enumerate((500.0, 900.0)):
        running.put(f"g-{number}", "ab"[number], spec(4), unit="g", started=NOW, walltime=walltime)
    running.put("single", "b", spec(2), unit="single", started=NOW, walltime=600.0)
    found = running.departures(NODES, RESOURCES, NOW)
    assert found.ends.tolist() == [NOW + 600, NOW + 900]
    assert [found.number_by(NOW + seconds) for seconds in (599, 600, 900)] == [0, 1, 2]
    assert found.freed(1)[0].tolist() == [[0, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert found.freed(2)[0].tolist() == [[1, 4, 0], [2, 6, 0], [0, 0, 0]]
    assert found.freed(2)[1].tolist() == [4000, 6000, 0]


@dataclass(frozen=True)
class Known:
    node_name: str
    gpus: int
    unit: str
    started: float
    walltime: float


known = st.builds(
    Known,
    st.sampled_from(["a", "b", "c", "elsewhere"]),
    st.integers(0, 4),
    st.sampled_from(["x", "y", "z"]),
    st.floats(0, NOW, allow_nan=False),
    st.sampled_from([UNKNOWN, NEVER, LEAVING, 10.0, 5000.0]),
)


def end_of(pod: Known) -> float:
    """Return when a pod is expected to end, computed plainly."""
    start = pod.started or NOW
    if pod.walltime == NEVER:
        return math.inf
    if pod.walltime == LEAVING:
        late = NOW - start  # the grace period is over since then
        return NOW + (max(late, LEAST_RESIDUAL_SECONDS) if late > 60 else LEAVING_SECONDS)
    if pod.walltime and start + pod.walltime > NOW:
        return start + pod.walltime
    age = NOW - start - (pod.walltime or 0.0)
    return NOW + max(age, LEAST_RESIDUAL_SECONDS)


@given(st.lists(st.tuples(st.integers(0, 8), st.one_of(st.none(), known)), max_size=30), st.floats(NOW, 4 * NOW))
def test_pods_of_units_that_have_ended_free_their_capacity(changes: list[tuple[int, Known | None]], when: float) -> None:
    running, pods = RunningPods(), dict[int, Known]()
    for uid, pod in changes:
        if pod is None:
            running.remove(f"{uid}")
            pods.pop(uid, None)
        else:
            running.put(f"{uid}", pod.node_name, spec(pod.gpus), unit=pod.unit, started=pod.started, walltime=pod.walltime)
            pods[uid] = pod
    assert len(running) == len(pods)
    found = running.departures(NODES, RESOURCES, NOW)
    ends = {unit: max(end_of(pod) for pod in pods.values() if pod.unit == unit) for unit in {pod.unit for pod in pods.values()}}
    expected = np.zeros((3, 3), dtype=np.int64)
    for pod in pods.values():
        if ends[pod.unit] <= when and pod.node_name in "abc":
            expected["abc".index(pod.node_name)] += (1, pod.gpus, 0)
    assert found.ends.tolist() == pytest.approx(sorted(end for end in ends.values() if end < math.inf))  # sums in another order
    assert (found.freed(found.number_by(when))[0] == expected).all()
    rows = np.array([2, 0])
    assert (found.of_nodes(rows).freed(found.number_by(when))[0] == expected[rows]).all()


def test_numbers_of_gone_pods_are_used_again() -> None:
    running = RunningPods()
    for number in range(1000):
        running.put(f"{number}", f"node-{number}", spec(number), unit=number, started=1.0, walltime=10.0)
        running.remove(f"{number}")
    running.remove("unknown")
    assert (len(running), len(running._node), len(running._nodes), len(running._specs), len(running._units)) == (0, 64, 1, 1, 1)
