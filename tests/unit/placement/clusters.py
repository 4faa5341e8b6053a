"""Builders of small clusters and gangs: from numbers, or drawn at random by Hypothesis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from allaboard.model.constraints import HostPort, NodeSelectorTerm, Requirement, SchedulingSpec, Toleration
from allaboard.model.gang import Objective
from allaboard.model.node import Node, Taint
from allaboard.model.pod import Pod
from allaboard.model.reasons import Counted
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Problem, build_problem
from allaboard.report import reason_words

GPU = "nvidia.com/gpu"


def in_words(reasons: Counted) -> tuple[tuple[str, int], ...]:
    """Return each reason as (message, number of nodes), sorted."""
    return tuple(sorted((reason_words.reason(reason), nodes) for reason, nodes in reasons))


Amounts = Mapping[str, int]
GI = 1024**3


def node(name: str, amounts: Amounts, **fields: object) -> Node:
    """Return a ready node that can take 110 pods."""
    return Node(name=name, uid=f"uid-{name}", allocatable=as_requests({"pods": 110, **amounts}), **fields)  # type: ignore[arg-type]


def pods(role: str, number: int, amounts: Amounts, **fields: object) -> list[Pod]:
    """Return pending pods with equal specs and uids ``<role>-<index>``."""
    spec = SchedulingSpec(requests=as_requests({"pods": 1, **amounts}), **fields)  # type: ignore[arg-type]
    return [
        Pod(
            namespace="default",
            name=f"{role}-{index}",
            uid=f"{role}-{index}",
            resource_version="1",
            created=0.0,
            scheduler_name="allaboard",
            node_name="",
            phase="Pending",
            priority=0,
            spec=spec,
        )
        for index in range(number)
    ]


def snapshot(
    nodes: Sequence[Node], used: Mapping[str, Amounts] | None = None, host_ports: Mapping[str, Sequence[HostPort]] | None = None
) -> Snapshot:
    """Return a cluster of ``nodes``.

    ``used``: the amounts in use, by node name. ``host_ports``: the host ports in use, by node name.
    """
    ordered = tuple(sorted(nodes, key=lambda one: one.name))
    used = used or {}
    names = tuple(sorted({name for one in ordered for name, _ in one.allocatable} | {name for taken in used.values() for name in taken}))
    return Snapshot(
        nodes=ordered,
        resources=names,
        allocatable=_table([dict(one.allocatable) for one in ordered], names),
        used=_table([used.get(one.name, {}) for one in ordered], names),
        host_ports={row: frozenset(host_ports[one.name]) for row, one in enumerate(ordered) if host_ports and one.name in host_ports},
    )


def _table(rows: Sequence[Amounts], names: Sequence[str]) -> np.ndarray:
    return np.array([[row.get(name, 0) for name in names] for row in rows], dtype=np.int64).reshape(len(rows), len(names))


@dataclass(frozen=True)
class Case:
    """A random gang on a random cluster."""

    gang: tuple[Pod, ...]
    minimum: int
    cluster: Snapshot
    objective: Objective
    seed: int

    def problem(self) -> Problem:
        """Return the problem of placing the gang on the cluster."""
        return build_problem(self.gang, self.minimum, self.cluster, objective=self.objective)


_ZONES = ("a", "b")
_PORTS = (HostPort("0.0.0.0", "TCP", 80), HostPort("10.0.0.1", "TCP", 80), HostPort("10.0.0.2", "TCP", 80), HostPort("0.0.0.0", "UDP", 80))  # noqa: S104
_TAINTS = (Taint("dedicated", "ml", "NoSchedule"), Taint("slow", "", "PreferNoSchedule"))
_TOLERATION = Toleration("dedicated", "Equal", "ml", "")
_IN_ZONE_A = (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),)


@st.composite
def cases(draw: st.DrawFn, *, most_nodes: int = 6, most_roles: int = 4, most_pods: int = 5, plain: bool = False) -> Case:
    """Draw a gang and a cluster with constraints of all kinds and over-committed nodes.

    With ``plain``, only resources are constrained.
    """
    few = st.integers(0, 6)
    nodes = []
    used: dict[str, Amounts] = {}
    taken: dict[str, Sequence[HostPort]] = {}
    for index in range(draw(st.integers(0 if not plain else 1, most_nodes))):
        name = f"node-{index}"
        fields: dict[str, object] = {} if plain else {"labels": {"zone": draw(st.sampled_from(_ZONES))}}
        if not plain:
            fields["taints"] = tuple(draw(st.lists(st.sampled_from(_TAINTS), max_size=1)))
            fields["is_unschedulable"] = draw(st.integers(0, 9)) == 0
            fields["is_ready"] = draw(st.integers(0, 9)) != 0
            taken[name] = draw(st.lists(st.sampled_from(_PORTS), max_size=1))
        nodes.append(
            node(name, {"pods": draw(st.integers(1, 8)), "cpu": draw(few) * 1000, "memory": draw(few) * GI, GPU: draw(few)}, **fields)
        )
        used[name] = {"cpu": draw(st.sampled_from((0, 0, 1500))), "pods": draw(st.integers(0, 2))}
    gang: list[Pod] = []
    for index in range(draw(st.integers(1, most_roles))):
        wants: dict[str, object] = {}
        if not plain:
            wants = {
                "node_selector": draw(st.sampled_from(((), (), (("zone", "b"),)))),
                "affinity": draw(st.sampled_from((None, None, _IN_ZONE_A))),
                "tolerations": draw(st.sampled_from(((), (_TOLERATION,)))),
                "host_ports": tuple(draw(st.lists(st.sampled_from(_PORTS), max_size=1))),
            }
        amounts = {"cpu": draw(few) * 500, "memory": draw(st.integers(0, 2)) * GI, GPU: draw(st.integers(0, 2))}
        gang += pods(f"role-{index}", draw(st.integers(1, most_pods)), amounts, **wants)
    minimum = draw(st.integers(0, len(gang)))
    return Case(tuple(gang), minimum, snapshot(nodes, used, taken), draw(st.sampled_from(Objective)), draw(st.integers(0, 99)))


def random_counts(problem: Problem, seed: int) -> np.ndarray:
    """Return a random placement that exceeds no capacity: int64[roles, nodes]."""
    rng = np.random.default_rng(seed)
    counts = np.zeros_like(problem.slots)
    free = problem.free.copy()
    for role in rng.permutation(len(problem.roles)).tolist():
        for row in rng.permutation(len(problem.nodes)).tolist():
            while (
                problem.admits[role, row]
                and counts[role].sum() < problem.count[role]
                and (problem.demand[role] <= free[:, row]).all()
                and rng.random() < 0.7
            ):
                counts[role, row] += 1
                free[:, row] -= problem.demand[role]
    return counts
