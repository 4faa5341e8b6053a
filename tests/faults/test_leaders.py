"""A leader that is stopped in the middle of a commit, and goes on when another leads, mixes no plans."""

from pathlib import Path

from allaboard.sandbox import Sandbox

from . import kills, leaders
from .leaders import Replicas, Terms

# A sample: `make faults` stops the leader before every request.
SAMPLE = (1, 2, 6)


async def test_what_a_stopped_leader_had_sent_comes_too_late_once_another_leads(tmp_path: Path) -> None:
    terms = Terms()
    async with Sandbox() as cluster:
        kills.furnish(cluster)
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with Replicas(cluster, tmp_path / "kubeconfig", tmp_path) as replicas:
            for call in SAMPLE:
                assert await leaders.stop_at(call, cluster, replicas, terms, f"gang-{call}")
    assert terms.is_clean, terms.complaints()
