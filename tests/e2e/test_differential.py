"""This scheduler and the real kube-scheduler agree on random pods: where a pod may go, and why it may go nowhere."""

import random
from pathlib import Path

import pytest

from .controlplane import existing
from .differential.compare import comparison

CASES = 150


@pytest.mark.skipif(existing.is_wanted(), reason="the cases are played on a control plane of their own")
def test_kube_scheduler_agrees_on_which_nodes_take_a_pod_and_why_others_do_not(tmp_path: Path) -> None:
    first = random.SystemRandom().randrange(2**31)
    again = f"to play these cases again: python -m tests.e2e.differential --first {first} --cases {CASES}"
    with comparison(tmp_path) as compared:
        for seed in range(first, first + CASES):
            compared.play(seed)
    assert not compared.disagreements, "\n".join((*compared.disagreements, again))
    assert 0 < compared.fits < CASES, again
