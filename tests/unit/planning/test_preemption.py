"""Tests that the least costly pods are evicted for a gang that fits in no other way, and that such a gang then starts."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allaboard.cluster.budgets import Budget, Budgets
from allaboard.cluster.view import ClusterView
from allaboard.model.disruption import mark_of
from allaboard.model.foreign_gang_labels import ForeignGangLabels
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Owner, Pod
from allaboard.placement import SearchSettings
from allaboard.planning.answers import Answer, Placed, Refused
from allaboard.planning.evictable import PREEMPTION, PreemptionSettings
from allaboard.planning.gang_problem import Packings
from allaboard.planning.policy import Policy
from allaboard.planning.preemption import Preemption
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.planning.standstill import Standstill
from allaboard.queueing.order import order_of
from allaboard.records.sort_key import Order
from tests.unit.placement.clusters import GPU, node, pods

NOW = 1_000_000.0
OWNER = Owner("v1", "ReplicationController", "owner", "owner")


def a_gang(name: str, size: int, gpus: int, *, priority: int = 10, minimum: int | None = None, **fields: object) -> Gang:
    members = tuple(replace(pod, priority=priority, owner=OWNER, **fields) for pod in pods(name, size, {GPU: gpus}))  # type: ignore[arg-type]
    return Gang(GangKey("default", name), minimum or size, members, priority, NOW, Objective.BINPACK, 60)


@dataclass
class Scene(Standstill):
    """A cluster of ``nodes`` with 8 GPUs each, gangs that run, and gangs that wait."""

    nodes: int = 2
    preempting: PreemptionSettings = PREEMPTION
    view: ClusterView = field(default_factory=ClusterView)
    waiting: dict[GangKey, Gang] = field(default_factory=dict)
    placed: dict[GangKey, Gang] = field(default_factory=dict)
    seconds: float = NOW
    answers: dict[str, Answer] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    """The pods whose owner would count an eviction as a failure."""

    def __post_init__(self) -> None:
        policy = Policy(preemption=self.preempting)
        super().__init__(self.view, self.view.running, SearchSettings(generations=3, min_generations=1), Packings(), policy=policy)
        for number in range(self.nodes):
            self.view.upsert_node(node(f"n{number}", {GPU: 8}))

    def run_gang(self, gang: Gang, *where: int, started: float = NOW - 100) -> Gang:
        """Let a gang run, with its members on the nodes ``where``."""
        places = zip(gang.members, where, strict=True)
        members = [
            replace(pod, node_name=f"n{number}", phase="Running", started=started, transaction=gang.key.name) for pod, number in places
        ]
        for pod in members:
            self.view.upsert_pod(pod)
        self.placed[gang.key] = replace(gang, members=tuple(members))
        return self.placed[gang.key]

    def change(self, pod: Pod, **fields: object) -> None:
        """Change fields of a running pod."""
        changed = replace(pod, **fields)  # type: ignore[arg-type]
        self.view.upsert_pod(changed)
        for key, gang in self.placed.items():
            self.placed[key] = replace(gang, members=tuple(changed if each.uid == pod.uid else each for each in gang.members))

    def remove(self, gone: Iterable[Pod]) -> None:
        uids = {pod.uid for pod in gone}
        for key, gang in self.placed.items():
            self.placed[key] = replace(gang, members=tuple(pod for pod in gang.members if pod.uid not in uids))
            for pod in gang.members:
                if pod.uid in uids:
                    self.view.remove_pod(pod.key)

    def plan(self, *gangs: Gang) -> Preemption | None:
        """Plan the gangs that wait and ``gangs``. Return the preemption for the last of ``gangs``; None if there is none."""
        self.waiting |= {gang.key: gang for gang in gangs}
        for gang in gangs:
            for pod in gang.members:
                self.view.upsert_pod(pod)
        self.answers = {}
        asyncio.run(self.run(list(self.waiting)))
        answer = self.answers.get(gangs[-1].key.name) if gangs else None
        return answer.preemption if isinstance(answer, Refused) else None

    def evicted_for(self, gang: Gang) -> dict[str, int]:
        """Plan ``gang``, and return how many pods each victim loses, by name."""
        found = self.plan(gang)
        return {victim.gang.key.name: len(victim.pods) for victim in found.victims} if found else {}

    def running(self) -> Iterable[Gang]:
        return self.placed.values()

    def foreign(self) -> Iterable[Pod]:
        return (pod for pod in self.view.pods() if pod.scheduler_name == "another")

    def tolerates(self, pod: Pod) -> bool:
        return pod.name not in self.counted

    def gang(self, key: GangKey) -> Gang | None:
        return self.waiting.get(key)

    def prepared(self, key: GangKey) -> PreparedGang | None:
        gang = self.waiting.get(key)
        return prepared(gang) if gang and gang.can_act else None

    def place(self, key: GangKey) -> Order:
        return order_of(self.waiting[key])

    def now(self) -> float:
        return self.seconds

    def waited(self, key: GangKey) -> float:
        return self.seconds - self.waiting[key].created

    def answered(self, answer: Answer, *, is_again: bool) -> None:
        self.answers[answer.gang.key.name] = answer
        if isinstance(answer, Placed):
            nodes = {each.pod.uid: int(each.node_name[1:]) for each in answer.assignments}
            bound = [pod for pod in answer.gang.members if pod.uid in nodes]
            del self.waiting[answer.gang.key]
            self.run_gang(replace(answer.gang, members=tuple(bound)), *(nodes[pod.uid] for pod in bound), started=self.seconds)
        elif isinstance(answer, Refused) and answer.preemption:
            self._preemptions.begin(answer.preemption)


def test_a_gang_takes_the_whole_gang_of_lower_priority_that_costs_least() -> None:
    scene = Scene()
    scene.run_gang(a_gang("wide", 2, 8, priority=1), 0, 1)
    assert scene.evicted_for(a_gang("high", 1, 8)) == {"wide": 2}
    scene = Scene()
    scene.run_gang(a_gang("wide", 2, 4, priority=1), 0, 1)
    scene.run_gang(a_gang("small", 1, 4, priority=1), 1)
    scene.run_gang(a_gang("other", 1, 4, priority=1), 0)
    assert scene.evicted_for(a_gang("high", 1, 4)) in ({"small": 1}, {"other": 1})


def test_a_lower_priority_is_taken_before_fewer_pods() -> None:
    scene = Scene()
    scene.run_gang(a_gang("lowest", 4, 2, priority=1), 0, 0, 0, 0)
    scene.run_gang(a_gang("low", 1, 8, priority=2), 1)
    assert scene.evicted_for(a_gang("high", 1, 8)) == {"lowest": 4}


@pytest.mark.parametrize(
    ("fields", "of_victim"),
    [
        pytest.param({"priority": 1}, {}, id="equal priority"),
        pytest.param({"may_preempt": False}, {}, id="preemption policy Never"),
        pytest.param({}, {"owner": None}, id="bare pods would be lost"),
        pytest.param({}, {"labels": (("kueue.x-k8s.io/podset", "main"),)}, id="Kueue manages the victim"),
        pytest.param({"labels": (("kueue.x-k8s.io/podset", "main"),)}, {}, id="Kueue manages the gang"),
    ],
)
def test_no_pod_is_evicted_for_or_from_a_gang_that_may_not_take_part(fields: dict[str, object], of_victim: dict[str, object]) -> None:
    scene = Scene(nodes=1)
    victim = a_gang("low", 1, 8, priority=1)
    scene.run_gang(replace(victim, members=(replace(victim.members[0], **of_victim),)), 0)  # type: ignore[arg-type]
    assert scene.evicted_for(a_gang("high", 1, 8, **fields)) == {}  # type: ignore[arg-type]


def test_a_bare_pod_that_is_made_again_may_be_evicted_and_kueue_may_be_left_out() -> None:
    scene = Scene(nodes=1, preempting=PreemptionSettings(of_kueue=True))
    labels = (("kueue.x-k8s.io/podset", "main"),)
    scene.run_gang(a_gang("low", 1, 8, priority=1, labels=labels), 0)
    assert scene.evicted_for(a_gang("high", 1, 8, labels=labels)) == {"low": 1}
    scene = Scene(nodes=1)
    low = a_gang("low", 1, 8, priority=1, options=(("recreate", "true"),))
    scene.run_gang(replace(low, members=(replace(low.members[0], owner=None),)), 0)
    assert scene.evicted_for(a_gang("high", 1, 8)) == {"low": 1}


def test_settings_turn_preemption_off_delay_it_and_protect_gangs_that_have_just_started() -> None:
    for preempting in (PreemptionSettings(is_on=False), PreemptionSettings(delay_seconds=5), PreemptionSettings(min_runtime_seconds=200)):
        scene = Scene(nodes=1, preempting=preempting)
        scene.run_gang(a_gang("low", 1, 8, priority=1), 0)
        assert scene.evicted_for(a_gang("high", 1, 8)) == {}
    scene = Scene(nodes=1, preempting=PreemptionSettings(delay_seconds=5, min_runtime_seconds=200))
    scene.run_gang(a_gang("low", 1, 8, priority=1), 0, started=NOW - 300)
    scene.seconds += 6
    assert scene.evicted_for(a_gang("high", 1, 8)) == {"low": 1}


def test_surplus_goes_before_a_gang_is_broken_the_youngest_pods_first() -> None:
    scene = Scene(nodes=2)
    elastic = scene.run_gang(a_gang("elastic", 4, 2, priority=1, minimum=2), 0, 0, 0, 0)
    scene.change(elastic.members[1], started=NOW - 50)
    scene.change(elastic.members[2], started=NOW - 20)
    scene.run_gang(a_gang("rigid", 1, 8, priority=1), 1)
    found = scene.plan(a_gang("high", 2, 2))
    assert found is not None
    assert [(victim.gang.key.name, sorted(pod.name for pod in victim.pods), victim.is_broken) for victim in found.victims] == [
        ("elastic", ["elastic-1", "elastic-2"], False)
    ]


def test_the_gang_that_saved_its_work_last_is_taken_of_equal_gangs() -> None:
    scene = Scene(nodes=2)
    scene.run_gang(a_gang("long", 1, 8, priority=1), 0, started=NOW - 5000)
    scene.run_gang(a_gang("saved", 1, 8, priority=1, options=(("last-checkpoint", "1970-01-12T13:46:30Z"),)), 1, started=NOW - 9000)
    assert scene.evicted_for(a_gang("high", 1, 8)) == {"saved": 1}


def test_no_pod_is_evicted_if_leaving_pods_free_enough_or_if_the_gang_would_not_fit_even_so() -> None:
    scene = Scene(nodes=1)
    low = scene.run_gang(a_gang("low", 1, 8, priority=1), 0)
    scene.change(low.members[0], is_terminating=True)
    assert scene.evicted_for(a_gang("high", 1, 8)) == {}
    scene = Scene(nodes=2)
    scene.run_gang(a_gang("low", 2, 4, priority=1), 0, 1)
    scene.run_gang(a_gang("equal", 1, 4), 1)
    assert scene.evicted_for(a_gang("high", 2, 8)) == {}


def test_a_budget_protects_pods_and_costs_only_if_it_may_be_exceeded() -> None:
    for despite, wanted in ((False, {}), (True, {"guarded": 1})):
        scene = Scene(nodes=1, preempting=PreemptionSettings(despite_budgets=despite))
        scene.run_gang(a_gang("guarded", 1, 8, priority=1, labels=(("app", "guarded"),)), 0)
        budgets = Budgets()
        budgets.upsert("default/guard", Budget("default", "guard", (), 0))
        scene._preemptions.budgets_of = budgets.of
        assert scene.evicted_for(a_gang("high", 1, 8)) == wanted


def test_no_further_pod_is_evicted_until_the_victims_are_gone_and_then_the_gang_starts() -> None:
    scene = Scene(nodes=2)
    scene.run_gang(a_gang("a", 1, 8, priority=1), 0)
    scene.run_gang(a_gang("b", 1, 8, priority=1), 1)
    high, low = a_gang("high", 1, 8), a_gang("low", 1, 8, priority=1)
    found = scene.plan(high)
    assert found is not None
    assert len(found.pods) == 1
    scene.change(found.pods[0], is_terminating=True)
    assert scene.plan(high) is None
    scene.remove(found.pods)
    scene.plan(low, high)
    assert isinstance(scene.answers["high"], Placed)
    assert isinstance(scene.answers["low"], Refused)


def test_a_second_gang_uses_what_the_victims_of_the_first_leave_and_takes_no_further_pods() -> None:
    """The gang ``wide`` is evicted for one node; its other node is enough for the second gang. The gang ``small`` would cost as little."""
    scene = Scene(nodes=3)
    scene.run_gang(a_gang("wide", 2, 8, priority=1), 0, 1)
    scene.run_gang(a_gang("equal", 1, 8), 2)
    first, second = a_gang("first", 1, 8), a_gang("second", 1, 8)
    assert scene.evicted_for(first) == {"wide": 2}
    scene.remove(scene.placed[GangKey("default", "equal")].members)
    scene.run_gang(a_gang("small", 1, 8, priority=1), 2)
    assert scene.evicted_for(second) == {}
    scene.remove(scene.placed[GangKey("default", "wide")].members)
    scene.plan(first, second)
    assert all(isinstance(scene.answers[name], Placed) for name in ("first", "second"))


def test_a_gang_that_is_being_bound_or_released_keeps_its_pods() -> None:
    scene = Scene(nodes=1)
    low = scene.run_gang(a_gang("low", 1, 8, priority=1), 0)
    scene._records.of(low.key).task = cast("asyncio.Task[None]", object())
    high = a_gang("high", 1, 8)
    assert scene.evicted_for(high) == {}
    scene._records.of(low.key).task = None
    assert scene.evicted_for(high) == {"low": 1}


def test_a_gang_whose_pods_could_not_be_evicted_is_no_victim_for_a_minute() -> None:
    scene, seconds = Scene(), 100.0
    scene._planner.costs = replace(scene._planner.costs, clock=lambda: seconds)
    protected = scene.run_gang(a_gang("protected", 1, 8, priority=1), 0)
    scene.run_gang(a_gang("costlier", 2, 4, priority=1), 1, 1)
    high = a_gang("high", 1, 8)
    assert scene.evicted_for(high) == {"protected": 1}
    scene._preemptions.give_up(high.key, [protected])
    seconds = 159.0
    assert scene.evicted_for(high) == {"costlier": 2}
    scene._preemptions.give_up(high.key)
    seconds = 161.0
    assert scene.evicted_for(high) == {"protected": 1}


def test_evictions_that_an_earlier_leader_has_begun_are_finished_and_no_other_pods_are_taken() -> None:
    """The rest of the gang whose evictions have begun has more pods than the gang ``small``, which would be chosen otherwise."""
    scene, mark = Scene(nodes=3), mark_of("default", "high")
    scene.run_gang(a_gang("wide", 4, 4, priority=1), 0, 0, 1, 1)
    scene.run_gang(a_gang("small", 1, 8, priority=1), 2)
    assert scene.evicted_for(a_gang("other", 1, 8)) == {"small": 1}
    scene = Scene(nodes=3)
    wide = scene.run_gang(a_gang("wide", 4, 4, priority=1), 0, 0, 1, 1)
    scene.run_gang(a_gang("small", 1, 8, priority=1), 2)
    for number, pod in enumerate(wide.members):
        scene.change(pod, evicted_for=mark, is_terminating=number < 2)
    assert scene.evicted_for(a_gang("high", 2, 8)) == {"wide": 2}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 1), st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 4, 8])), min_size=1)),
        max_size=6,
    ),
    st.integers(1, 3),
    st.sampled_from([1, 2, 4, 8]),
)
def test_a_gang_for_which_pods_are_evicted_starts_once_they_are_gone(
    running: Sequence[tuple[int, int, Sequence[tuple[int, int]]]], size: int, gpus: int
) -> None:
    scene, free = Scene(nodes=3), [8, 8, 8]
    for number, (priority, surplus, wanted) in enumerate(running):
        where: list[int] = []
        asked = wanted[0][1]
        for place, _ in wanted[:4]:
            if free[place] >= asked:
                free[place] -= asked
                where.append(place)
        if where:
            scene.run_gang(a_gang(f"g{number}", len(where), asked, priority=priority, minimum=max(1, len(where) - surplus)), *where)
    high = a_gang("high", size, gpus, priority=3)
    found = scene.plan(high)
    if found is None:
        event("none is evicted")
        return
    assert all(victim.gang.priority < 3 for victim in found.victims)
    for victim in found.victims:
        left = len(victim.gang.bound) - len(victim.pods)
        assert not left or left >= victim.gang.quorum
    scene.remove(found.pods)
    scene.plan(high)
    assert isinstance(scene.answers["high"], Placed)
    event(f"{len(found.victims)} gangs lose pods")


def foreign(name: str, gpus: int, *, priority: int = 1, **fields: object) -> Pod:
    """Return a running pod of another scheduler on node n0."""
    (pod,) = pods(name, 1, {GPU: gpus})
    facts: dict[str, object] = {"owner": OWNER, "phase": "Running", "node_name": "n0", "priority": priority, **fields}
    return replace(pod, scheduler_name="another", **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pod", "is_evicted"),
    [
        (foreign("single", 8), True),
        (foreign("single", 8, priority=10), False),
        (foreign("single", 8, owner=None), False),
        (foreign("single", 8, owner=Owner("apps/v1", "DaemonSet", "owner", "owner")), False),
        (foreign("single", 8, owner=Owner("v1", "Node", "n0", "n0")), False),
        (foreign("single", 8, group_name="native"), False),
        (foreign("single", 8, foreign_gang_labels=ForeignGangLabels("volcano.sh/queue-name")), False),
    ],
    ids=["lower priority", "same priority", "bare", "DaemonSet", "static", "native PodGroup", "gang of another scheduler"],
)
def test_only_single_pods_of_other_schedulers_with_lower_priority_are_evicted(pod: Pod, is_evicted: bool) -> None:
    scene = Scene(nodes=1, preempting=PreemptionSettings(others=True))
    scene.view.upsert_pod(pod)
    assert scene.evicted_for(a_gang("high", 1, 8)) == ({"single-0": 1} if is_evicted else {})


def test_pods_of_other_schedulers_are_not_evicted_by_default() -> None:
    scene = Scene(nodes=1)
    scene.view.upsert_pod(foreign("single", 8))
    assert scene.evicted_for(a_gang("high", 1, 8)) == {}


def test_surplus_of_a_gang_of_a_native_pod_group_is_not_evicted_alone() -> None:
    scene = Scene(nodes=1)
    scene.run_gang(a_gang("native", 2, 4, priority=1, minimum=1, group_name="native"), 0, 0)
    assert scene.evicted_for(a_gang("high", 1, 4)) == {"native": 2}


def test_pods_that_an_earlier_leader_marked_are_evicted_with_others_if_they_are_not_enough() -> None:
    scene = Scene(nodes=2)
    one = scene.run_gang(a_gang("one", 1, 8, priority=1), 0)
    scene.run_gang(a_gang("other", 1, 8, priority=1), 1)
    scene.change(one.members[0], evicted_for=mark_of("default", "high"))
    assert scene.evicted_for(a_gang("high", 2, 8)) == {"one": 1, "other": 1}


def test_a_marked_pod_that_does_not_help_is_kept() -> None:
    scene = Scene(nodes=2)
    one = scene.run_gang(a_gang("one", 1, 2, priority=1), 0)
    scene.run_gang(a_gang("same", 1, 6), 0)
    scene.run_gang(a_gang("other", 1, 8, priority=1), 1)
    scene.change(one.members[0], evicted_for=mark_of("default", "high"))
    assert scene.evicted_for(a_gang("high", 1, 8)) == {"other": 1}


def test_a_gang_whose_job_would_count_an_eviction_as_a_failure_keeps_its_pods() -> None:
    scene = Scene(nodes=2, counted={"cheap-0"})
    scene.run_gang(a_gang("cheap", 1, 8, priority=1), 0, started=NOW)
    scene.run_gang(a_gang("dear", 1, 8, priority=1), 1)
    assert scene.evicted_for(a_gang("high", 1, 8)) == {"dear": 1}
