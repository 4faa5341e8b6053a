"""A transaction checks a plan before members are assumed, after the dry run, and before each bind."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from allaboard.binding.bind import AssignmentCheck, Binder
from allaboard.binding.outcomes import BindReply, Committed, Refused, Result
from allaboard.binding.precheck import checked
from allaboard.binding.transaction import DryRun, Transaction, Transactions
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Owner, Pod
from allaboard.report import messages
from tests.unit.placement.clusters import node, pods


def test_plan_with_members_in_two_domains_is_refused_if_they_must_share_one() -> None:
    members = pods("w", 2, {"cpu": 1000})
    gang = Gang(GangKey("default", "g"), 2, tuple(members), 0, 0.0, Objective.BINPACK, 60, required_topology="rack")
    view = ClusterView()
    for name, rack in (("a", "x"), ("b", "x"), ("c", "y")):
        view.upsert_node(node(name, {"cpu": 1000}, labels={"rack": rack}))
    for pod in members:
        view.upsert_pod(pod)

    refused = checked(gang, {"w-0": "a", "w-1": "c"}, view.snapshot(gang.priority))

    assert isinstance(refused, Refused)
    assert "members would not share one rack: x, y" in messages.not_bound(refused)
    assert not isinstance(checked(gang, {"w-0": "a", "w-1": "b"}, view.snapshot(gang.priority)), Refused)


class Api:
    """A binder that binds every pod, after calling ``before``. It records the dry runs as ``dry_run_pods``, and the binds as ``bound``."""

    def __init__(self, before: Callable[[Pod, bool], None] = lambda pod, dry_run: None) -> None:
        self.before = before
        self.dry_run_pods: list[str] = []
        self.bound: list[str] = []

    async def bind(
        self, pod: Pod, node_name: str, stamp: str, *, dry_run: bool = False, check: AssignmentCheck, **annotations: object
    ) -> BindReply:
        self.before(pod, dry_run)
        if problem := check():
            return BindReply(Result.SPOILT, violation=problem)
        (self.dry_run_pods if dry_run else self.bound).append(pod.name)
        return BindReply(Result.BOUND)


def world(members: Sequence[Pod], api: Api, minimum: int = 4) -> tuple[ClusterView, Transaction]:
    """Return a view with a node for four pods, and a transaction whose ``members`` are assumed on that node."""
    gang = Gang(GangKey("default", "g"), minimum, tuple(members), 0, 0.0, Objective.BINPACK, 60)
    view = ClusterView()
    view.upsert_node(node("a", {"cpu": 4000}))
    for pod in members:
        view.upsert_pod(pod)
    assignments = checked(gang, {pod.uid: "a" for pod in members}, view.snapshot(gang.priority))
    assert not isinstance(assignments, Refused)
    transactions = Transactions(view, cast("Binder", api), "role")
    return view, transactions.begin(gang, assignments, lambda: gang, tries_all=False, was_whole=False)


JOB, SET = Owner("batch/v1", "Job", "j", "u"), Owner("apps/v1", "ReplicaSet", "r", "u")


@pytest.mark.parametrize(
    ("owner", "templates", "options", "dry_runs"),
    [
        (SET, (1, 1, 1, 1), (), 1),
        (SET, (1, 1, 2, 3), (), 3),
        (JOB, (1, 1, 1, 1), (), 4),  # members of a batch Job can't be released without cost
        (None, (1, 1, 1, 1), (), 4),
        (None, (1, 1, 1, 1), (("recreate", "false"),), 4),
        (None, (1, 1, 1, 1), (("recreate", "true"),), 1),
    ],
)
async def test_every_bind_gets_a_dry_run_if_a_pod_cannot_be_released_and_otherwise_one_bind_of_each_template(
    owner: Owner | None, templates: Sequence[int], options: tuple[tuple[str, str], ...], dry_runs: int
) -> None:
    made = zip(pods("w", 4, {"cpu": 1000}), templates, strict=True)
    members = [replace(pod, owner=owner, template=template, options=options) for pod, template in made]
    api = Api()
    _, transaction = world(members, api)
    assert isinstance(await transaction.commit(), Committed)
    assert (len(api.dry_run_pods), len(api.bound)) == (dry_runs, 4)


@pytest.mark.parametrize(
    ("dry_run", "may_refuse", "dry_runs"), [("role", True, 4), ("role", False, 0), ("all", False, 4), ("none", True, 0)]
)
async def test_binds_are_dry_run_only_if_admission_may_refuse_them_or_the_setting_says_all(
    dry_run: DryRun, may_refuse: bool, dry_runs: int
) -> None:
    api = Api()
    _, transaction = world(pods("w", 4, {"cpu": 1000}), api)
    transaction.dry_run, transaction.may_be_refused = dry_run, lambda: may_refuse
    assert isinstance(await transaction.commit(), Committed)
    assert (len(api.dry_run_pods), len(api.bound)) == (dry_runs, 4)


async def test_a_gang_whose_last_attempt_failed_is_dry_run_whatever_admission_is_known() -> None:
    api = Api()
    members = pods("w", 4, {"cpu": 1000})
    view, first = world(members, api)
    view.forget_all(members)
    transactions = Transactions(view, cast("Binder", api), "role", may_refuse=lambda namespace: False)
    again = transactions.begin(first.gang, first.assignments, lambda: first.gang, tries_all=True, was_whole=False)
    assert isinstance(await again.commit(), Committed)
    assert len(api.dry_run_pods) == 4


@pytest.mark.parametrize("change", ["gone", "cordoned", "small", "member"])
async def test_no_member_is_bound_when_the_plan_is_invalid_after_the_dry_run(change: str) -> None:
    members = pods("w", 4, {"cpu": 1000})

    def happen(pod: Pod, dry_run: bool) -> None:
        if change == "gone":
            view.remove_node("a")
        elif change == "member":
            view.remove_pod(members[0].key)
            transaction.current_gang = lambda: replace(transaction.gang, members=tuple(members[1:]))
        else:
            here = node("a", {"cpu": 3000 if change == "small" else 4000})
            view.upsert_node(replace(here, is_unschedulable=change == "cordoned"))

    api = Api(happen)
    view, transaction = world(members, api)
    assert isinstance(await transaction.commit(), Refused)
    assert api.bound == []
    assert view.counts["assumed_pods"] == 0


async def test_an_invalid_plan_still_returns_the_retry_after_header_of_its_dry_run() -> None:
    members = pods("w", 4, {"cpu": 1000})

    class Throttling(Api):
        async def bind(
            self, pod: Pod, node_name: str, stamp: str, *, dry_run: bool = False, check: AssignmentCheck, **annotations: object
        ) -> BindReply:
            view.remove_node("a")
            return BindReply(Result.UNANSWERED, retry_after=8.0) if pod.name == "w-0" else BindReply(Result.BOUND)

    view, transaction = world(members, Throttling(), minimum=3)
    outcome = await transaction.commit()
    assert isinstance(outcome, Refused)
    assert outcome.retry_after == 8.0


async def test_each_assignment_is_checked_just_before_its_bind_is_sent() -> None:
    members = [replace(pod, owner=SET) for pod in pods("w", 4, {"cpu": 1000})]

    def happen(pod: Pod, dry_run: bool) -> None:
        if not dry_run and pod.name == "w-2":
            view.remove_node("a")

    api = Api(happen)
    view, transaction = world(members, api)
    outcome = await transaction.commit()
    assert isinstance(outcome, Committed)
    assert (api.bound, outcome.missing, outcome.in_doubt) == (["w-0", "w-1"], 2, ())
    assert not view.is_assumed(members[2])


async def test_members_that_an_unanswered_bind_may_still_bind_stay_assumed() -> None:
    members = [replace(pod, owner=SET) for pod in pods("w", 4, {"cpu": 1000})]

    class MixedReplies(Api):
        async def bind(
            self, pod: Pod, node_name: str, stamp: str, *, dry_run: bool = False, check: AssignmentCheck, **annotations: object
        ) -> BindReply:
            if dry_run or pod.name == "w-0":
                return BindReply(Result.BOUND)
            if pod.name == "w-1":
                raise RuntimeError("a defect")
            return BindReply(Result.UNANSWERED, "no answer", "7") if pod.name == "w-2" else BindReply(Result.REFUSED, "no")

    view, transaction = world(members, MixedReplies())
    outcome = await transaction.commit()
    assert isinstance(outcome, Committed)
    assert [(pod.name, version) for pod, version in outcome.in_doubt] == [("w-1", "1"), ("w-2", "7")]
    assert [view.is_assumed(pod) for pod in members] == [True, True, True, False]


async def test_no_pod_is_bound_after_a_dry_run_of_its_template_was_refused() -> None:
    made = zip(pods("w", 4, {"cpu": 1000}), (1, 1, 2, 2), strict=True)
    members = [replace(pod, owner=SET, template=template) for pod, template in made]

    class Refusing(Api):
        async def bind(
            self, pod: Pod, node_name: str, stamp: str, *, dry_run: bool = False, check: AssignmentCheck, **annotations: object
        ) -> BindReply:
            if dry_run and pod.template == 1:
                return BindReply(Result.REFUSED, "denied")
            return await super().bind(pod, node_name, stamp, dry_run=dry_run, check=check)

    api = Refusing()
    _, transaction = world(members, api, minimum=2)
    assert isinstance(await transaction.commit(), Committed)
    assert api.bound == ["w-2", "w-3"]


def test_member_that_joins_a_run_gets_the_stamp_of_the_run() -> None:
    first, second = pods("w", 2, {"cpu": 1000})
    _, transaction = world([replace(first, node_name="a", transaction="run", stamped_min_member=2), second], Api(), minimum=2)
    assert transaction.stamp == "run/2"


async def test_pods_that_another_scheduler_has_bound_to_the_node_are_noticed_before_each_bind() -> None:
    members = [replace(pod, owner=SET) for pod in pods("w", 4, {"cpu": 1000})]
    (stranger,) = pods("stranger", 1, {"cpu": 1000})

    def happen(pod: Pod, dry_run: bool) -> None:
        if not dry_run and pod.name == "w-2":
            view.upsert_pod(replace(stranger, node_name="a"))

    api = Api(happen)
    view, transaction = world(members, api)
    outcome = await transaction.commit()
    assert isinstance(outcome, Committed)
    assert (api.bound, outcome.missing) == (["w-0", "w-1"], 2)
