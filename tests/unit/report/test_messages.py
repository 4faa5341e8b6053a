"""Tests the messages on gangs and pods, which people grep for."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from allaboard.binding.outcomes import Assignment, BindReply, Committed, Result
from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective, Undo
from allaboard.model.pod import Owner, Pod
from allaboard.model.reasons import Cause, Code, Kind, Reason
from allaboard.placement import Explanation, Plan, RoleExplanation, SearchReport, Violation, Wrong
from allaboard.placement.remedies.remedies import More, MoreNodes, Remedies
from allaboard.report import messages, reason_words


def a_pod(name: str) -> Pod:
    return Pod("ns", name, f"uid-{name}", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec((("pods", 1),)))


def a_gang(*names: str, minimum: int, kind: str = "PodGroup") -> Gang:
    return Gang(GangKey("ns", "g", kind), minimum, tuple(map(a_pod, names)), 0, 0.0, Objective.BINPACK, 60)


def a_plan(*roles: RoleExplanation, placeable: int, minimum: int, feasible: bool | None = False) -> Plan:
    explanation = Explanation(3, minimum, placeable, roles, None)
    unplaced = tuple(uid for role in roles if role.unplaced for uid in role.pods)
    return Plan(feasible, (), unplaced, explanation, SearchReport(0, 0, 0, "bound", (), "x"))


WORKERS = RoleExplanation(("uid-w0", "uid-w1"), unplaced=2, most=0, reasons=((Reason(Kind.INSUFFICIENT, "nvidia.com/gpu"), 3),))
SERVER = RoleExplanation(("uid-ps",), unplaced=0, most=1, reasons=())


def test_reasons_are_sorted_as_text_as_in_kube_scheduler() -> None:
    reasons = ((Reason(Kind.INSUFFICIENT, "cpu"), 2), (Reason(Kind.INSUFFICIENT, "pods"), 10))
    assert messages.fit_error(12, reasons) == "0/12 nodes are available: 10 Too many pods, 2 Insufficient cpu."


def test_cluster_without_nodes_is_reported_in_kube_schedulers_words() -> None:
    assert messages.fit_error(0, {}) == "no nodes available to schedule pods"


def test_refusal_of_a_gang_counts_members_and_names_the_pod_that_does_not_fit() -> None:
    gang, plan = a_gang("ps", "w0", "w1", minimum=3), a_plan(SERVER, WORKERS, placeable=1, minimum=3)
    assert messages.refusal(gang, plan) == (
        "podgroup ns/g: 1 of 3 members placeable; pod w0: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    )


def test_message_of_a_member_that_fits_names_a_member_that_does_not_fit() -> None:
    gang, plan = a_gang("ps", "w0", "w1", minimum=3), a_plan(SERVER, WORKERS, placeable=1, minimum=3)
    assert "pod w0:" in messages.pod_refusals(gang, plan)["uid-ps"]
    assert "Insufficient nvidia.com/gpu" in messages.pod_refusals(gang, plan)["uid-w1"]


class CountingTuple(tuple[Pod, ...]):
    """Members that count how many of them were iterated over."""

    visits = 0

    def __iter__(self) -> Iterator[Pod]:
        for pod in super().__iter__():
            self.visits += 1
            yield pod


@pytest.mark.parametrize("of_a_role", [1, 4, 10_000])
@pytest.mark.parametrize("unplaced", [0, 1])
def test_messages_of_a_gang_take_time_in_proportion_to_its_members(of_a_role: int, unplaced: int) -> None:
    def visits_per_member(number: int) -> int:
        members = CountingTuple(a_pod(f"w{each}") for each in range(number))
        uids = [f"uid-w{each}" for each in range(number)]
        kinds = [tuple(uids[first : first + of_a_role]) for first in range(0, number, of_a_role)]
        reasons = ((Reason(Kind.INSUFFICIENT, "cpu"), 3),)
        roles = [RoleExplanation(kind, unplaced if position else 1, most=0, reasons=reasons) for position, kind in enumerate(kinds)]
        refusals = messages.pod_refusals(
            replace(a_gang(minimum=number), members=members), a_plan(*roles, placeable=0, minimum=number, feasible=None)
        )
        assert len(refusals) == number
        return members.visits // number

    assert visits_per_member(16) == visits_per_member(400)


def test_message_names_a_role_that_fits_on_no_node_rather_than_a_role_that_lacks_capacity() -> None:
    crowded = RoleExplanation(("uid-a", "uid-b", "uid-c"), unplaced=1, most=2, reasons=((Reason(Kind.INSUFFICIENT, "cpu"), 3),))
    gang, plan = a_gang("a", "b", "c", "w0", "w1", minimum=5), a_plan(crowded, WORKERS, placeable=2, minimum=5)
    assert "pod w0:" in messages.refusal(gang, plan)


def test_message_names_a_member_too_large_for_every_node_rather_than_a_member_that_lacks_capacity_now() -> None:
    crowded = RoleExplanation(("uid-a", "uid-b"), unplaced=1, most=1, reasons=((Reason(Kind.INSUFFICIENT, "cpu"), 3),))
    gang, plan = a_gang("a", "b", "w0", "w1", minimum=4), a_plan(WORKERS, crowded, placeable=1, minimum=4)
    assert "pod w0:" in messages.refusal(gang, plan, Cause(Code.NEVER_FITS))
    assert "pod a:" in messages.refusal(gang, plan, Cause(Code.NEVER_FITS, "gpu", 64, 4, member="uid-b"))


def test_message_does_not_name_a_role_that_the_minimum_does_not_need() -> None:
    crowded = RoleExplanation(("uid-a", "uid-b", "uid-c"), unplaced=1, most=2, reasons=((Reason(Kind.INSUFFICIENT, "cpu"), 3),))
    gang = a_gang("a", "b", "c", "w0", "w1", minimum=3)
    plan = a_plan(crowded, replace(WORKERS, is_spare=True), placeable=2, minimum=3)
    assert "pod a:" in messages.refusal(gang, plan)


def test_refusal_of_a_single_pod_has_only_kube_schedulers_words() -> None:
    gang, plan = a_gang("w0", minimum=1, kind="Pod"), a_plan(WORKERS, placeable=0, minimum=1)
    assert messages.refusal(gang, plan) == "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def test_shortage_over_all_nodes_is_reported_with_amounts() -> None:
    gang = a_gang("w0", "w1", minimum=2)
    plan = a_plan(WORKERS, placeable=0, minimum=2)
    assert "needs 9 cpu where 2500m are free" in messages.refusal(gang, plan, Cause(Code.INSUFFICIENT, "cpu", 9000, 2500))


@pytest.mark.parametrize(
    ("why", "short"),
    [
        (Cause(Code.INSUFFICIENT, "gpu", 16, 12), "needs 16 gpu where 12 are free"),
        (Cause(Code.FRAGMENTED, "gpu", 8, 12), "needs 8 gpu; 12 are free, but fragmented"),
        (Cause(Code.NEVER_FITS, "gpu", 64, 4, member="uid-w0"), "a member asks for 64 gpu; no node it may use has more than 4"),
        (Cause(Code.NEVER_FITS, "gpu", 64, 40), "needs 64 gpu; the nodes it may use have 40 in all"),
        (Cause(Code.NEVER_FITS), "too large for the nodes it may use, even when they are empty"),
        (
            Cause(Code.NEVER_FITS, rule=Reason(Kind.TOPOLOGY, "topology.kubernetes.io/rack")),
            "no topology.kubernetes.io/rack fits all members that must share one, even empty",
        ),
        (Cause(Code.NEVER_FITS, rule=Reason(Kind.PORTS)), "doesn't fit on empty nodes either, because of its host ports"),
        (Cause(Code.CONSTRAINTS, rule=Reason(Kind.PORTS)), "would fit without its host ports"),
        (Cause(Code.CONSTRAINTS, rule=Reason(Kind.TOPOLOGY, "rack")), "would fit without the rule that members share one rack"),
    ],
)
def test_each_cause_has_a_short_form_of_at_most_80_characters(why: Cause, short: str) -> None:
    gang, plan = a_gang("w0", "w1", minimum=2), a_plan(WORKERS, placeable=0, minimum=2)
    refusal = messages.refused(gang, plan, why)
    assert (refusal.code, refusal.short) == (why.code, short)
    assert short in refusal.message
    assert len(short) <= 80


def an_assignment(name: str) -> Assignment:
    return Assignment(a_pod(name), "n1")


def test_message_names_all_pods_whose_binds_fail_for_one_reason_in_one_clause() -> None:
    denied = {name: BindReply(Result.REFUSED, f'pods "{name}" is forbidden: exceeded quota') for name in ("a", "b", "c", "d", "e")}
    failed = tuple((an_assignment(name), reply) for name, reply in denied.items())
    other = (an_assignment("x"), BindReply(Result.UNANSWERED, "no answer"))
    text = messages.not_bound(Committed((), (*failed, other), missing=6))
    assert text == 'pods a, b, c and 2 more: pods "a" is forbidden: exceeded quota; pod x: no answer'


def test_message_of_a_member_that_was_not_bound_names_the_node_once() -> None:
    reply = BindReply(Result.REFUSED, violation=Violation(Wrong.PORT, "ns/a", "n1", subject="80"))
    assert messages.member_not_bound(an_assignment("a"), reply) == "can't be bound to n1: host port 80 is taken"


def test_reason_that_excludes_most_nodes_is_reported_if_no_node_admits_the_gang() -> None:
    kept = RoleExplanation(("w0",), unplaced=1, most=0, reasons=((Reason(Kind.AFFINITY), 2), (Reason(Kind.UNSCHEDULABLE), 1)))
    refusal = messages.refused(a_gang("w0", "w1", minimum=2), a_plan(kept, placeable=0, minimum=2), Cause(Code.CONSTRAINTS))
    assert refusal.short == "2 of 3 node(s) didn't match Pod's node affinity/selector"


def test_refusal_without_proof_says_that_no_placement_was_found() -> None:
    gang, plan = a_gang("w0", "w1", minimum=2), a_plan(WORKERS, placeable=1, minimum=2, feasible=None)
    assert "no placement found" in messages.refusal(gang, plan)


SELECTED = SchedulingSpec((("pods", 1),), node_selector=(("pool", "train"),))
IN_ZONES = NodeSelectorTerm((Requirement("zone", "In", ("a", "b")), Requirement("spot", "DoesNotExist")))
GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("remedies", "expected"),
    [
        (Remedies(), ""),
        (
            Remedies(More(GPU, 2, (("n1", 1), ("n2", 1)), "uid-w0", is_least=True)),
            "Would fit with 2 more nvidia.com/gpu on nodes matching pool=train (1 on n1, 1 on n2).",
        ),
        (
            Remedies(More("cpu", 8000, tuple((f"n{number}", 2000) for number in range(4)), "uid-w0", is_least=True)),
            "Would fit with 8 more cpu on nodes matching pool=train (on 4 of them).",
        ),
        (Remedies(More("memory", 2**30, (("n1", 2**30),), "uid-w1", is_least=True)), "Would fit with 1Gi more memory (1Gi on n1)."),
        (
            Remedies(More(GPU, 2, (("n1", 1), ("n2", 1)), "uid-w0", is_least=True, domain="rack=b")),
            "Would fit with 2 more nvidia.com/gpu on nodes matching pool=train,rack=b (1 on n1, 1 on n2).",
        ),
        (Remedies(nodes=MoreNodes(2, "n1", "rack=b")), "Would fit with 2 more nodes like n1 in rack=b."),
        (Remedies(nodes=MoreNodes(1, "n1")), "Would fit with 1 more node like n1."),
        (Remedies(nodes=MoreNodes(3, "n1"), blocker="ns/b"), "Would fit with 3 more nodes like n1, or if gang b (priority 0) left."),
        (Remedies(blocker="ns/b"), "Would fit if gang b (priority 0) left."),
    ],
)
def test_advice_is_one_sentence(remedies: Remedies, expected: str) -> None:
    gang = a_gang("w0", "w1", minimum=2)
    gang = replace(gang, members=(replace(gang.members[0], spec=SELECTED), gang.members[1]))
    blocker = replace(gang, key=GangKey("ns", "b")) if remedies.blocker else None
    assert messages.advice(gang, remedies, blocker) == expected
    assert messages.with_advice("0/3 nodes are available: 3 Insufficient cpu.", expected).startswith("0/3 nodes")


def test_advice_does_not_name_a_gang_of_another_namespace() -> None:
    gang = a_gang("w0", minimum=1)
    advice = messages.advice(gang, Remedies(blocker="secret/project"), replace(gang, key=GangKey("secret", "project"), priority=5))
    assert advice == "Would fit if a gang of another namespace (priority 5) left."


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SchedulingSpec(()), ""),
        (replace(SELECTED, affinity=(IN_ZONES,)), "pool=train,zone in (a, b),!spot"),
        (
            replace(SELECTED, node_selector=(), affinity=(IN_ZONES, NodeSelectorTerm((Requirement("gen", "Gt", ("3",)),)))),
            "zone in (a, b),!spot or gen>3",
        ),
    ],
)
def test_nodes_that_a_spec_selects_are_written_as_a_selector(spec: SchedulingSpec, expected: str) -> None:
    assert messages.selector_text(spec) == expected


def test_message_counts_the_missing_members() -> None:
    gang = a_gang("a", "b", minimum=3)
    assert messages.members_missing(gang) == "podgroup ns/g: waiting for members: 2 of 3 exist"
    beside = replace(gang, others=gang.members)
    assert messages.members_missing(beside) == "podgroup ns/g: waiting for members: 2 of 3 exist in this run, and 2 of other runs"
    assert messages.members_missing(gang, was_whole=True) == messages.members_missing(gang), (
        "without bound members the next run has begun, and was not scaled down"
    )
    running = replace(gang, members=tuple(replace(pod, node_name="n") for pod in gang.members))
    assert messages.members_missing(running, was_whole=True).endswith(
        "2 of 3 exist; the gang was whole before: lower minMember if it was scaled down"
    )


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 5000, "日本" * 2000])
def test_event_note_is_cut_to_the_1024_bytes_of_an_event(text: str) -> None:
    note = messages.event_note(text)
    assert len(note.encode()) <= 1024
    assert note.endswith(" ...")


def test_short_event_note_is_not_cut() -> None:
    assert messages.event_note("short") == "short"


def test_event_note_with_line_ends_is_put_on_one_line() -> None:
    assert messages.event_note("denied\nall is well") == "denied\\nall is well"


@pytest.mark.parametrize(
    ("undo", "problem", "expected"),
    [
        (None, "", ", or its gang has the annotation allaboard.dev/undo: suspend)"),
        (Undo.SUSPEND, "", "; the job is suspended and resumed if the gang isn't whole after 60 s; "),
        (Undo.SUSPEND, "job train was suspended by another client", "; job train was suspended by another client; "),
    ],
)
def test_message_of_a_gang_that_is_kept_open_says_when_its_job_will_be_suspended_or_why_it_will_not(
    undo: Undo | None, problem: str, expected: str
) -> None:
    spec, owner = SchedulingSpec((("pods", 1),)), Owner("batch/v1", "Job", "train", "u")
    a = Pod("default", "a", "uid-a", "1", 0.0, "allaboard", "node-1", "Pending", 0, spec, owner=owner)
    gang = Gang(GangKey("default", "train"), 3, (a,), 0, 0.0, Objective.BINPACK, 60, undo=undo)
    assert expected in messages.kept_open(gang, [a], "no capacity", problem)


@pytest.mark.parametrize(
    ("pod", "advice"),
    [
        ({"phase": "Running", "owner": Owner("apps/v1", "ReplicaSet", "r", "u")}, "a already running"),
        ({"owner": None}, 'a would not be recreated (if a controller recreates them, annotate allaboard.dev/recreate: "true"'),
        ({"owner": Owner("batch/v1", "Job", "train", "u")}, "job train counts a lost pod as a failure (unless it has a podFailurePolicy"),
    ],
)
def test_message_of_a_gang_that_stays_partially_bound_says_why_and_which_setting_would_help(pod: dict[str, object], advice: str) -> None:
    spec = SchedulingSpec((("pods", 1),))
    a = replace(Pod("default", "a", "uid-a", "1", 0.0, "allaboard", "node-1", "Pending", 0, spec), **pod)  # type: ignore[arg-type]
    gang = Gang(GangKey("default", "train"), 3, (a,), 0, 0.0, Objective.BINPACK, 60)
    text = messages.kept_open(gang, [a], "0/1 nodes are available: 1 Insufficient cpu.")
    assert text.startswith("stays partially bound with 1 of 3 members bound: ")
    assert advice in text
    assert text.endswith("; 0/1 nodes are available: 1 Insufficient cpu.")


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_reason_has_a_text(kind: Kind) -> None:
    text = reason_words.reason(Reason(kind, "subject", "value"))
    assert text
    assert "{subject}" not in text


def test_taint_is_reported_in_kube_schedulers_words() -> None:
    assert reason_words.reason(Reason(Kind.TAINT, "gpu", "only")) == "node(s) had untolerated taint {gpu: only}"


@pytest.mark.parametrize("wrong", Wrong)
def test_every_violation_of_a_plan_has_a_text(wrong: Wrong) -> None:
    assert len(messages.violation(Violation(wrong, "ns/pod", "node", subject="cpu"))) > len(wrong)


def test_search_with_fewer_generations_than_wanted_is_reported_with_both_numbers() -> None:
    assert messages.generations(101, "effort", 1000) == "101 of 1000 generations"
    assert messages.generations(1, "patience") == "1 generation"
    assert messages.generations(0, "exact") == "0 generations: known to be best by an exact method"
