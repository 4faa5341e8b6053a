"""``allaboard explain``: show why a gang waits, what it asks for, where its members are, and the last decisions about it."""

from collections.abc import Iterator

import click
from rich.table import Table

from allaboard.cli.boards import Shows, Wanted
from allaboard.cli.durations import duration, moment
from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import print_tables, print_wrapped, table_of
from allaboard.cli.watching import show
from allaboard.model.quantities import format_amount
from allaboard.sight.amounts import scheduler_amount
from allaboard.sight.values import Gang, GangRow

_FEW = 5  # decisions that are shown


def explain(gang: str, namespace: str, api: str | None, snapshots: tuple[str, ...], kubeconfig: str | None, output: str) -> None:
    """Print what is known of a gang. Raises ``BadInputError`` if there is no such gang."""

    async def read(board: Shows) -> Gang:
        found = await board.gang(namespace, gang)
        if found is None:
            raise BadInputError(f"no gang {gang} in namespace {namespace}: neither a PodGroup, nor labels of pods, nor a pod of this name")
        return found

    show(Wanted(api or "", snapshots, kubeconfig or ""), read, _print, output=output)


def answer_of(row: GangRow) -> str:
    """Return in one sentence whether the gang runs, or why it waits."""
    bound = f"{row.members.bound} of {row.members.needed} members have a node"
    if row.position is None:
        return f"Gang {row.namespace}/{row.name} {'runs' if row.members.bound else 'has ended'}: {row.message or bound}"
    reason = f"{row.state}: {row.message}" if row.message else "It was not attempted yet."
    return f"Gang {row.namespace}/{row.name} waits, {bound}. {reason}"


def _print(found: Gang) -> None:
    row, now = found.row, found.at
    print_wrapped(answer_of(row))
    for line in _facts(found, now):
        print_wrapped(line)
    click.echo()
    members = table_of("POD", "ROLE", "NODE", "PHASE")
    for member in found.members:
        members.add_row(member.pod, member.role or "<none>", member.node or "<none>", member.phase)
    print_tables(_roles(found), members)
    if found.history:
        click.echo()
        decisions = table_of("TIME", "DECISION", "REASON", "TIMES", "MESSAGE")
        for each in found.history[-_FEW:]:
            decisions.add_row(moment(each.last_at, now), each.decision, each.reason or "<none>", str(each.times), each.message)
        print_tables(decisions)


def _facts(found: Gang, now: float) -> Iterator[str]:
    row = found.row
    if row.position is not None:
        yield f"It is number {row.position} in the queue, with priority {row.priority}."
    if row.waiting_since is not None:
        yield f"It has waited for {duration(now - row.waiting_since)}."
    if row.expected_start is not None:
        yield f"It is expected to start at about {moment(row.expected_start, now)}."
    if (kept := found.reservation) is not None:
        nodes = f"{len(kept.nodes)} node{'s' if len(kept.nodes) > 1 else ''}"
        why = f"{kept.evicts} pods are evicted for it" if kept.evicts else f"{kept.awaits} other jobs have to end before"
        yield f"Capacity of {nodes} is reserved for it; {why} (times: {kept.basis})."
    if (plan := found.plan) is not None and row.position is not None:
        yield f"The last search placed {plan.placed} members and left out {plan.unplaced}; it ended by {plan.stopped_by}."


def _roles(found: Gang) -> Table:
    names = sorted({name for role in found.roles for name in role.requests} - {"pods"})
    table = table_of("ROLE", "PODS", "BOUND", *(name.upper() for name in names))
    for role in found.roles:
        amounts = [format_amount(name, scheduler_amount(name, role.requests[name])) if name in role.requests else "" for name in names]
        table.add_row(role.role or "<none>", str(len(role.pods)), str(role.bound), *amounts)
    return table
