"""Asks this scheduler about one pod on a small cluster: which nodes may take the pod, and why others may not."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from allaboard.cluster.namespaces import NAME_LABEL
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.node import node_from
from allaboard.model.pod import Pod, pod_from
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, Plan, SearchSettings, search, verify
from allaboard.placement.rules.members import rules_of
from allaboard.placement.rules.verify import Violation
from allaboard.planning.gang_problem import Packings, problem_of
from allaboard.planning.resolve import resolve
from allaboard.report.reason_words import reason

from .storage import show

Body = dict[str, Any]


@dataclass(frozen=True)
class Ours:
    """One pod, as a gang of its own, and the snapshot of the cluster for which the pod is resolved."""

    pod: Pod
    gang: Gang
    snapshot: Snapshot

    @classmethod
    def of(
        cls, pod: Body, nodes: Sequence[Body], bound: Sequence[Body], storage: Sequence[Body], namespaces: Mapping[str, Mapping[str, str]]
    ) -> "Ours":
        """Return the pod beside the other objects, all as the API server has them; ``namespaces`` have labels by name."""
        view = ClusterView()
        for name, labels in namespaces.items():
            view.namespaces.upsert(name, {**labels, NAME_LABEL: name})
        for raw in nodes:
            view.upsert_node(node_from(raw))
        waiting = pod_from(pod)
        for each in (*map(pod_from, bound), waiting):
            view.upsert_pod(each)
        show(view, storage)
        assert not (waiting.malformed or waiting.spec.unsupported), waiting
        alone = Gang(GangKey(waiting.namespace, waiting.name, "Pod"), 1, (waiting,), 0, 0.0, Objective.BINPACK, 60)
        return cls(waiting, resolve(alone, view.volumes, view), view.snapshot())

    @cached_property
    def plan(self) -> Plan:
        """The placement that a search finds."""
        problem = problem_of(self.gang, 1, self.snapshot, NodeFilters(), Packings().of(self.gang))
        return search(problem, SearchSettings(generations=1, min_generations=1), 1)

    @property
    def reasons(self) -> Mapping[str, int]:
        """The number of nodes by the reason for which they refuse the pod, in the words of kube-scheduler's newest release."""
        (role,) = self.plan.explanation.roles
        found: Counter[str] = Counter()
        for why, number in role.reasons:
            found[re.sub(r"untolerated taint \{.*\}", "untolerated taint(s)", reason(why))] += number
        return dict(found)

    def wrong_on(self, node: str) -> tuple[Violation, ...]:
        """Return what the last check before a bind finds wrong with the pod on a node."""
        return verify({self.pod.uid: node}, self.gang.candidates, self.snapshot, rules_of(self.gang))
