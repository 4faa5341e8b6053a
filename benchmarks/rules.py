"""Measure how long it takes to place gangs with rules between pods, from the present cluster to a plan that is checked again.

- One member for each host: 256 pods whose anti-affinity selects each other, on 5,000 nodes. 50,000 bound pods state such terms, too.
- Apart where possible: the same, with terms that pods prefer instead of require.
- Spread over zones: 64 pods with a topology spread constraint, on 500 nodes with 1,000 pods.
- A local volume for each member: 64 pods with a claim each, on 500 nodes with 1,000 free local volumes.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from allaboard.cluster.storage_objects import Claim, Shape, StorageClass, StoredVolume
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm, SpreadConstraint
from allaboard.placement import NodeFilters, SearchSettings, search, verify
from allaboard.placement.rules.members import rules_of
from allaboard.planning.gang_problem import Packings, problem_of
from allaboard.planning.resolve import resolve
from allaboard.runtime.garbage import freeze_objects

HOSTNAME = "kubernetes.io/hostname"
SPEC = SchedulingSpec((("cpu", 100), ("memory", 1 << 28), ("pods", 1)))
APPS = 500


@dataclass(frozen=True, slots=True)
class Case:
    """A gang on a cluster, and the limit of the median in milliseconds."""

    title: str
    make: Callable[[], tuple[Gang, ClusterView]]
    bar: float


def a_pod(name: str, app: str, spec: SchedulingSpec, node_name: str = "") -> Pod:
    phase = "Running" if node_name else "Pending"
    found = Pod("default", name, name, "1", 0.0, "allaboard", node_name, phase, 0, spec)
    return replace(found, labels=(("app", app),))


def a_view(nodes: int, zones: int = 3) -> ClusterView:
    view = ClusterView()
    for number in range(nodes):
        labels = {HOSTNAME: f"n{number:05}", "zone": f"z{number % zones}"}
        name, allocatable = f"n{number:05}", (("cpu", 64_000), ("memory", 1 << 38), ("pods", 250))
        view.upsert_node(Node(name, name, allocatable, labels))
    return view


def a_gang(pods: Iterator[Pod]) -> Gang:
    members = tuple(pods)
    return Gang(GangKey("default", "g"), len(members), members, 0, 0.0, Objective.BINPACK, 60)


def per_host(preferred: bool = False, nodes: int = 5000, bound: int = 50_000, members: int = 256) -> tuple[Gang, ClusterView]:
    """Return a gang with one member for each host, beside pods with such terms. If ``preferred``, all terms are preferred terms."""
    view, rng = a_view(nodes), np.random.default_rng(0)

    def spec_of(app: str) -> SchedulingSpec:
        term = PodTerm(HOSTNAME, (LabelExpression("app", "In", (app,)),))
        return replace(SPEC, preferred_pods=((-100, term),)) if preferred else replace(SPEC, anti_affinity=(term,))

    for app in (f"app{number}" for number in range(APPS)):
        spec = spec_of(app)
        for number, node in enumerate(rng.choice(nodes, bound // APPS, replace=False).tolist()):
            view.upsert_pod(a_pod(f"{app}-{number}", app, spec, f"n{node:05}"))
    spec = spec_of("app7")
    return a_gang(a_pod(f"g{number}", "app7", spec) for number in range(members)), view


def over_zones(nodes: int = 500, members: int = 64) -> tuple[Gang, ClusterView]:
    """Return a gang that is spread over zones, beside pods of which some count."""
    view, rng = a_view(nodes), np.random.default_rng(0)
    for number in range(nodes * 2):
        view.upsert_pod(a_pod(f"b{number}", f"app{number % 50}", SPEC, f"n{int(rng.integers(nodes)):05}"))
    spec = replace(SPEC, spread=(SpreadConstraint("zone", (LabelExpression("app", "In", ("app7",)),), 1),))
    return a_gang(a_pod(f"g{number}", "app7", spec) for number in range(members)), view


def with_volumes(nodes: int = 500, members: int = 64) -> tuple[Gang, ClusterView]:
    """Return a gang whose members have a claim each, on nodes with two free local volumes each."""
    view = a_view(nodes)
    view.volumes.classes.upsert("local", StorageClass(waits=True))
    for number in range(2 * nodes):
        here = NodeSelectorTerm((Requirement(HOSTNAME, "In", (f"n{number // 2:05}",)),))
        view.volumes.volumes.upsert(f"v{number}", StoredVolume(((here,),), shape=Shape("local", 1 << 30), is_free=True))
    for number in range(members):
        view.volumes.claims.upsert(f"default/c{number}", Claim("", shape=Shape("local", 1 << 30)))
    return a_gang(a_pod(f"g{number}", "g", replace(SPEC, claims=(f"c{number}",))) for number in range(members)), view


CASES = (
    Case("256 pods, one for each host, 5,000 nodes with 50,000 such pods", per_host, 1000.0),
    Case("256 pods, apart where possible, 5,000 nodes with 50,000 such pods", partial(per_host, preferred=True), 1000.0),
    Case("64 pods spread over 3 zones, 500 nodes", over_zones, 150.0),
    Case("64 pods with a local volume each, 500 nodes", with_volumes, 150.0),
)


def decided(gang: Gang, view: ClusterView, filters: NodeFilters, seed: int) -> float:
    """Return the milliseconds from the cluster to a checked plan. Raises ``AssertionError`` if the gang isn't placed."""
    started = time.perf_counter()
    resolved = resolve(gang, view.volumes, view)
    rules = rules_of(resolved)
    problem = problem_of(resolved, gang.required, view.snapshot(), filters, Packings().of(resolved))
    plan = search(problem, SearchSettings(), seed)
    if not plan.feasible or verify(dict(plan.assignments), resolved.candidates, view.snapshot(), rules):
        raise AssertionError(f"{gang.key}: the gang isn't placed by its rules")
    return (time.perf_counter() - started) * 1000


@click.command(help=__doc__)
@click.option("--seeds", default=15, show_default=True, help="Decisions for each case.")
@click.option("--quick", is_flag=True, help="Three decisions for each case.")
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True)
def main(seeds: int, quick: bool, output: str) -> None:
    """Measure and print a table or JSON."""
    rows = []
    for case in track(CASES, console=Console(stderr=True), description="cases", transient=True):
        gang, view = case.make()
        freeze_objects()
        filters = NodeFilters()
        first = decided(gang, view, filters, 0)
        times = sorted(decided(gang, view, filters, seed) for seed in range(3 if quick else seeds))
        median = statistics.median(times)
        figures = {"first ms": round(first, 1), "p50 ms": round(median, 1), "most ms": round(times[-1], 1)}
        rows.append({"gang on cluster": case.title, **figures, "bar": case.bar, "held": "yes" if median <= case.bar else "NO"})
    if output == "json":
        json.dump(rows, sys.stdout, indent=2)
        print()
        return
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
