"""Tests that an operator that is killed during a preemption, and its successor, evict no other pods than were chosen first."""

from pathlib import Path

from allaboard_sandbox import Sandbox

from . import preemptions
from .kills import Relay
from .preemptions import PreemptionToll

# A sample: `make faults` kills at every call. The calls are dry runs of the evictions, marks, reads and evictions of three pods.
SAMPLE = [(2, False), (5, True), (8, False), (10, True), (12, False), (13, True)]


async def test_preemption_whose_scheduler_is_killed_at_an_api_call_is_finished_and_not_widened(tmp_path: Path) -> None:
    toll = PreemptionToll()
    async with Sandbox() as cluster:
        preemptions.furnish(cluster)
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with Relay(cluster, tmp_path / "kubeconfig", tmp_path) as relay:
            await preemptions.settle(cluster)
            for call, is_after in SAMPLE:
                await preemptions.kill_at(call, is_after=is_after, cluster=cluster, relay=relay, toll=toll)
    assert toll.kills == len(SAMPLE)
    assert not toll.complaints, "; ".join(toll.complaints)
