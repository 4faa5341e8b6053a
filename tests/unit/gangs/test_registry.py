"""The registry: the members and options of gangs, and the reasons for which gangs are held."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gangs.job_counts import JobCounts
from allaboard.gangs.podgroup import MANAGED_BY, OURS, PodGroup, owner_references, pod_group_from
from allaboard.gangs.registry import OVER_LIMIT, GangDefaults, GangRegistry
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.foreign_gang_labels import SPEC_FIELDS
from allaboard.model.gang import GangKey, Objective, Outline, Undo
from allaboard.model.limits import ENDED, MEMBERS, Limit
from allaboard.model.pod import Owner, Pod
from allaboard.placement.rules.members import rules_of

PAIR = "pod-group.scheduling.sigs.k8s.io"
KEY = GangKey("default", "train")
JOB = Owner("kubeflow.org/v1", "TFJob", "train", "job-1")


def a_pod(name: str, minimum: str = "3", **changes: object) -> Pod:
    labels = ((f"{PAIR}/min-available", minimum), (f"{PAIR}/name", "train"))
    pod = Pod(
        "default", name, f"uid-{name}", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec((("pods", 1),)), labels=labels, owner=JOB
    )
    return replace(pod, **changes)  # type: ignore[arg-type]


def a_group(minimum: object = 3, **metadata: object) -> PodGroup:
    return pod_group_from({"metadata": {"name": "train", "namespace": "default", "uid": "pg", **metadata}, "spec": {"minMember": minimum}})


def a_registry(*pods: Pod) -> GangRegistry:
    registry = GangRegistry(["allaboard"], defaults=GangDefaults())
    for pod in pods:
        registry.observe_pod(None, pod)
    return registry


def test_members_of_a_gang_are_the_pods_that_exist() -> None:
    registry = a_registry(a_pod("a"), a_pod("b"))
    gang = registry.gang(KEY)
    assert gang is not None
    assert [pod.name for pod in gang.members] == ["a", "b"]
    registry.observe_pod(a_pod("a"), None)
    registry.observe_pod(a_pod("b"), None)
    assert registry.gang(KEY) is None


def test_gang_with_bound_members_is_listed_even_if_its_pod_group_is_unknown() -> None:
    alone = a_pod("alone", labels=(), node_name="n")
    registry = a_registry(a_pod("a", node_name="n"), a_pod("b"), alone)
    assert [gang.key.name for gang in registry.bound_gangs()] == [KEY.name, "alone"]
    registry.observe_group(a_group())
    assert [gang.key.name for gang in registry.bound_gangs()] == [KEY.name, "alone"]
    registry.observe_pod(a_pod("a", node_name="n"), None)
    assert [gang.key.name for gang in registry.bound_gangs()] == ["alone"]


def test_a_gang_keeps_its_age_when_its_pod_group_is_made_after_its_pods() -> None:
    registry = a_registry(a_pod("a", created=7.0), a_pod("b", created=9.0))
    registry.observe_group(a_group(creationTimestamp="1970-01-01T00:01:00Z"))
    gang, outline = registry.gang(KEY), registry.outline(KEY)
    assert gang is not None
    assert outline is not None
    assert gang.created == outline.created == 7.0
    registry.observe_group(a_group(creationTimestamp="1970-01-01T00:00:05Z"))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.created == 5.0


def test_pods_of_other_schedulers_and_of_other_namespaces_are_ignored() -> None:
    registry = GangRegistry(["allaboard"], namespaces=["team"])
    registry.observe_pod(None, a_pod("a", scheduler_name="default-scheduler", namespace="team"))
    registry.observe_pod(None, a_pod("b"))
    assert list(registry.gangs()) == []


def test_a_change_that_does_not_matter_for_scheduling_calls_no_listener() -> None:
    registry = a_registry(a_pod("a"))
    changed: list[GangKey] = []
    registry.listen(changed.append)
    registry.observe_pod(a_pod("a"), a_pod("a", resource_version="2"))
    assert changed == []
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.members[0].resource_version == "2"


@pytest.mark.parametrize(
    "state",
    [{"node_name": "node-1"}, {"phase": "Succeeded"}, {"is_terminating": True}, {"phase": "Failed", "node_name": "node-1"}],
    ids=["has a node", "has ended", "is terminating", "has failed on its node"],
)
def test_gang_counts_as_started_while_a_member_has_a_node_is_terminating_or_has_ended(state: dict[str, Any]) -> None:
    registry, new_pod = a_registry(a_pod("a")), a_pod("c")
    assert not registry.has_started(new_pod)
    registry.observe_pod(a_pod("a"), a_pod("a", **state))
    assert registry.has_started(new_pod)
    registry.observe_pod(a_pod("a", **state), None)
    assert not registry.has_started(new_pod)
    assert registry.has_started(a_pod("d", scheduler_name="default-scheduler"))  # the gang of another scheduler's pod counts as started


def test_a_gang_that_only_labels_declare_needs_a_pod_group_object_until_there_is_one() -> None:
    registry = a_registry(a_pod("a"))
    assert registry.needs_group(KEY)
    registry.observe_group(a_group(labels={"app.kubernetes.io/managed-by": "allaboard"}))
    assert not registry.needs_group(KEY)


def test_the_labels_win_over_a_pod_group_that_was_made_from_labels() -> None:
    registry = a_registry(a_pod("a", minimum="5"))
    registry.observe_group(a_group(3, labels={"app.kubernetes.io/managed-by": "allaboard"}))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.min_member == 5
    assert gang.hold is None


def test_a_users_own_pod_group_that_disagrees_with_the_labels_holds_the_gang() -> None:
    registry = a_registry(a_pod("a", minimum="5"))
    registry.observe_group(a_group(3))
    gang = registry.gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.reason == "MinAvailableMismatch"


@pytest.mark.parametrize(
    ("invalid", "reason"),
    [
        (a_pod("b", minimum="4"), "MinAvailableMismatch"),
        (a_pod("b", minimum="five"), "InvalidLabel"),
        (a_pod("b", minimum="0"), "InvalidLabel"),
        (a_pod("b", priority=10), "PriorityMismatch"),
        (a_pod("b", malformed="spec.containers: 7 is not a list"), "InvalidPod"),
        (a_pod("b", spec=SchedulingSpec((("pods", 1),), unsupported=("resource claims (DRA) are not supported",))), "Unsupported"),
        (a_pod("b", options=(("objective", "quick"),)), "InvalidAnnotation"),
        (a_pod("b", options=(("objectve", "spread"),)), "InvalidAnnotation"),
        (a_pod("b", options=(("undo", "delete"),)), "InvalidAnnotation"),
    ],
)
def test_message_of_a_held_gang_names_the_invalid_member(invalid: Pod, reason: str) -> None:
    gang = a_registry(a_pod("a"), invalid).gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.reason == reason
    assert gang.hold.pod is not None
    assert gang.hold.pod.name == "b"


@pytest.mark.parametrize(("bound", "waiting", "expected"), [(0, 1000, 0), (1000, 0, 0), (7, 7, 7)])
def test_gang_of_a_running_and_a_waiting_member_has_the_lower_of_their_priorities(bound: int, waiting: int, expected: int) -> None:
    gang = a_registry(a_pod("a", node_name="n1", priority=bound), a_pod("b", priority=waiting)).gang(KEY)
    assert gang is not None
    assert gang.hold is None
    assert gang.priority == expected


def test_in_a_rollout_the_youngest_template_states_minimum_and_options() -> None:
    def a_serving_pod(name: str, owner: str, minimum: str, objective: str, **parts: Any) -> Pod:
        return a_pod(name, minimum, options=(("objective", objective),), owner=Owner("apps/v1", "ReplicaSet", owner, owner), **parts)

    old = [a_serving_pod(f"o{number}", "old", "4", "binpack", node_name="n1") for number in range(4)]
    new = a_serving_pod("n", "new", "3", "spread", created=9.0)
    gang = a_registry(*old, new).gang(KEY)
    assert gang is not None
    assert (gang.hold, gang.min_member, gang.objective) == (None, 3, Objective.SPREAD)
    waiting = [replace(pod, node_name="") for pod in old]
    gang = a_registry(*waiting, new).gang(KEY)
    assert gang is not None
    assert (gang.hold, gang.min_member, gang.objective) == (None, 3, Objective.SPREAD)


def test_finished_member_that_states_another_minimum_does_not_hold_the_gang() -> None:
    gang = a_registry(a_pod("a"), a_pod("b", minimum="4", phase="Succeeded")).gang(KEY)
    assert gang is not None
    assert gang.hold is None


def test_a_missing_pod_group_is_reported_on_a_waiting_pod_and_not_on_a_running_one() -> None:
    labels = (("scheduling.x-k8s.io/pod-group", "train"),)
    running = [replace(a_pod(name, labels=labels), node_name="node-1", phase="Running", created=1.0) for name in ("a", "b")]
    gang = a_registry(*running, replace(a_pod("c", labels=labels), created=2.0)).gang(KEY)
    assert gang is not None and gang.hold is not None and gang.hold.pod is not None
    assert (gang.hold.reason, gang.hold.pod.name) == ("PodGroupNotFound", "c")


def test_pod_that_names_a_missing_pod_group_is_held_until_the_pod_group_exists() -> None:
    pod = a_pod("a", labels=(("scheduling.x-k8s.io/pod-group", "train"),))
    registry = a_registry(pod)
    gang = registry.gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.reason == "PodGroupNotFound"
    registry.observe_group(a_group(1))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.hold is None


@pytest.mark.parametrize("minimum", ["3", -1, 2.5, [], True])
def test_a_malformed_pod_group_holds_its_gang(minimum: object) -> None:
    registry = a_registry()
    registry.observe_group(a_group(minimum))
    gang = registry.gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.reason == "InvalidPodGroup"
    assert "spec.minMember" in gang.hold.message


@pytest.mark.parametrize("minimum", [0, None])
def test_missing_or_zero_minimum_of_a_pod_group_is_one(minimum: object) -> None:
    assert a_group(minimum).min_member == 1


def test_the_objective_of_the_pods_wins_over_the_objective_of_the_pod_group() -> None:
    registry = a_registry(a_pod("a", options=(("objective", "binpack"),)))
    registry.observe_group(a_group(annotations={"allaboard.dev/objective": "spread"}))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.objective is Objective.BINPACK


def test_the_objective_of_the_pod_group_wins_over_the_default() -> None:
    registry = a_registry(a_pod("a"))
    registry.observe_group(a_group(annotations={"allaboard.dev/objective": "spread"}))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.objective is Objective.SPREAD


def test_members_that_want_different_objectives_hold_the_gang() -> None:
    pods = (a_pod("a", options=(("objective", "binpack"),)), a_pod("b", options=(("objective", "spread"),)))
    gang = a_registry(*pods).gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.reason == "ObjectiveMismatch"


@pytest.mark.parametrize(("stated", "undo"), [((), None), ((("undo", "suspend"),), Undo.SUSPEND)])
def test_jobs_of_a_gang_may_be_suspended_only_if_the_gang_states_so(stated: tuple[tuple[str, str], ...], undo: Undo | None) -> None:
    gang = a_registry(a_pod("a", options=stated)).gang(KEY)
    assert gang is not None
    assert gang.hold is None
    assert gang.undo is undo


def test_stamp_of_an_earlier_bind_does_not_hold_the_gang() -> None:
    gang = a_registry(a_pod("a", options=(("transaction", "t1/3"),))).gang(KEY)
    assert gang is not None
    assert gang.hold is None


def test_an_unknown_option_of_the_pod_group_holds_the_gang() -> None:
    registry = a_registry(a_pod("a"))
    registry.observe_group(a_group(annotations={"allaboard.dev/speed": "high"}))
    gang = registry.gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.field == "metadata.annotations[allaboard.dev/speed]"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("recreate", "yes", 'must be "true" or "false", not \'yes\''),
        ("recreate", "True", 'must be "true" or "false", not \'True\''),
        ("role", "a b", "must be a word, such as worker, not 'a b'"),
    ],
)
def test_invalid_value_of_a_pods_option_holds_the_gang(name: str, value: str, problem: str) -> None:
    gang = a_registry(a_pod("a", options=((name, value),))).gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.message == f"pod a: annotation allaboard.dev/{name}: {problem}"


@pytest.mark.parametrize("name", ["recreate", "role"])
def test_empty_option_of_a_pod_is_ignored(name: str) -> None:
    gang = a_registry(a_pod("a", options=((name, ""),))).gang(KEY)
    assert gang is not None
    assert gang.hold is None


@pytest.mark.parametrize("name", ["recreate", "role"])
def test_option_that_only_pods_can_have_holds_the_gang_if_it_is_on_the_pod_group(name: str) -> None:
    registry = a_registry(a_pod("a"))
    registry.observe_group(a_group(annotations={f"allaboard.dev/{name}": "true"}))
    gang = registry.gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.message.endswith(f"annotation allaboard.dev/{name}: only a pod can have it")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "node-1"]), st.sampled_from(["2", "3"]), st.booleans()), max_size=12)
)
def test_gang_after_many_events_equals_the_gang_of_a_new_registry(changes: list[tuple[str, str, str, bool]]) -> None:
    registry, pods, group = a_registry(), dict[str, Pod](), None
    for number, (name, node, minimum, leaves) in enumerate(changes, start=1):
        old = pods.get(name)
        if leaves and old is None:
            group = None if group else a_group(int(minimum), resourceVersion=str(number))
            registry.observe_group(group) if group else registry.forget_group(KEY, number)
        elif leaves:
            registry.observe_pod(pods.pop(name), None)
        else:
            pods[name] = a_pod(name, minimum, node_name=node, resource_version=str(number))
            registry.observe_pod(old, pods[name])
        fresh = a_registry(*pods.values())
        if group:
            fresh.observe_group(group)
        assert registry.gang(KEY) == fresh.gang(KEY)


def worker(name: str, role: str, **changes: object) -> Pod:
    pod = a_pod(name, "4", **changes)
    return replace(pod, labels=(*pod.labels, ("training.kubeflow.org/replica-type", role)))


MINIMUMS = (("min-members", "ps=1,worker=3"),)


@pytest.mark.parametrize(("bound", "missing"), [("", 4), ("a", 3), ("bcd", 1), ("bcde", 1), ("abcd", 0), ("abc", 1), ("abcde", 0)])
def test_each_role_has_its_own_minimum_besides_the_gangs_minimum(bound: str, missing: int) -> None:
    roles = {"a": "ps", "b": "worker", "c": "worker", "d": "worker", "e": "worker"}
    pods = [worker(name, role, options=MINIMUMS, node_name="n" if name in bound else "") for name, role in roles.items()]
    gang = a_registry(*pods).gang(KEY)
    assert gang is not None
    assert gang.hold is None
    assert gang.missing == missing
    assert gang.is_whole is (missing == 0)
    assert gang.missing_once_bound({pod.uid for pod in gang.candidates}) == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("min-members", "ps"),
        ("min-members", "ps=1,ps=2"),
        ("min-members", "ps=-1"),
        ("min-members", "=1"),
        ("min-members", "ps=1;worker=2"),
        ("min-members", ",".join(f"role-{number}=1" for number in range(65))),
        ("topology", "no such key"),
        ("topology", ""),
        ("required-topology", "a/b/c"),
    ],
)
def test_malformed_option_of_a_pod_or_pod_group_holds_the_gang(option: str, value: str) -> None:
    of_pods = a_registry(a_pod("a", options=((option, value),))).gang(KEY)
    registry = a_registry(a_pod("a", labels=(("scheduling.x-k8s.io/pod-group", "train"),)))
    registry.observe_group(a_group(1, annotations={f"allaboard.dev/{option}": value}))
    of_the_group = registry.gang(KEY)
    for gang in (of_pods, of_the_group):
        assert gang is not None
        assert gang.hold is not None
        assert (gang.hold.reason, option in gang.hold.message) == ("InvalidAnnotation", True)


def test_the_topology_of_the_gang_wins_over_the_default() -> None:
    registry = GangRegistry(["allaboard"], defaults=GangDefaults(topology="zone"))
    registry.observe_pod(None, a_pod("a"))
    assert registry.gang(KEY).topology == "zone"  # type: ignore[union-attr]  # it is there
    registry.observe_pod(a_pod("a"), a_pod("a", options=(("topology", "rack"),)))
    assert registry.gang(KEY).topology == "rack"  # type: ignore[union-attr]


def test_gang_may_choose_an_allowed_strategy_and_is_held_if_it_chooses_another() -> None:
    registry = GangRegistry(["allaboard"], defaults=GangDefaults(strategy="learned", strategies=("exact",)))
    for stated, strategy in ((None, "learned"), ("exact", "exact"), ("learned", "learned")):
        registry.observe_pod(None, a_pod("a", options=(("strategy", stated),) if stated else ()))
        gang = registry.gang(KEY)
        assert gang is not None
        assert (gang.strategy, gang.hold) == (strategy, None)
        registry.observe_pod(a_pod("a"), None)
    registry.observe_pod(None, a_pod("a", options=(("strategy", "genetic"),)))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.hold is not None
    assert (
        gang.hold.message
        == "pod a: annotation allaboard.dev/strategy: 'genetic' is not one of learned, exact, which the setting strategies lists"
    )


def test_required_topology_of_a_pod_applies_to_its_role_and_that_of_a_pod_group_to_all_members() -> None:
    together = (("required-topology", "rack"),)
    pods = [worker("a", "ps"), worker("b", "worker", options=together), worker("c", "worker", options=together)]
    gang = a_registry(*pods).gang(KEY)
    assert gang is not None
    assert gang.hold is None
    assert {key: [pod.name for pod in members] for key, members in gang.together.items()} == {("rack", "worker"): ["b", "c"]}
    registry = a_registry(a_pod("a", labels=(("scheduling.x-k8s.io/pod-group", "train"),)))
    registry.observe_group(a_group(1, annotations={"allaboard.dev/required-topology": "zone"}))
    whole = registry.gang(KEY)
    assert whole is not None
    assert list(whole.together) == [("zone", "")]


def test_levels_and_segments_of_a_pod_apply_to_its_role_and_those_of_a_pod_group_to_all_members() -> None:
    asked = (("topology", "required=block, preferred=rack, segment=2@rack"),)
    gang = a_registry(worker("a", "ps"), *(worker(name, "worker", options=asked) for name in "bcd")).gang(KEY)
    assert gang is not None
    assert (gang.hold, gang.topology, gang.required_topology, gang.segment) == (None, "rack", "", (0, ""))
    assert list(gang.together) == [("block", "worker")]
    assert {key: [len(each) for each in segments] for key, segments in gang.segments.items()} == {(2, "rack", "worker"): [2, 1]}
    registry = a_registry(a_pod("a", labels=(("scheduling.x-k8s.io/pod-group", "train"),)))
    registry.observe_group(a_group(1, annotations={"allaboard.dev/topology": "required=zone, segment=4@rack"}))
    whole = registry.gang(KEY)
    assert whole is not None
    assert (list(whole.together), list(whole.segments)) == ([("zone", "")], [(4, "rack", "")])


def test_the_last_segment_is_together_even_if_it_is_smaller_and_ranks_have_several_digits() -> None:
    asked = (("topology", "segment=4@rack"),)
    gang = a_registry(*(worker(f"w-{rank}", "worker", options=asked) for rank in range(8, 14))).gang(KEY)
    assert gang is not None
    (segments,) = gang.segments.values()
    assert [[pod.name for pod in segment] for segment in segments] == [["w-8", "w-9", "w-10", "w-11"], ["w-12", "w-13"]]
    whole, rest = rules_of(gang).couplings
    assert whole.members == tuple(f"uid-w-{rank}" for rank in (8, 9, 10, 11))
    assert rest.members == {"uid-w-12", "uid-w-13"}


def test_gang_whose_pods_prefer_different_topologies_is_held() -> None:
    gang = a_registry(*(worker(name, "worker", options=(("topology", level),)) for name, level in (("a", "rack"), ("b", "zone")))).gang(KEY)
    assert gang is not None
    assert gang.hold is not None
    assert gang.hold.message == "Annotations allaboard.dev/topology do not match: pod b says zone, pod a says rack"


def test_gang_waits_for_the_pods_of_a_role_that_has_none() -> None:
    gang = a_registry(*(worker(name, "worker", options=(("min-members", "wroker=2,worker=1"),)) for name in "abcdef")).gang(KEY)
    assert gang is not None
    assert gang.awaits_pods
    assert gang.roles_without_pods == {"wroker": 2}


@pytest.mark.parametrize(("stamped", "missing"), [(4, 1), (2, 0)])
def test_minimums_of_roles_count_as_stamped_only_if_the_stamped_minimum_covers_them(stamped: int, missing: int) -> None:
    roles = {"b": "worker", "c": "worker", "d": "worker", "a": "ps"}
    pods = [
        worker(name, role, options=MINIMUMS, node_name="" if name == "a" else "n", stamped_min_member=0 if name == "a" else stamped)
        for name, role in roles.items()
    ]
    gang = a_registry(*pods).gang(KEY)
    assert gang is not None
    assert (gang.required, gang.is_partially_bound, gang.missing_of_stamped) == (4, True, missing)


def test_a_gang_with_too_many_living_members_is_held_and_keeps_all_members() -> None:
    gang = a_registry(*(a_pod(f"m{number}") for number in range(MEMBERS.most + 1))).gang(KEY)
    assert gang is not None
    assert gang.hold is not None
    assert (gang.hold.reason, gang.hold.field) == (OVER_LIMIT, "members")
    assert (len(gang.members), gang.min_member) == (MEMBERS.most + 1, 3)


def test_only_the_youngest_ended_members_are_kept_up_to_a_limit() -> None:
    ended = [a_pod(f"e{number}", created=float(number), phase="Succeeded") for number in range(ENDED.most + 3)]
    gang = a_registry(*ended, a_pod("a"), a_pod("b", created=9e9)).gang(KEY)
    assert gang is not None
    assert gang.hold is None
    assert [pod.name for pod in gang.alive] == ["a", "b"]
    assert {pod.name for pod in gang.all_pods} == {"a", "b"} | {f"e{number}" for number in range(3, ENDED.most + 3)}


def test_number_of_pod_groups_is_limited_in_each_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.gangs.registry.POD_GROUPS", Limit("podgroups", 2, "PodGroups of one namespace"))
    registry, reported = a_registry(), list[str]()
    registry.on_excess = reported.append
    for name in "abc":
        registry.observe_group(a_group(name=name))
    registry.observe_group(a_group(name="a", namespace="other"))
    assert [str(key) for key in registry.groups()] == ["default/a", "default/b", "other/a"]
    assert reported == ["podgroups"]
    registry.forget_group(GangKey("default", "a"), 0)
    registry.observe_group(a_group(name="c"))
    assert GangKey("default", "c") in registry.groups()


def test_pod_group_with_too_long_options_holds_its_gang() -> None:
    registry, reported = a_registry(*(a_pod(name) for name in "abc")), list[str]()
    registry.on_excess = reported.append
    group = a_group(annotations={"allaboard.dev/min-members": "x" * 9000, "allaboard.dev/" + "y" * 9000: "z" * 9000})
    registry.observe_group(group)
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.hold is not None
    assert gang.hold.reason == "InvalidPodGroup"
    assert reported == ["option_characters"]
    assert sum(len(name) + len(value) for name, value in group.options.items()) < 300


def test_a_status_that_is_too_large_or_too_deep_counts_as_empty() -> None:
    raw = {"metadata": {"name": "train", "uid": "pg"}, "spec": {}, "status": {"message": "x"}}
    assert pod_group_from(raw).status == {"message": "x"}
    assert pod_group_from({**raw, "status": {"message": "x" * 100_000}}).status == {}
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    assert pod_group_from({**raw, "status": deep}).status == {}


def test_no_more_owner_references_are_written_to_pod_groups_than_are_read_from_pod_groups() -> None:
    members = [a_pod(f"m{number:04d}", owner=None) for number in range(1200)]
    references = owner_references(members)
    raw = {"metadata": {"name": "train", "labels": {MANAGED_BY: OURS}, "ownerReferences": owner_references(members)}}
    assert len(references) == 1000
    assert {str(reference["uid"]) for reference in references} <= pod_group_from(raw).owner_uids


_STATES = st.fixed_dictionaries(
    {
        "created": st.sampled_from([0.0, 1.0, 2.0]),
        "priority": st.sampled_from([0, 5]),
        "phase": st.sampled_from(["Pending", "Pending", "Running", "Succeeded"]),
        "node_name": st.sampled_from(["", "", "", "n1"]),
        "is_terminating": st.sampled_from([False, False, False, True]),
        "uid": st.sampled_from(["first", "second"]),
    }
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | _STATES, st.booleans()), max_size=30), st.integers(0, 30))
def test_outline_of_a_gang_has_the_values_that_the_complete_gang_has(
    events: list[tuple[str, dict[str, Any] | None, bool]], group_comes: int
) -> None:
    """Pods are created, changed, deleted, and recreated under their names. The outline is read after some of these events."""
    registry, pods = a_registry(), dict[str, Pod]()
    for number, (name, state, is_asked) in enumerate(events):
        if number == group_comes:
            registry.observe_group(a_group(creationTimestamp="1970-01-01T00:00:09Z"))
        new = None if state is None else a_pod(name, **{**state, "uid": f"{name}-{state['uid']}"})
        registry.observe_pod(pods.pop(name, None), new)
        if new is not None:
            pods[name] = new
        if not is_asked and number < len(events) - 1:
            continue
        outline, gang = registry.outline(KEY), registry.gang(KEY)
        if gang is None or not gang.alive:
            assert outline is None
        elif gang.bound:  # then the queue reads the gang and not the outline
            assert outline is not None
            assert (outline.created, outline.is_partially_bound) == (gang.created, True)
        elif gang.hold is None:
            assert outline == Outline(KEY, gang.priority, gang.created)


def test_the_outline_of_a_gang_is_found_without_reading_its_members_again() -> None:
    registry = a_registry(*(a_pod(f"m{each}", created=float(each)) for each in range(50)))
    registry.outline(KEY)
    registry._members[KEY] = {}  # no member is read again
    registry.observe_pod(None, a_pod("younger", created=99.0))
    assert registry.outline(KEY) == Outline(KEY, 0, 0.0)
    registry.observe_pod(None, a_pod("older", created=-1.0))
    assert registry.outline(KEY) == Outline(KEY, 0, -1.0)
    assert not registry._assembled


@pytest.mark.parametrize("different", [0, 7])
def test_message_names_the_first_member_whose_option_differs_from_other_members(different: int) -> None:
    def stating(each: int) -> Pod:
        objective = "spread" if each == different else "binpack"
        role = (("role", "worker"),) if each % 2 else ()
        return a_pod(f"m{each}", created=float(each), options=(("objective", objective), *role))

    gang = a_registry(*map(stating, range(20))).gang(KEY)
    assert gang is not None
    assert gang.hold is not None
    first, other = ("m0", "m1") if different == 0 else ("m0", "m7")
    assert f"pod {other} says" in gang.hold.message
    assert f"pod {first} says" in gang.hold.message


def test_late_deletion_does_not_remove_a_pod_group_that_was_created_again() -> None:
    registry = a_registry(a_pod("a"))
    registry.observe_group(a_group(resourceVersion="7"))
    registry.forget_group(KEY, 6)
    assert registry.group(KEY) is not None
    registry.forget_group(KEY, 7)
    assert registry.group(KEY) is None


def test_only_new_pods_without_a_node_count_as_arrivals() -> None:
    registry = a_registry(a_pod("a"), a_pod("b", node_name="n"))
    assert registry.arrivals == 1
    registry.observe_pod(a_pod("a"), a_pod("a", node_name="n"))
    assert registry.arrivals == 1


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"annotations": {"gang.scheduling.koordinator.sh/groups": '["default/train"]'}}, "metadata.annotations[{}groups]"),
        ({"annotations": {"gang.scheduling.koordinator.sh/match-policy": "only-waiting"}}, "metadata.annotations[{}match-policy]"),
        ({"labels": {"gang.scheduling.koordinator.sh/mode": "NonStrict"}}, "metadata.labels[{}mode]"),
    ],
)
def test_a_pod_group_that_asks_another_scheduler_for_more_than_a_gang_holds_its_gang(raw: dict[str, Any], field: str) -> None:
    registry = a_registry(a_pod("a"))
    registry.observe_group(a_group(**raw))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.hold is not None
    assert gang.hold.field == field.format("gang.scheduling.koordinator.sh/")
    assert "asks Koordinator for " in gang.hold.message


@pytest.mark.parametrize("name", SPEC_FIELDS)
def test_a_field_of_another_schedulers_pod_group_holds_the_gang(name: str) -> None:
    assert pod_group_from({"metadata": {"name": "g"}, "spec": {"minMember": 1, name: {"a": 1}}}).malformed.startswith(f"spec.{name}: asks ")
    assert not pod_group_from({"metadata": {"name": "g"}, "spec": {"minMember": 1, name: {}}}).malformed


@pytest.mark.parametrize("annotation", ["gang.scheduling.koordinator.sh/total-number", "scheduling.volcano.sh/group-name"])
def test_foreign_annotation_that_only_names_a_gang_is_ignored_on_a_pod_group(annotation: str) -> None:
    assert not a_group(annotations={annotation: "4"}).malformed


def test_gang_has_the_min_resources_of_its_pod_group_and_a_change_calls_listeners() -> None:
    registry, reported = a_registry(a_pod("a")), []
    registry.listen(reported.append)
    raw = {"metadata": {"name": "train", "namespace": "default", "uid": "pg"}, "spec": {"minMember": 3, "minResources": {"cpu": "1500m"}}}
    registry.observe_group(pod_group_from(raw))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.min_resources == (("cpu", 1500),)
    registry.observe_group(pod_group_from({**raw, "spec": {"minMember": 3}}))
    assert reported == [KEY, KEY]


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"cpu": "much"}, "spec.minResources[cpu]: 'much' is not a quantity"),
        ({"cpu": "-1"}, "spec.minResources[cpu]: '-1' is negative"),
        ({"x" * 300: "1"}, "spec.minResources: the name of a resource has more than 253 characters"),
        ({f"example.com/{number}": "1" for number in range(65)}, "spec.minResources: 65 resources of minResources are more than the 64"),
        ([], "spec.minResources: [] is not an object"),
    ],
)
def test_min_resources_that_cannot_be_understood_hold_the_gang(resources: object, problem: str) -> None:
    group = pod_group_from({"metadata": {"name": "g"}, "spec": {"minMember": 1, "minResources": resources}})
    assert group.malformed.startswith(problem)


WALLTIME = (("walltime", "1h"),)


@pytest.mark.parametrize(
    ("first", "second", "group", "job", "expected"),
    [
        ({}, {}, {}, 0.0, 0.0),
        ({"walltime": 60.0}, {"walltime": 90.0}, {}, 0.0, 90.0),
        ({"walltime": 60.0}, {}, {}, 0.0, 0.0),  # when the second member ends isn't known
        ({"walltime": 3600.0, "options": WALLTIME}, {}, {}, 0.0, 3600.0),
        ({}, {}, {"allaboard.dev/walltime": "30m"}, 60.0, 1800.0),
        ({"walltime": 60.0}, {"walltime": 90.0}, {"allaboard.dev/walltime": "30m"}, 0.0, 90.0),
        ({}, {}, {}, 60.0, 60.0),
        ({}, {"owner": None}, {}, 60.0, 0.0),
    ],
)
def test_walltime_of_a_gang_is_that_of_its_members_else_of_its_pod_group_else_of_its_jobs(
    first: dict[str, Any], second: dict[str, Any], group: dict[str, str], job: float, expected: float
) -> None:
    registry = a_registry(a_pod("a", "2", **first), a_pod("b", "2", **second))
    registry.observe_group(a_group(2, annotations=group))
    registry.observe_job(None, JobCounts("job-1", "job-1", 2, 2, 0, job))
    gang = registry.gang(KEY)
    assert gang is not None
    assert (gang.walltime, gang.hold) == (expected, None)


@pytest.mark.parametrize("is_of_pod", [True, False])
def test_gang_with_a_malformed_walltime_is_held(is_of_pod: bool) -> None:
    registry = a_registry(a_pod("a", "1", options=(("walltime", "soon"),) if is_of_pod else ()))
    registry.observe_group(a_group(1, annotations={} if is_of_pod else {"allaboard.dev/walltime": "soon"}))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.hold is not None
    assert gang.hold.message.startswith(
        f"{'pod a' if is_of_pod else 'podgroup default/train'}: annotation allaboard.dev/walltime: 'soon' is"
    )
