"""An assignment is checked again before each try of its bind, by all rules that the plan was checked by."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from allaboard.binding.outcomes import Assignment, Refused
from allaboard.binding.precheck import checked, spoilt
from allaboard.binding.transaction import assume
from allaboard.cluster.storage_objects import Claim, StoredVolume
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import GpuRequest, HostPort, NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.gpus import NO_CARDS
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm
from allaboard.model.volumes import Volume
from allaboard.planning.resolve import resolve
from allaboard.report import messages

PORT = HostPort("0.0.0.0", "TCP", 80)  # noqa: S104
NODE = Node("a", "a", (("cpu", 8000), ("nvidia.com/gpu", 2), ("pods", 110)), {"rack": "x", "kubernetes.io/hostname": "a"})
SPEC = SchedulingSpec((("cpu", 1000), ("pods", 1)), host_ports=(PORT,), claims=("c0",))


def a_pod(name: str, spec: SchedulingSpec = SPEC, node: str = "", **fields: object) -> Pod:
    pod = Pod("ns", name, f"uid-{name}", "1", 0.0, "allaboard", node, "Pending", 0, spec, labels=(("app", "web"),))
    return replace(pod, **fields)  # type: ignore[arg-type]


def a_claim(view: ClusterView, name: str, node: str = "a") -> None:
    rack = NodeSelectorTerm((Requirement("kubernetes.io/hostname", "In", (node,)),))
    view.volumes.volumes.upsert(f"pv-{name}", StoredVolume(((rack,),), Volume("disk", f"h-{name}")))
    view.volumes.claims.upsert(f"ns/{name}", Claim(f"pv-{name}"))


def an_assignment(spec: SchedulingSpec = SPEC, **gang_fields: object) -> tuple[ClusterView, Gang, Assignment]:
    """Return a view, a gang of one pod with a port and a volume, and its assignment. The node can attach one more volume."""
    view = ClusterView()
    view.upsert_node(NODE)
    view.volumes.limits.upsert("a", {"disk": 2})
    for name in ("c0", "c1", "c2"):
        a_claim(view, name)
    view.upsert_pod(pod := a_pod("mine", spec))
    gang = Gang(GangKey("ns", "g"), 1, (pod,), 0, 0.0, Objective.BINPACK, 60, **gang_fields)  # type: ignore[arg-type]
    gang = resolve(gang, view.volumes, view)
    assignments = checked(gang, {pod.uid: "a"}, view.snapshot(gang.priority))
    assert not isinstance(assignments, Refused)
    assume(assignments, view)
    return view, gang, assignments[0]


def test_a_member_with_anti_affinity_may_be_bound_to_a_node_that_is_in_no_domain() -> None:
    term = PodTerm("zone", (LabelExpression("app", "In", ("web",)),))
    spec = SchedulingSpec((("cpu", 1000), ("pods", 1)), anti_affinity=(term,))
    view, members = ClusterView(), (a_pod("one", spec), a_pod("two", spec))
    view.upsert_node(NODE)
    gang = Gang(GangKey("ns", "g"), 2, members, 0, 0.0, Objective.BINPACK, 60)
    assignments = checked(gang, {pod.uid: "a" for pod in members}, view.snapshot(gang.priority))
    assert not isinstance(assignments, Refused)
    assert [assignment.domains for assignment in assignments] == [(), ()]


def another_pod(spec: SchedulingSpec, **fields: object) -> Callable[[ClusterView], None]:
    return lambda view: view.upsert_pod(a_pod("theirs", spec, **{"node": "a", "scheduler_name": "default-scheduler", **fields}))  # type: ignore[arg-type]


PODS = (("pods", 1),)
ANTI_AFFINITY = PodTerm("kubernetes.io/hostname", (LabelExpression("app", "In", ("web",)),), in_any_namespace=True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda view: None, None),
        (another_pod(SchedulingSpec(PODS, host_ports=(PORT,))), "host port 0.0.0.0:80/TCP is taken"),
        (another_pod(SchedulingSpec((("cpu", 8000), ("pods", 1)))), "a: 1 members ask for 1 cpu, 0 free"),
        (another_pod(SchedulingSpec(PODS, claims=("c0", "c1"))), None),  # c0 is attached already
        (another_pod(SchedulingSpec(PODS, claims=("c1", "c2"))), "node(s) exceed max volume count"),
        (another_pod(SchedulingSpec(PODS, anti_affinity=(ANTI_AFFINITY,))), "node(s) didn't satisfy existing pods anti-affinity rules"),
        (another_pod(SchedulingSpec((("cpu", 7500), ("pods", 1))), node="", nominated="a"), "a: 1 members ask for 1 cpu, 500m free"),
        (another_pod(SchedulingSpec((("cpu", 7500), ("pods", 1))), node="", nominated="a", priority=-1), None),
        (lambda view: view.volumes.claims.remove("ns/c0"), 'persistentvolumeclaim "c0" not found'),
        (lambda view: a_claim(view, "c0", "elsewhere"), "node(s) didn't match PersistentVolume's node affinity"),
        (lambda view: view.volumes.limits.upsert("a", {"disk": 0}), "node(s) exceed max volume count"),
        (lambda view: view.upsert_node(replace(NODE, is_ready=False)), "node(s) were not ready"),
        (lambda view: view.remove_node("a"), "node a does not exist"),
    ],
)
def test_assignment_that_is_no_longer_valid_is_refused_with_the_reason(change: Callable[[ClusterView], None], expected: str | None) -> None:
    view, gang, assignment = an_assignment()
    change(view)
    before = view.snapshot()
    found = spoilt(assignment, gang, view)
    assert (expected or "") in (messages.violation(found) if found else "")
    assert (found is None) == (expected is None)
    after = view.snapshot()
    assert np.array_equal(before.used, after.used)  # the check changes nothing
    assert before.host_ports == after.host_ports
    assert view.is_assumed(assignment.pod)


def test_assignment_is_invalid_when_its_node_leaves_the_domain_that_members_share() -> None:
    view, gang, assignment = an_assignment(required_topology="rack")
    assert assignment.domains == (("rack", "x"),)
    view.upsert_node(replace(NODE, labels={**NODE.labels, "rack": "y"}))
    found = spoilt(assignment, gang, view)
    assert found is not None
    assert messages.violation(found) == "members would not share one rack: x, y"


def test_assignment_is_invalid_when_its_gpus_have_less_memory_than_requested() -> None:
    spec = SchedulingSpec((("cpu", 1000), ("nvidia.com/gpu", 1), ("pods", 1)), gpus=GpuRequest(memory_each=1000))
    labels = {"nvidia.com/gpu.memory": "16000", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.product": "T4"}
    view, gang, assignment = an_assignment(SPEC)
    view.upsert_node(replace(NODE, labels={**NODE.labels, **labels}))
    view.upsert_pod(a_pod("mine", spec))
    assignment = replace(assignment, pod=a_pod("mine", spec))
    assert spoilt(assignment, gang, view) is None
    assignment = replace(assignment, pod=a_pod("mine", replace(spec, gpus=GpuRequest(memory_each=32_000))))
    found = spoilt(assignment, gang, view)
    assert found is not None
    assert "gpu-memory-each" in messages.violation(found)


def test_version_of_a_node_changes_when_assignments_to_the_node_may_become_invalid() -> None:
    view, gang, assignment = an_assignment()
    state = view.version_of("a")
    assert spoilt(assignment, gang, view) is None
    assert view.version_of("a") == state
    view.upsert_pod(replace(a_pod("mine"), node_name="a"))  # the pod is bound where it was assumed
    assert view.version_of("a") == state
    another_pod(SchedulingSpec(PODS))(view)
    assert view.version_of("a") != state
    for change in (
        lambda: view.volumes.limits.upsert("a", {"disk": 9}),
        lambda: view.volumes.claims.remove("ns/c2"),
        lambda: view.upsert_node(replace(NODE, is_unschedulable=True)),
        lambda: view.observe_cards(NO_CARDS),
        lambda: view.remove_node("a"),
        lambda: another_pod(SchedulingSpec(PODS), node="", nominated="b", uid="other")(view),
    ):
        state = view.version_of("a")
        change()
        assert view.version_of("a") != state
