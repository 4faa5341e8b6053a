"""Tests that a tenant's share is its decayed dominant share, whether or not the scheduler was restarted, and that shares order gangs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.queueing.fair_share import FairShare
from allaboard.settings.fair_share import FairShareOptions
from tests.unit.placement.clusters import node, pods

HALF_LIFE = 100.0
ON = FairShareOptions(enabled=True, half_life_seconds=HALF_LIFE)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def shares_of(options: FairShareOptions = ON, clock: Clock | None = None) -> FairShare:
    """Return the shares of a cluster with 100 cpu, of which a fifth each, and 10 GPUs are on five nodes."""
    shares = FairShare(options, clock or Clock())
    for number in range(5):
        shares.observe_node(None, node(f"n{number}", {"cpu": 20_000, "nvidia.com/gpu": 2}))
    return shares


def a_pod(name: str, namespace: str = "a", *, cpu: int = 1000, gpus: int = 0, started: float = 0.0, label: str = "") -> Pod:
    [pod] = pods(name, 1, {"cpu": cpu, **({"nvidia.com/gpu": gpus} if gpus else {})})
    labels = (("team", label),) if label else ()
    return replace(pod, namespace=namespace, node_name="n0", phase="Running", started=started, labels=labels)


def test_share_is_that_of_the_dominant_resource_divided_by_the_weight() -> None:
    shares = shares_of(ON.model_copy(update={"weights": {"b": 2.0}}))
    for namespace in ("a", "b"):
        shares.observe_pod(None, a_pod(namespace, namespace, cpu=10_000, gpus=4))
    assert (shares.share("a"), shares.share("b"), shares.share("c")) == (0.4, 0.2, 0.0)
    shares.observe_node(node("n4", {"cpu": 20_000, "nvidia.com/gpu": 2}), None)
    assert shares.share("a") == 0.5


def test_share_halves_in_each_half_life_once_a_pod_has_ended_and_is_forgotten() -> None:
    clock = Clock()
    shares = shares_of(clock=clock)
    pod = a_pod("a", cpu=50_000)
    shares.observe_pod(None, pod)
    clock.now += HALF_LIFE
    assert shares.share("a") == 0.5
    shares.observe_pod(pod, replace(pod, phase="Succeeded"))
    assert shares.share("a") == 0.25
    clock.now += HALF_LIFE
    assert shares.share("a") == 0.125
    clock.now += 40 * HALF_LIFE
    assert shares.share("a") == 0.0
    assert len(shares) == 0


def test_without_a_half_life_only_present_use_counts() -> None:
    shares = shares_of(ON.model_copy(update={"half_life_seconds": 0.0}))
    pod = a_pod("a", cpu=50_000, started=1.0)
    shares.observe_pod(None, pod)
    assert shares.share("a") == 0.5
    shares.observe_pod(pod, None)
    assert shares.share("a") == 0.0


@given(st.lists(st.tuples(st.floats(0, 500), st.integers(1, 10)), min_size=1, max_size=5))
def test_share_of_running_pods_is_the_same_after_a_restart(starts: list[tuple[float, int]]) -> None:
    clock = Clock()
    began, before = clock.now, shares_of(clock=clock)
    running = [a_pod(f"p{number}", cpu=1000 * cpu, started=began + at) for number, (at, cpu) in enumerate(sorted(starts))]
    for pod in running:
        clock.now = pod.started
        before.observe_pod(None, pod)
    clock.now = began + 600.0
    after = shares_of(clock=clock)
    for pod in running:
        after.observe_pod(None, pod)
    assert after.share("a") == pytest.approx(before.share("a"))


def test_tenants_may_be_the_values_of_a_label_and_pods_without_it_count_for_their_namespace() -> None:
    shares = shares_of(ON.model_copy(update={"by": "team"}))
    shares.observe_pod(None, a_pod("x", "a", cpu=10_000, label="red"))
    shares.observe_pod(None, a_pod("y", "b", cpu=20_000, label="red"))
    shares.observe_pod(None, a_pod("z", "b", cpu=5_000))
    assert (shares.share("red"), shares.share("b"), shares.share("a")) == (pytest.approx(0.3), 0.05, 0.0)
    level, tenant = shares.place("a", a_pod("w", label="red"))
    assert (level > shares.place("b", None)[0], tenant) == (True, "red")
    assert shares.place("a", None) == (0, "")


def test_namespaces_are_reported_once_when_their_share_has_fallen() -> None:
    clock = Clock()
    shares = shares_of(clock=clock)
    pod = a_pod("a", cpu=50_000)
    shares.observe_pod(None, pod)
    level, _ = shares.place("a", None)
    assert shares.fallen() == set()
    shares.observe_pod(pod, None)
    assert shares.fallen() == {"a"}
    assert shares.fallen() == set()
    clock.now += HALF_LIFE
    shares.observe_pod(None, replace(pod, uid="again"))
    assert shares.place("a", None) == (level, "")


def test_fallen_share_of_one_among_many_tenants_is_found_at_once_if_pods_have_ended_and_else_in_turn() -> None:
    clock = Clock()
    shares = shares_of(clock=clock)
    names = [f"team-{number}" for number in range(450)]
    pods = {name: a_pod(name, name, cpu=10_000) for name in names}
    for name, pod in pods.items():
        shares.observe_pod(None, replace(pod, started=clock.now - 10 * HALF_LIFE))
        shares.place(name, None)
    shares.observe_pod(pods[names[-1]], None)
    clock.now += HALF_LIFE
    assert shares.fallen() == {names[-1]}
    for name in names[:-1]:
        shares.observe_pod(pods[name], None)
    assert shares.fallen() == set()
    clock.now += HALF_LIFE
    found = [shares.fallen() for _ in range(3)]
    assert all(len(each) <= 200 for each in found)
    assert set().union(*found) == set(names)


def test_level_rises_by_20_with_each_doubling_of_the_share() -> None:
    shares = shares_of()
    for number, cpu in enumerate((1000, 1000, 2000)):
        shares.observe_pod(None, a_pod(str(number), cpu=cpu))
    doubled, _ = shares.place("a", None)
    shares.observe_pod(a_pod("2", cpu=2000), None)
    assert shares.place("a", None) == (doubled - 20, "")


def test_nothing_is_counted_while_the_fair_order_is_off() -> None:
    shares = shares_of(FairShareOptions())
    shares.observe_pod(None, a_pod("a"))
    assert len(shares) == 0


def test_requests_that_no_node_offers_do_not_count() -> None:
    shares = shares_of()
    pod = a_pod("a", cpu=1000)
    shares.observe_pod(None, replace(pod, spec=replace(pod.spec, requests=as_requests({"cpu": 1000, "example.com/other": 5}))))
    assert shares.share("a") == 0.01
