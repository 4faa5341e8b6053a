"""Test that pods are planned with the priority that the API server would give them."""

from typing import Any

from tests.unit.cli.plan_command import Plan, member, node, pod


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}


def order(plan: Plan) -> list[str]:
    plan.manifest(pod("low", priorityClassName="low"), pod("none"), pod("high", priorityClassName="high"))
    return [gang["name"] for gang in plan.gangs()]


def test_priority_is_taken_from_a_class_of_the_cluster(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"), priority_class("high", 10), priority_class("low", -10))
    assert order(plan) == ["high", "none", "low"]
    assert plan.run().stderr == ""


def test_priority_of_a_class_is_taken_from_a_pod_of_the_cluster(plan: Plan) -> None:
    there = [pod(name, priorityClassName=name, priority=value, nodeName="n1") for name, value in (("high", 10), ("low", -10))]
    plan.cluster(node("n1", cpu="8"), *(each | {"metadata": {"name": f"there-{index}"}} for index, each in enumerate(there)))
    assert order(plan) == ["high", "none", "low"]


def test_priority_is_taken_from_a_class_of_the_manifests(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="1")).manifest(pod("a"), pod("b", priorityClassName="high"), priority_class("high", 10))
    assert [(gang["name"], gang["feasible"]) for gang in plan.gangs(exit_code=1)] == [("b", True), ("a", False)]


def test_pods_without_a_class_get_the_default_class(plan: Plan) -> None:
    plan.cluster(
        node("n1", cpu="8"), priority_class("default", 5, globalDefault=True), priority_class("low", 1), priority_class("high", 10)
    )
    assert order(plan) == ["high", "none", "low"]


def test_built_in_priority_classes_are_known(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(pod("a"), pod("b", priorityClassName="system-node-critical"))
    assert [gang["name"] for gang in plan.gangs()] == ["b", "a"]


def test_unknown_priority_class_is_noted(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"))
    note = "note: Pod default/a: PriorityClass 'high' is not known; priority 0 is assumed\n"
    assert plan.manifest(pod("a", priorityClassName="high")).run().stderr == note
    assert plan.manifest(pod("a", priorityClassName="high", priority=5)).run().stderr == ""


def test_existing_and_new_members_of_a_gang_get_equal_priorities(plan: Plan) -> None:
    there = member("a", priorityClassName="high", priority=10, metadata={"uid": "a", "namespace": "default"})
    plan.cluster(node("n1", cpu="8"), there).manifest(*(member(name, priorityClassName="high") for name in "ab"))
    [gang] = plan.gangs()
    assert gang["feasible"] is True


def test_invalid_priority_class_is_bad_input(plan: Plan) -> None:
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a", priorityClassName=["high"])).run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "document 1: spec.priorityClassName: " in result.stderr
    result = plan.manifest(priority_class("high", 1) | {"value": "much"}).run()
    assert result.exit_code == 2
    assert "document 1: value: 'much' is not a whole number" in result.stderr


def test_plan_says_what_would_be_evicted_unless_the_class_preempts_nothing(plan: Plan) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "low", "uid": "low", "controller": True}
    there = pod("there", cpu="8", nodeName="n1", metadata={"uid": "there", "namespace": "default", "ownerReferences": [owner]})
    plan.cluster(node("n1", cpu="8"), there, priority_class("high", 10), priority_class("kind", 10, preemptionPolicy="Never"))
    plan.manifest(pod("a", cpu="8", priorityClassName="high"))
    [gang] = plan.gangs(exit_code=1)
    assert "1 pod of lower priority would be evicted for it: 1 of default/there" in gang["message"]
    plan.manifest(pod("a", cpu="8", priorityClassName="kind"))
    [gang] = plan.gangs(exit_code=1)
    assert "evicted" not in gang["message"]


def test_a_priority_that_is_stated_as_null_is_taken_from_the_class(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"), priority_class("high", 10))
    plan.manifest(pod("none"), pod("stated", priorityClassName="high", priority=None))
    assert [gang["name"] for gang in plan.gangs()] == ["stated", "none"]
