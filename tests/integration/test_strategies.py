"""Gangs choose their placement strategy; an invalid plan of a strategy is reported, and the default places the gang."""

from pathlib import Path

import pytest

from allaboard.planning import plugin_processes
from tests.cluster import Cluster
from tests.plugged import install

from .conftest import StartApp, gang_pod

SOURCE = """
from allaboard.placement.strategies.shipped import FirstFit

class Last:
    def accepts(self, problem):
        return True
    def place(self, problem, budget):
        plan = FirstFit().place(problem, budget)
        from dataclasses import replace
        return replace(plan, assignments=tuple((uid, max(problem.nodes)) for uid, _ in plan.assignments))
"""


def nodes_of(cluster: Cluster, gang: str) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in cluster.list("pods") if pod["metadata"]["name"].startswith(gang))


@pytest.mark.sandbox_only("the strategy is installed where the operator runs, which is here")
async def test_gang_is_placed_by_its_plug_in_or_by_the_default_strategy_if_the_plug_ins_plan_is_invalid(
    cluster: Cluster, start_app: StartApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, SOURCE, last="Last")
    monkeypatch.setattr(plugin_processes, "_WARM_UP_SECONDS", 100.0)  # importing may be slow
    monkeypatch.setattr(plugin_processes, "ANSWER_SECONDS", 100.0)
    for name in ("a", "b"):
        cluster.add_node(name, cpu="4")
    await start_app(strategies=("genetic", "last"))

    for name in ("first", "second"):
        for index in range(3):
            pod = gang_pod(f"{name}-{index}", name, 3, cpu="1")
            pod["metadata"].setdefault("annotations", {})["allaboard.dev/strategy"] = "last"
            cluster.create(pod)
        await cluster.wait_for(lambda cluster, name=name: "" not in nodes_of(cluster, name))  # type: ignore[misc]
    # The plug-in places all members of the second gang on b, which has capacity for one.
    assert nodes_of(cluster, "first") == ["b", "b", "b"]
    assert "a" in nodes_of(cluster, "second")

    def is_reported(cluster: Cluster) -> bool:
        return any(event.get("reason") == "StrategyFailed" for event in cluster.list("events"))

    await cluster.wait_for(is_reported)
    [event] = [event for event in cluster.list("events") if event.get("reason") == "StrategyFailed"]
    assert event["type"] == "Warning"
    note = event.get("note") or event.get("message")
    assert note == "strategy last: its plan is wrong: node b has too little cpu for the pods assigned to it; genetic decides instead"
