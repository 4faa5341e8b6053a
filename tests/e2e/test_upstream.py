"""This scheduler answers the cases of kube-scheduler's own unit tests as the tests demand of kube-scheduler."""

from collections import Counter
from pathlib import Path

import pytest

from .controlplane import existing, releases
from .upstream.questions import difference, exempt, question_of
from .upstream.tables import PACKAGES, printed_cases

_EXEMPT = {
    "a feature is switched off that is on in all supported releases: matchLabelKeys": 1,
    "a pod whose volume is missing is held, and nodes aren't asked": 1,
    "default constraints have no influence": 1,
    "device classes for extended resources: devices aren't allocated": 6,
    "the API server refuses the pod": 4,
    "the plugin is configured to ignore resources": 2,
    "the plugin is configured to ignore the preferences of bound pods": 1,
}
"""The number of cases that can't be asked of this scheduler, by the reason."""


@pytest.mark.skipif(existing.is_wanted() or releases.is_stated(), reason="the cases are those of the newest release")
@pytest.mark.timeout(1500)  # Go may have to compile most of kube-scheduler at first
def test_cases_of_kube_schedulers_unit_tests_have_the_same_answers_here(tmp_path: Path) -> None:
    cases = printed_cases(tmp_path)
    exempted = Counter(filter(None, map(exempt, cases)))
    asked = [case for case in cases if not exempt(case)]
    assert {f"{case.name}: {found}" for case in asked if (found := difference(question_of(case)))} == set()
    assert {case.test.partition("/")[0] for case in asked} == {package.name for package in PACKAGES}
    assert (len(asked), exempted) == (211, _EXEMPT)
