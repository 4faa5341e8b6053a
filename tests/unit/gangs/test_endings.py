"""The counts of members that have succeeded and failed, which outlive the deletion of the pods."""

from dataclasses import replace
from typing import Any

import pytest

from allaboard.gangs.endings import Endings, Ends
from allaboard.gangs.membership import POD_GROUP_LABEL
from allaboard.gangs.podgroup import PodGroup
from allaboard.gangs.registry import GangRegistry
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey
from allaboard.model.pod import Owner, Pod

KEY = GangKey("ns", "g")
TFJOB, JOB = Owner("kubeflow.org/v1", "TFJob", "t", "t"), Owner("batch/v1", "Job", "j", "j")
POD = Pod("ns", "a", "a", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec((("pods", 1),)), labels=((POD_GROUP_LABEL, "g"),))


class Stage:
    """A registry of gangs, and the counts of its pods that have ended; a test creates, changes and deletes the pods."""

    def __init__(self) -> None:
        self.registry = GangRegistry(["allaboard"])
        self.endings = Endings(self.registry)
        self.registry.observe_group(PodGroup(KEY, "u", 1, 2, 60, 0.0, {}))
        self.pods: dict[str, Pod] = {}

    def change(self, name: str, **fields: Any) -> None:
        """Create a pod, or change fields of an existing one."""
        old = self.pods.get(name)
        new = replace(old or replace(POD, name=name, uid=name), **fields)
        self.pods[name] = new
        self.report(old, new)

    def delete(self, name: str) -> None:
        self.report(self.pods.pop(name), None)

    def report(self, old: Pod | None, new: Pod | None) -> None:
        self.registry.observe_pod(old, new)
        self.endings.observe_pod(old, new)

    def start(self, *names: str, owner: Owner | None = TFJOB) -> None:
        for name in names:
            self.change(name, owner=owner)
        for name in names:
            self.change(name, node_name="n", phase="Running")

    @property
    def ends(self) -> Ends | None:
        return self.endings.find(KEY)


def test_success_of_a_member_counts_after_the_job_operator_has_deleted_all_pods() -> None:
    stage = Stage()
    stage.start("ps", "worker")
    stage.change("worker", phase="Succeeded")
    stage.delete("worker")
    stage.change("ps", is_terminating=True)
    stage.change("ps", phase="Failed")  # 143: it was ended by a signal
    stage.delete("ps")
    assert stage.ends == Ends(1, 0)


def test_evicted_members_count_as_failed() -> None:
    stage = Stage()
    stage.start("a", "b")
    stage.change("a", is_terminating=True, is_disrupted=True)
    stage.delete("a")
    stage.change("b", is_terminating=True)
    assert stage.ends == Ends(0, 1)


@pytest.mark.parametrize("is_seen_terminating", [True, False])
def test_suspended_job_has_not_ended_even_if_members_had_succeeded(is_seen_terminating: bool) -> None:
    stage = Stage()
    stage.start("a", "b", "c", owner=JOB)
    stage.change("a", phase="Succeeded")
    for name in ("b", "c"):
        if is_seen_terminating:
            stage.change(name, is_terminating=True)
        stage.delete(name)
    assert stage.ends == Ends(0, 0)


def test_failed_member_is_no_longer_counted_as_failed_once_a_new_pod_exists() -> None:
    stage = Stage()
    stage.start("a", "b", owner=JOB)
    stage.change("a", phase="Failed")
    assert stage.ends == Ends(0, 1)
    stage.start("c", owner=JOB)
    for name in "bc":
        stage.change(name, phase="Succeeded")
    assert stage.ends == Ends(2, 0)


def test_pod_that_is_recreated_under_its_name_counts_as_a_new_pod() -> None:
    stage = Stage()
    stage.start("a")
    stage.change("a", phase="Failed")
    new = replace(POD, name="a", uid="a-2")
    stage.report(stage.pods["a"], new)
    assert stage.ends == Ends(0, 0)


def test_ends_in_a_run_that_started_before_the_scheduler_process_are_unknown_until_a_member_ends() -> None:
    stage = Stage()
    stage.change("done", node_name="n", phase="Succeeded")
    stage.change("a", node_name="n", phase="Running")
    assert stage.ends is None
    stage.change("a", phase="Failed")
    assert stage.ends == Ends(0, 1)


def test_ends_of_single_pods_foreign_pods_and_deleted_gangs_are_not_kept() -> None:
    stage = Stage()
    single, foreign = replace(POD, labels=()), replace(POD, scheduler_name="default-scheduler")
    for pod in (single, foreign):
        stage.report(None, pod)
        stage.report(pod, replace(pod, phase="Failed"))
    assert not stage.endings._ends
    stage.start("a")
    stage.registry.forget_group(KEY, 1)
    assert stage.ends == Ends(0, 0)
    stage.change("a", phase="Failed")
    stage.delete("a")
    assert not stage.endings._ends
