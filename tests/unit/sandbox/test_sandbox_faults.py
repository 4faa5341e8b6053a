"""A fault hits exactly the requests that match its verb, resource, name and count."""

import pytest

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import Faults


def hits(faults: Faults, requests: list[tuple[str, str]]) -> list[bool]:
    return [faults.strike(verb, "pods", "", name) is not None for verb, name in requests]


def test_a_fault_hits_only_the_nth_matching_request() -> None:
    faults = Faults()
    faults.add(Fault("bind", "pods", nth=2))
    assert hits(faults, [("bind", "a"), ("create", "a"), ("bind", "b"), ("bind", "c")]) == [False, False, True, False]
    assert faults.pending == []


def test_a_fault_with_times_2_hits_two_requests() -> None:
    faults = Faults()
    faults.add(Fault("bind", "pods", times=2))
    assert hits(faults, [("bind", "a")] * 3) == [True, True, False]


def test_the_object_name_of_a_fault_is_a_glob() -> None:
    faults = Faults()
    faults.add(Fault("bind", "pods", name="worker-*"))
    assert hits(faults, [("bind", "ps-0"), ("bind", "worker-1")]) == [False, True]


def test_requests_before_a_fault_is_added_are_not_counted() -> None:
    faults = Faults()
    hits(faults, [("bind", "a")])
    faults.add(Fault("bind", "pods", nth=2))
    assert hits(faults, [("bind", "b"), ("bind", "c")]) == [False, True]


@pytest.mark.parametrize(
    ("wanted", "dry_run", "hit"), [(False, False, True), (False, True, False), (True, True, True), (True, False, False)]
)
def test_a_fault_hits_dry_runs_or_real_requests_as_selected(wanted: bool, dry_run: bool, hit: bool) -> None:
    faults = Faults()
    faults.add(Fault("bind", "pods", dry_run=wanted))
    assert (faults.strike("bind", "pods", "binding", "a", dry_run=dry_run) is not None) is hit


@pytest.mark.parametrize(("resource", "hit"), [("pods", True), ("pods/status", True), ("pods/scale", False), ("*", True), ("nodes", False)])
def test_a_fault_of_a_resource_hits_its_subresources(resource: str, hit: bool) -> None:
    faults = Faults()
    faults.add(Fault("patch", resource))
    assert (faults.strike("patch", "pods", "status", "a") is not None) is hit


def test_a_fault_answers_with_the_reason_of_its_status_code() -> None:
    error = Fault("bind", "pods", status=429, retry_after=2).error()
    assert (error.status, error.reason, error.retry_after) == (429, "TooManyRequests", 2)
