"""The walltimes that pods state."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.pod import WALLTIME, pod_from
from allaboard.model.walltime import NEVER, UNKNOWN, parse_walltime


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5400", 5400), ("90m", 5400), ("1h30m", 5400), ("2d", 172_800), ("0.5h", 1800), (" 45s ", 45), ("1d2h3m4s", 93_784)],
)
def test_walltime_is_a_number_of_seconds_or_a_duration(text: str, seconds: float) -> None:
    assert parse_walltime(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-5", "1.5", "soon", "1h 30m", "5x", "1w", "9" * 30, "99999999999d", "١h", "1h1h1h1h1h"])
def test_other_texts_are_no_walltimes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as 5400, 90m, 1h30m or 2d"):
        parse_walltime(text)


def pod(*, kind: str = "", deadline: object = None, annotations: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    owners = [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}] if kind else []
    return {
        "metadata": {"name": "p", "annotations": annotations or {}, "ownerReferences": owners, **metadata},
        "spec": {"containers": [], "activeDeadlineSeconds": deadline, "nodeName": "n"},
        "status": {"startTime": "2026-11-29T10:00:00Z"},
    }


@pytest.mark.parametrize(
    ("raw", "walltime"),
    [
        (pod(), UNKNOWN),
        (pod(deadline=60), 60),
        (pod(deadline=60, annotations={WALLTIME: "30s"}), 30),
        (pod(deadline=60, annotations={WALLTIME: "soon"}), 60),
        (pod(deadline="soon"), UNKNOWN),
        (pod(deadline=-1), UNKNOWN),
        (pod(annotations={"slurmjob.slinky.slurm.net/timelimit": "10"}), 600),
        (pod(labels={"kueue.x-k8s.io/max-exec-time-seconds": "90"}), 90),
        (pod(annotations={"slurmjob.slinky.slurm.net/timelimit": 10}, labels={"kueue.x-k8s.io/max-exec-time-seconds": "-3"}), UNKNOWN),
        (pod(kind="Job", deadline=60), 60),
        (pod(kind="ReplicaSet", deadline=60), NEVER),
        (pod(kind="DaemonSet"), NEVER),
        (pod(kind="Node"), NEVER),
    ],
)
def test_walltime_of_a_pod_is_the_least_that_it_states(raw: dict[str, Any], walltime: float) -> None:
    found = pod_from(raw)
    assert (found.walltime, found.started) == (walltime, 1_795_946_400.0)


@given(st.text(max_size=20), st.one_of(st.none(), st.text(), st.lists(st.none()), st.integers()))
def test_hostile_values_give_a_walltime_within_bounds_or_none(text: str, other: object) -> None:
    raw = pod(deadline=other, annotations={WALLTIME: text, "slurmjob.slinky.slurm.net/timelimit": text})
    raw["metadata"]["ownerReferences"] = other if isinstance(other, list) and not other else []
    assert 0.0 <= pod_from(raw).walltime <= 10 * 365 * 86_400 < math.inf
