"""``allaboard plan``: show where gangs would be placed, and why other gangs don't fit. Nothing is bound.

Only the answer goes to stdout, so that scripts can read it; notes and errors go to stderr.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
import yaml

from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import PlainTable, is_too_wide, print_aligned, print_notes, print_tables, print_with_details, table_of
from allaboard.model.gpus import Cards, is_gpu
from allaboard.model.pod import Reading
from allaboard.model.reasons import Code
from allaboard.settings.options import CONFIG_VARIABLE, Settings, SettingsError, load_settings
from allaboard.whatif.documents import ManifestError
from allaboard.whatif.jobgroups import MPI, TRAINING, with_pod_groups
from allaboard.whatif.manifests import Manifests, read_manifests, refuse_mistakes
from allaboard.whatif.snapshots import Cluster, read_cluster
from allaboard.whatif.whatif import PlannedGang, plan_gangs

SOME_DO_NOT_FIT = 1
_WIDE_ENOUGH = 10_000
_COLUMNS = ("NAMESPACE", "NAME", "MIN", "PODS", "FITS", "REASON")


def plan(
    files: tuple[str, ...],
    snapshots: tuple[str, ...],
    namespace: str,
    output: str,
    objective: str | None,
    strategy: str | None,
    config: str | None,
    kubeconfig: str | None,
    gang_scheduler_name: str | None,
    mpi_gang_scheduler_name: str | None,
    skip_unknown: bool,
) -> None:
    """Print where the gangs of the manifests would be placed. Exits with 1 if a gang doesn't fit. Raises ``BadInputError``."""
    if config:
        os.environ[CONFIG_VARIABLE] = config
    started = time.monotonic()
    notes: list[str] = []
    try:
        manifests = read_manifests(files, namespace)
        stated = {"objective": objective, "strategy": strategy}
        settings = _settings({name: value for name, value in stated.items() if value}, snapshots, kubeconfig, notes)
        reading = settings.reading
        cluster = read_cluster(snapshots, reading) if snapshots else _live_cluster(kubeconfig, notes, reading)
        refuse_mistakes(manifests, cluster.definitions, are_all=cluster.has_all_definitions, skip_unknown=skip_unknown)
        notes += _snapshot_notes(cluster, snapshots)
        flags = {TRAINING: gang_scheduler_name, MPI: mpi_gang_scheduler_name}
        stated_flags = {version: name for version, name in flags.items() if name is not None}
        manifests = with_pod_groups(manifests, {**cluster.gang_schedulers, **stated_flags})
        notes += manifests.notes
        if not snapshots and settings.gpu_metrics.source != "off" and _request_gpus(manifests, cluster):
            cluster.cards = _live_cards(settings, cluster, notes)
        gangs = asyncio.run(plan_gangs(manifests, cluster, settings, notes))
    except (ManifestError, SettingsError) as error:
        raise BadInputError(str(error)) from error
    print_notes(notes)
    if not gangs:
        click.echo("note: no pods to place", err=True)
    _PRINTERS[output](gangs, time.monotonic() - started)
    if not all(gang.feasible for gang in gangs):
        sys.exit(SOME_DO_NOT_FIT)


def _snapshot_notes(cluster: Cluster, snapshots: Sequence[str]) -> Iterator[str]:
    """Yield notes on a snapshot that may lack nodes or pods. Without pods, a plan is too optimistic."""
    if not snapshots:
        return
    files, namespaces = ", ".join(snapshots), sorted({pod.namespace for pod in cluster.pods})
    if not cluster.nodes:
        yield f"no nodes in {files}: on a cluster without nodes nothing fits"
    elif not namespaces:
        yield f"no pods in {files}: its nodes count as empty"
    elif len(namespaces) == 1:
        yield f"no pods in {files} except those of namespace {namespaces[0]}; kubectl's -A writes the pods of all namespaces"


def as_json(gangs: Sequence[PlannedGang], elapsed_seconds: float) -> dict[str, Any]:
    """Return the answer as a document."""
    return {
        "gangs": [
            {
                "namespace": gang.namespace,
                "name": gang.name,
                "minMember": gang.min_member,
                "feasible": gang.feasible,
                "reason": gang.reason,
                "assignments": [
                    {"pod": pod, "node": node, **({"gpus": gang.gpus[pod]} if pod in gang.gpus else {})} for pod, node in gang.assignments
                ],
                "unplaced": list(gang.unplaced),
                "message": gang.message,
                "search": {
                    "seedScore": gang.search.seed_score,
                    "score": gang.search.score,
                    "generations": gang.search.generations,
                    **({"wantedGenerations": gang.search.wanted} if gang.search.wanted else {}),
                    "stoppedBy": gang.search.stopped_by,
                    "foundBy": gang.search.found_by,
                    "steps": [
                        {"name": step.name, "placed": step.placed, "score": round(step.score, 4), "generations": step.generations}
                        for step in gang.search.steps
                    ],
                },
            }
            for gang in gangs
        ],
        "elapsedSeconds": round(elapsed_seconds, 3),
    }


def _print_json(gangs: Sequence[PlannedGang], elapsed_seconds: float) -> None:
    click.echo(json.dumps(as_json(gangs, elapsed_seconds), indent=2))


def _print_yaml(gangs: Sequence[PlannedGang], elapsed_seconds: float) -> None:
    click.echo(yaml.safe_dump(as_json(gangs, elapsed_seconds), sort_keys=False, width=_WIDE_ENOUGH), nl=False)


def _print_table(gangs: Sequence[PlannedGang], elapsed_seconds: float) -> None:
    if not gangs:
        return
    table = table_of(*_COLUMNS, "NODES", "MESSAGE")
    for gang in gangs:
        table.add_row(*_about(gang), _nodes(gang), gang.message)
    _print_gangs(table, gangs, [_details(gang) for gang in gangs])


def _print_gangs(table: PlainTable, gangs: Sequence[PlannedGang], details: Sequence[Sequence[str]]) -> None:
    """Print ``table`` if each row fits into a line; else its first columns, with the ``details`` below each gang."""
    if not is_too_wide(table):
        print_aligned(table)
        return
    narrow = table_of(*_COLUMNS)
    for gang in gangs:
        narrow.add_row(*_about(gang))
    print_with_details(narrow, details)


def _about(gang: PlannedGang) -> Sequence[str]:
    return gang.namespace, gang.name, str(gang.min_member), _pods(gang), _fits(gang), gang.reason or "<none>"


def _details(gang: PlannedGang) -> Sequence[str]:
    """Return the texts that are printed below a gang if the line is too short for them."""
    return [gang.message, *([f"on {_nodes(gang)}"] if gang.assignments else [])]


def _print_wide(gangs: Sequence[PlannedGang], elapsed_seconds: float) -> None:
    """Print the table with columns on each search, and a second table with a line for each pod."""
    if not gangs:
        return
    how_found = ("FOUND-BY", "SEED", "SCORE", "GENERATIONS", "STOPPED-BY")
    table = table_of(*_COLUMNS, *how_found, "NODES", "MESSAGE")
    pods = table_of("NAMESPACE", "POD", "GANG", "NODE")
    found_by: list[Sequence[str]] = []
    for gang in gangs:
        found = gang.search
        scores = [f"{score:.2f}" if score is not None else "<none>" for score in (found.seed_score, found.score)]
        generations = f"{found.generations} of {found.wanted}" if found.wanted else str(found.generations)
        how = (found.found_by or "<none>", *scores, generations, found.stopped_by or "<none>")
        table.add_row(*_about(gang), *how, _nodes(gang), gang.message)
        found_by.append([*_details(gang), ", ".join(f"{name.lower()} {value}" for name, value in zip(how_found, how, strict=True))])
        for pod, node in (*gang.assignments, *((pod, "<none>") for pod in gang.unplaced)):
            pods.add_row(gang.namespace, pod, gang.name, node)
    _print_gangs(table, gangs, found_by)
    click.echo()
    print_tables(pods)


_PRINTERS: dict[str, Callable[[Sequence[PlannedGang], float], None]] = {
    "table": _print_table,
    "wide": _print_wide,
    "json": _print_json,
    "yaml": _print_yaml,
}


def _settings(flags: Mapping[str, object], snapshots: Sequence[str], kubeconfig: str | None, notes: list[str]) -> Settings:
    """Return the settings in force: for a live cluster those of its operator, unless the command states settings."""
    if snapshots:
        return load_settings(flags)
    from allaboard.cli.installed import settings_in_force  # imported here: see _live_cluster

    return settings_in_force(kubeconfig or "", flags, notes)


def _request_gpus(manifests: Manifests, cluster: Cluster) -> bool:
    """Return whether any pod of the manifests requests GPUs. One pod of each template is checked."""
    first = {id(each.origin): each for each in manifests.pods}.values()
    specs = (cluster.planned_from(each.raw).spec for each in first)
    return any(spec.gpus or any(is_gpu(resource) for resource, _ in spec.requests) for spec in specs)


def _live_cards(settings: Settings, cluster: Cluster, notes: list[str]) -> Cards:
    from allaboard.whatif.live import read_cards  # imported here: see _live_cluster

    return asyncio.run(read_cards(settings, {node.name for node in cluster.nodes}, notes))


def _live_cluster(kubeconfig: str | None, notes: list[str], reading: Reading) -> Cluster:
    # Imported here: a plan on a snapshot doesn't need the client, and importing it takes longer than most plans.
    from allaboard.kube.client import ApiError, CredentialsError, kubeconfig_in_use
    from allaboard.whatif.live import read_live_cluster

    if kubeconfig:
        os.environ["KUBECONFIG"] = kubeconfig
    try:
        return asyncio.run(read_live_cluster(notes, reading))
    except CredentialsError as error:
        raise BadInputError(f"the cluster can't be read: {error}") from error
    except ApiError as error:
        raise BadInputError(f"the cluster of {kubeconfig_in_use() or 'this pod'} can't be read: {error}") from error


def _pods(gang: PlannedGang) -> str:
    return f"{len(gang.assignments)}/{len(gang.assignments) + len(gang.unplaced)}"


def _fits(gang: PlannedGang) -> str:
    return {True: "yes", False: "no", None: "unknown" if gang.reason == Code.HELD else "not found"}[gang.feasible]


def _nodes(gang: PlannedGang) -> str:
    counts = Counter(node for _, node in gang.assignments)
    return ", ".join(f"{node} ({count})" for node, count in sorted(counts.items())) or "<none>"
