"""A batch Job doesn't count an evicted pod as failed if its policy ignores disruptions."""

from typing import Any

import pytest

from allaboard.model.disruption import policy_ignores_disruption

DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


@pytest.mark.parametrize(
    ("rules", "ignores"),
    [
        ([{"action": "Ignore", "onPodConditions": [DISRUPTED]}], True),
        ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}], True),
        ([{"action": "FailJob", "onExitCodes": {"values": [1]}}, {"action": "Ignore", "onPodConditions": [DISRUPTED]}], True),
        ([{"action": "Count", "onPodConditions": [DISRUPTED]}], False),
        ([{"action": "FailJob", "onPodConditions": [DISRUPTED]}, {"action": "Ignore", "onPodConditions": [DISRUPTED]}], False),
        ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}], False),
        ([{"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]}], False),
        ([], False),
        (None, False),
        ("Ignore", False),
        ([["Ignore"]], False),
    ],
)
def test_pod_failure_policy_ignores_disruptions_if_its_first_rule_about_them_has_the_action_ignore(rules: Any, ignores: bool) -> None:
    assert policy_ignores_disruption({"spec": {"podFailurePolicy": {"rules": rules}}}) is ignores


def test_job_without_a_pod_failure_policy_counts_every_lost_pod_as_failed() -> None:
    assert not policy_ignores_disruption({"spec": {}})
    assert not policy_ignores_disruption({"spec": {"podFailurePolicy": None}})
