"""The members of gangs, and the gangs that are held."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gangs.podgroup import MANAGED_BY, OURS, PodGroup, owner_references, pod_group_from
from allaboard.gangs.registry import OVER_LIMIT, GangDefaults, GangRegistry
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.foreign_gang_labels import SPEC_FIELDS
from allaboard.model.gang import GangKey, Objective, Outline, Undo
from allaboard.model.limits import ENDED, MEMBERS, Limit
from allaboard.model.pod import Owner, Pod

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


def test_members_are_gathered_and_leave_when_their_pods_go() -> None:
    registry = a_registry(a_pod("a"), a_pod("b"))
    gang = registry.gang(KEY)
    assert gang is not None
    assert [pod.name for pod in gang.members] == ["a", "b"]
    registry.observe_pod(a_pod("a"), None)
    registry.observe_pod(a_pod("b"), None)
    assert registry.gang(KEY) is None


def test_a_gang_with_bound_members_is_listed_also_without_its_pod_group() -> None:
    alone = a_pod("alone", labels=(), node_name="n")
    registry = a_registry(a_pod("a", node_name="n"), a_pod("b"), alone)
    assert [gang.key for gang in registry.bound_gangs()] == [KEY]
    registry.observe_group(a_group())
    assert [gang.key for gang in registry.bound_gangs()] == [KEY]
    registry.observe_pod(a_pod("a", node_name="n"), None)
    assert registry.bound_gangs() == []


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


def test_pods_of_other_schedulers_and_namespaces_are_not_ours() -> None:
    registry = GangRegistry(["allaboard"], namespaces=["team"])
    registry.observe_pod(None, a_pod("a", scheduler_name="default-scheduler", namespace="team"))
    registry.observe_pod(None, a_pod("b"))
    assert list(registry.gangs()) == []


def test_a_change_that_does_not_matter_for_scheduling_calls_no_listener() -> None:
    registry = a_registry(a_pod("a"))
    expired: list[GangKey] = []
    registry.listen(expired.append)
    registry.observe_pod(a_pod("a"), a_pod("a", resource_version="2"))
    assert expired == []
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.members[0].resource_version == "2"


@pytest.mark.parametrize(
    "begun",
    [{"node_name": "node-1"}, {"phase": "Succeeded"}, {"is_terminating": True}, {"phase": "Failed", "node_name": "node-1"}],
    ids=["has a node", "has ended", "is going", "has failed on its node"],
)
def test_a_gang_has_begun_while_a_member_has_a_node_is_terminating_or_has_ended(begun: dict[str, Any]) -> None:
    registry, newcomer = a_registry(a_pod("a")), a_pod("c")
    assert not registry.has_begun(newcomer)
    registry.observe_pod(a_pod("a"), a_pod("a", **begun))
    assert registry.has_begun(newcomer)
    registry.observe_pod(a_pod("a", **begun), None)
    assert not registry.has_begun(newcomer)
    assert registry.has_begun(a_pod("d", scheduler_name="default-scheduler"))  # another scheduler's pod counts as begun


def test_a_label_pair_gang_needs_a_pod_group_object_until_there_is_one() -> None:
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
    ("odd_one", "reason"),
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
def test_a_member_that_cannot_be_trusted_holds_the_gang_and_is_named(odd_one: Pod, reason: str) -> None:
    gang = a_registry(a_pod("a"), odd_one).gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.reason == reason
    assert gang.hold.pod is not None
    assert gang.hold.pod.name == "b"


@pytest.mark.parametrize(("bound", "waiting", "expected"), [(0, 1000, 0), (1000, 0, 0), (7, 7, 7)])
def test_running_members_hold_no_newcomer_of_another_priority_and_neither_lends_the_other_its_own(
    bound: int, waiting: int, expected: int
) -> None:
    gang = a_registry(a_pod("a", node_name="n1", priority=bound), a_pod("b", priority=waiting)).gang(KEY)
    assert gang is not None
    assert gang.hold is None
    assert gang.priority == expected


def test_in_a_rollout_the_youngest_template_states_minimum_and_options() -> None:
    def serves(name: str, owner: str, minimum: str, objective: str, **parts: Any) -> Pod:
        return a_pod(name, minimum, options=(("objective", objective),), owner=Owner("apps/v1", "ReplicaSet", owner, owner), **parts)

    old = [serves(f"o{number}", "old", "4", "binpack", node_name="n1") for number in range(4)]
    new = serves("n", "new", "3", "spread", created=9.0)
    gang = a_registry(*old, new).gang(KEY)
    assert gang is not None
    assert (gang.hold, gang.min_member, gang.objective) == (None, 3, Objective.SPREAD)
    waiting = [replace(pod, node_name="") for pod in old]
    gang = a_registry(*waiting, new).gang(KEY)
    assert gang is not None
    assert (gang.hold, gang.min_member, gang.objective) == (None, 3, Objective.SPREAD)


def test_a_finished_member_that_disagrees_is_past_caring() -> None:
    gang = a_registry(a_pod("a"), a_pod("b", minimum="4", phase="Succeeded")).gang(KEY)
    assert gang is not None
    assert gang.hold is None


def test_a_missing_pod_group_is_reported_on_a_waiting_pod_and_not_on_a_running_one() -> None:
    labels = (("scheduling.x-k8s.io/pod-group", "train"),)
    there = [replace(a_pod(name, labels=labels), node_name="node-1", phase="Running", created=1.0) for name in ("a", "b")]
    gang = a_registry(*there, replace(a_pod("c", labels=labels), created=2.0)).gang(KEY)
    assert gang is not None and gang.hold is not None and gang.hold.pod is not None
    assert (gang.hold.reason, gang.hold.pod.name) == ("PodGroupNotFound", "c")


def test_a_pod_that_names_a_missing_pod_group_is_held_until_it_exists() -> None:
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
def test_a_minimum_of_zero_or_none_is_the_default(minimum: object) -> None:
    assert a_group(minimum).min_member == 1


def test_the_objective_of_the_pods_wins_over_the_pod_groups() -> None:
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
def test_jobs_are_suspended_only_for_gangs_that_say_so(stated: tuple[tuple[str, str], ...], undo: Undo | None) -> None:
    gang = a_registry(a_pod("a", options=stated)).gang(KEY)
    assert gang is not None
    assert gang.hold is None
    assert gang.undo is undo


def test_the_stamp_of_an_earlier_bind_is_no_mistake() -> None:
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
def test_an_option_of_pods_that_means_nothing_holds_the_gang(name: str, value: str, problem: str) -> None:
    gang = a_registry(a_pod("a", options=((name, value),))).gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.message == f"pod a: annotation allaboard.dev/{name}: {problem}"


@pytest.mark.parametrize("name", ["recreate", "role"])
def test_an_option_of_pods_that_says_nothing_is_as_good_as_none(name: str) -> None:
    gang = a_registry(a_pod("a", options=((name, ""),))).gang(KEY)
    assert gang is not None
    assert gang.hold is None


@pytest.mark.parametrize("name", ["recreate", "role"])
def test_an_option_of_pods_on_a_pod_group_holds_the_gang(name: str) -> None:
    registry = a_registry(a_pod("a"))
    registry.observe_group(a_group(annotations={f"allaboard.dev/{name}": "true"}))
    gang = registry.gang(KEY)
    assert gang is not None and gang.hold is not None
    assert gang.hold.message.endswith(f"annotation allaboard.dev/{name}: only a pod can have it")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "node-1"]), st.sampled_from(["2", "3"]), st.booleans()), max_size=12)
)
def test_a_gang_is_what_it_would_be_in_a_registry_made_anew(changes: list[tuple[str, str, str, bool]]) -> None:
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
        anew = a_registry(*pods.values())
        if group:
            anew.observe_group(group)
        assert registry.gang(KEY) == anew.gang(KEY)


def worker(name: str, role: str, **changes: object) -> Pod:
    pod = a_pod(name, "4", **changes)
    return replace(pod, labels=(*pod.labels, ("training.kubeflow.org/replica-type", role)))


MINIMUMS = (("min-members", "ps=1,worker=3"),)


@pytest.mark.parametrize(("bound", "missing"), [("", 4), ("a", 3), ("bcd", 1), ("bcde", 1), ("abcd", 0), ("abc", 1), ("abcde", 0)])
def test_each_role_has_its_own_minimum_beside_that_of_the_gang(bound: str, missing: int) -> None:
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
def test_an_option_that_makes_no_sense_holds_the_gang(option: str, value: str) -> None:
    on_a_pod = a_registry(a_pod("a", options=((option, value),))).gang(KEY)
    registry = a_registry(a_pod("a", labels=(("scheduling.x-k8s.io/pod-group", "train"),)))
    registry.observe_group(a_group(1, annotations={f"allaboard.dev/{option}": value}))
    on_the_group = registry.gang(KEY)
    for gang in (on_a_pod, on_the_group):
        assert gang is not None
        assert gang.hold is not None
        assert (gang.hold.reason, option in gang.hold.message) == ("InvalidAnnotation", True)


def test_the_topology_of_the_gang_wins_over_the_default() -> None:
    registry = GangRegistry(["allaboard"], defaults=GangDefaults(topology="zone"))
    registry.observe_pod(None, a_pod("a"))
    assert registry.gang(KEY).topology == "zone"  # type: ignore[union-attr]  # it is there
    registry.observe_pod(a_pod("a"), a_pod("a", options=(("topology", "rack"),)))
    assert registry.gang(KEY).topology == "rack"  # type: ignore[union-attr]


def test_the_strategy_of_the_gang_is_one_that_is_allowed_or_the_default_that_holds_for_all() -> None:
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


def test_roles_with_required_topologies_of_their_own_are_told_apart() -> None:
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


def test_a_role_without_pods_is_waited_for() -> None:
    gang = a_registry(*(worker(name, "worker", options=(("min-members", "wroker=2,worker=1"),)) for name in "abcdef")).gang(KEY)
    assert gang is not None
    assert gang.awaits_pods
    assert gang.roles_without_pods == {"wroker": 2}


@pytest.mark.parametrize(("stamped", "missing"), [(4, 1), (2, 0)])
def test_a_stamped_minimum_includes_the_minimums_of_roles(stamped: int, missing: int) -> None:
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


def test_of_members_that_have_ended_the_youngest_are_counted() -> None:
    ended = [a_pod(f"e{number}", created=float(number), phase="Succeeded") for number in range(ENDED.most + 3)]
    gang = a_registry(*ended, a_pod("a"), a_pod("b", created=9e9)).gang(KEY)
    assert gang is not None
    assert gang.hold is None
    assert [pod.name for pod in gang.alive] == ["a", "b"]
    assert {pod.name for pod in gang.all_pods} == {"a", "b"} | {f"e{number}" for number in range(3, ENDED.most + 3)}


def test_a_namespace_has_so_many_pod_groups_and_others_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.gangs.registry.POD_GROUPS", Limit("podgroups", 2, "PodGroups of one namespace"))
    registry, told = a_registry(), list[str]()
    registry.on_excess = told.append
    for name in "abc":
        registry.observe_group(a_group(name=name))
    registry.observe_group(a_group(name="a", namespace="other"))
    assert [str(key) for key in registry.groups()] == ["default/a", "default/b", "other/a"]
    assert told == ["podgroups"]
    registry.forget_group(GangKey("default", "a"), 0)
    registry.observe_group(a_group(name="c"))
    assert GangKey("default", "c") in registry.groups()


def test_a_pod_group_with_endless_options_holds_its_gang() -> None:
    registry, told = a_registry(*(a_pod(name) for name in "abc")), list[str]()
    registry.on_excess = told.append
    group = a_group(annotations={"allaboard.dev/min-members": "x" * 9000, "allaboard.dev/" + "y" * 9000: "z" * 9000})
    registry.observe_group(group)
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.hold is not None
    assert gang.hold.reason == "InvalidPodGroup"
    assert told == ["option_characters"]
    assert sum(len(name) + len(value) for name, value in group.options.items()) < 300


def test_a_status_that_is_too_large_or_too_deep_counts_as_empty() -> None:
    raw = {"metadata": {"name": "train", "uid": "pg"}, "spec": {}, "status": {"message": "x"}}
    assert pod_group_from(raw).status == {"message": "x"}
    assert pod_group_from({**raw, "status": {"message": "x" * 100_000}}).status == {}
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    assert pod_group_from({**raw, "status": deep}).status == {}


def test_owners_of_a_pod_group_are_as_many_as_are_read_again() -> None:
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
        "uid": st.sampled_from(["first", "anew"]),
    }
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | _STATES, st.booleans()), max_size=30), st.integers(0, 30))
def test_the_outline_of_a_gang_says_what_the_gang_does(events: list[tuple[str, dict[str, Any] | None, bool]], group_comes: int) -> None:
    """Pods come, change, go and are replaced under their names, and the outline is asked for now and then."""
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
        elif gang.bound:  # then the whole gang is looked at
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
def test_the_first_member_that_disagrees_is_named_however_many_state_the_same(different: int) -> None:
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


def test_a_late_deletion_does_not_remove_a_pod_group_that_was_created_since() -> None:
    registry = a_registry(a_pod("a"))
    registry.observe_group(a_group(resourceVersion="7"))
    registry.forget_group(KEY, 6)
    assert registry.group(KEY) is not None
    registry.forget_group(KEY, 7)
    assert registry.group(KEY) is None


def test_only_pods_that_come_without_a_node_are_arrivals() -> None:
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
def test_a_demand_on_another_scheduler_holds_the_gang_of_its_pod_group(raw: dict[str, Any], field: str) -> None:
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
def test_a_mark_that_only_names_a_gang_means_nothing_on_its_pod_group(annotation: str) -> None:
    assert not a_group(annotations={annotation: "4"}).malformed


def test_a_pod_groups_min_resources_are_its_gangs_and_a_change_calls_listeners() -> None:
    registry, told = a_registry(a_pod("a")), []
    registry.listen(told.append)
    raw = {"metadata": {"name": "train", "namespace": "default", "uid": "pg"}, "spec": {"minMember": 3, "minResources": {"cpu": "1500m"}}}
    registry.observe_group(pod_group_from(raw))
    gang = registry.gang(KEY)
    assert gang is not None
    assert gang.min_resources == (("cpu", 1500),)
    registry.observe_group(pod_group_from({**raw, "spec": {"minMember": 3}}))
    assert told == [KEY, KEY]


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
