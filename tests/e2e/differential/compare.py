"""Plays cases on a control plane: asks kube-scheduler and this scheduler about the same pod, and says how their answers differ."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from allaboard_sandbox.sandbox import NodeShape, node_object

from ..controlplane.client import Api
from ..controlplane.controlplane import ControlPlane, Options
from .answers import Answer, of_kube_scheduler, of_ours
from .cases import NAMESPACES, NODES, Case, draw

_OPTIONS = Options(controllers=("serviceaccount-controller",), has_kubelets=False)
"""Neither controllers nor kubelets change the nodes and pods of a case, so both schedulers see what the case states."""

_SETTLE_SECONDS = (0.1, 0.5, 2.0)
"""Seconds between the creation of the other objects and that of the pod, at each try of a case."""


@dataclass(slots=True)
class Comparison:
    """Cases that were played: the number by combination of rules, how many pods fit, and the disagreements."""

    api: Api
    rules: Counter[str] = field(default_factory=Counter)
    fits: int = 0
    disagreements: list[str] = field(default_factory=list)

    def play(self, seed: int, rule: str = "") -> None:
        """Play the case of a seed (``cases.draw``), and record a disagreement that remains if kube-scheduler's watches get more time."""
        case = draw(seed, rule)
        kinds = " + ".join(sorted(case.rules))
        problem, is_placed = "", False
        for seconds in _SETTLE_SECONDS:
            problem, is_placed = self._difference(case, seconds)
            if not problem:
                break
        self.rules[kinds] += 1
        self.fits += is_placed
        if problem:
            self.disagreements.append(f"case {seed} ({kinds}): {problem}")

    def _difference(self, case: Case, seconds: float) -> tuple[str, bool]:
        """Return how the answers to a case differ, empty if they agree; and whether kube-scheduler places the pod."""
        theirs, state = of_kube_scheduler(self.api, case, seconds)
        ours, more = of_ours(state)
        problem = difference(theirs, ours, not theirs.node or (more is not None and not more.wrong_on(theirs.node)))
        return f"{problem}\n  kube-scheduler: {theirs}\n  ours: {ours}" if problem else "", bool(theirs.node)


def difference(theirs: Answer, ours: Answer, is_admitted: bool) -> str:
    """Return how the answers differ; empty if they agree. ``is_admitted``: whether ours admits the node that kube-scheduler chose."""
    if bool(theirs.node) != bool(ours.node):
        return "one places the pod, and the other doesn't"
    if not is_admitted:
        return f"ours refuses {theirs.node}"
    return "" if theirs.node or theirs.reasons == ours.reasons else "other reasons"


@contextmanager
def comparison(folder: Path) -> Iterator[Comparison]:
    """Yield a comparison on a control plane of its own, with its files in ``folder``."""
    with ControlPlane(folder, _OPTIONS) as plane:
        for name in NODES:
            plane.api.request("POST", "/api/v1/nodes", node_object(name, NodeShape("2")))
        for name, labels in NAMESPACES.items():
            plane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            plane.processes.wait_until("kube-controller-manager", lambda account=account: plane.api.find(account) is not None)
        plane.start_scheduler()
        yield Comparison(plane.api)
