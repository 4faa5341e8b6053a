"""``allaboard explain``: show why a gang waits, what it asks for, what nodes lack for it, where it would run, and what would help."""

import math
from collections.abc import Iterator, Sequence

import click
from rich.text import Text

from allaboard.cli.boards import Shows, Wanted
from allaboard.cli.durations import duration, moment
from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import PlainTable, print_tables, print_wrapped, table_of
from allaboard.cli.watching import show, without_title
from allaboard.model.quantities import format_amount
from allaboard.sight.amounts import scheduler_amount
from allaboard.sight.values import Amounts, Decision, Gang, NodeGroup, Outlook, OutlookNode

_FEW = 5  # decisions that are shown
_MOST_SQUARES = 16
_HERE, _MISSING = "\u25a1", "\u2717"  # squares of a node's amount: free for the gang, and lacking


def explain(gang: str, namespace: str, api: str | None, snapshots: tuple[str, ...], kubeconfig: str | None, output: str) -> None:
    """Print what is known of a gang. Raises ``BadInputError`` if there is no such gang."""

    async def read(board: Shows) -> Gang:
        found = await board.gang(namespace, gang)
        if found is None:
            raise BadInputError(
                f"no gang {gang} in namespace {namespace}: neither a PodGroup, nor labels of pods, nor a pod, nor its owner has this name;"
                " `allaboard queue` lists the gangs that wait, and -n names another namespace"
            )
        return found

    show(Wanted(api or "", snapshots, kubeconfig or ""), read, _print, output=output)


def answer_of(found: Gang) -> str:
    """Return in one sentence whether the gang runs, or why it waits."""
    row = found.row
    title = f"Gang {row.namespace}/{row.name}"
    message = without_title(row.namespace, row.name, row.message)
    if found.advice:
        message = message.removesuffix(found.advice).rstrip()  # advice has a line of its own
    if row.position is None:
        return f"{title} {_progress(found)}" if row.members.bound else f"{title} {_absence(found, message)}"
    evicted = _evicted(found)
    waits = f"was evicted at {moment(evicted.last_at, found.at)} ({evicted.message}) and waits" if evicted else "waits"
    state = f"{row.state}: " if row.state else ""
    reason = f"{state}{message}" if message else "It was not attempted yet."
    return f"{title} {waits}, {row.members.bound} of {row.members.needed} members have a node. {reason}"


def _progress(found: Gang) -> str:
    """Return how many members of a bound gang run, and where those are that don't."""
    members = found.row.members
    others = [each for each in found.members if each.node and each.phase not in ("Running", "Succeeded")]
    named = [f"{each.pod} is {each.phase} on {each.node}" for each in others[:_FEW]]
    more = f", and {len(others) - _FEW} more" if len(others) > _FEW else ""
    return f"runs: {members.running} of {members.needed} members run" + (f"; {', '.join(named)}{more}" if named else "")


def _absence(found: Gang, message: str) -> str:
    """Return why no member of a gang lives."""
    if found.pods_of_others:
        named = ", ".join(f"{number} of its pods say{'s' if number == 1 else ''} {name}" for name, number in found.pods_of_others.items())
        return f"isn't scheduled by Allaboard, since its pods name another scheduler (schedulerName: {named})"
    if found.members or found.row.state == "Ended":
        return f"has ended: {message or 'none of its members is left'}"
    needed = found.row.members.needed
    return f"has no pods, and needs {needed}: the events of the job that should create them say why (kubectl describe)"


def _evicted(found: Gang) -> Decision | None:
    """Return the last eviction of a gang that was not bound since; None if there is none."""
    for each in reversed(found.history):
        if each.decision == "Evict":
            return each
        if each.decision == "Bind":
            return None
    return None


def _print(found: Gang) -> None:
    now = found.at
    print_wrapped(answer_of(found))
    for line in _facts(found, now):
        print_wrapped(line)
    click.echo()
    members = table_of("POD", "ROLE", "NODE", "PHASE")
    for member in found.members:
        members.add_row(member.pod, member.role or "<none>", member.node or "<none>", member.phase)
    tables = [_roles(found)]
    if found.node_groups:
        tables.append(_node_groups(found.node_groups))
    if found.outlook is not None:
        tables.append(_outlook(found.outlook))
        if found.outlook.waits_for:
            tables.append(_waits_for(found.outlook, now))
    print_tables(*tables, members)
    if found.history:
        click.echo()
        decisions = table_of("TIME", "DECISION", "REASON", "TIMES", "MESSAGE")
        for each in found.history[-_FEW:]:
            message = without_title(each.namespace, each.name, each.message)
            decisions.add_row(moment(each.last_at, now), each.decision, each.reason or "<none>", str(each.times), message)
        print_tables(decisions)


def _facts(found: Gang, now: float) -> Iterator[str]:
    row = found.row
    if row.position is not None:
        yield f"It is number {row.position} in the queue, with priority {row.priority}."
    if row.waiting_since is not None:
        yield f"It has waited for {duration(now - row.waiting_since)}."
    is_kept_back = row.state == "Reserved"
    if row.expected_start is not None:
        end = f", when {row.waits_for} has ended" if row.waits_for and not is_kept_back and found.reservation is not None else ""
        yield f"It is expected to start at about {moment(row.expected_start, now)}{end}."
    elif row.waits_for and not is_kept_back:
        yield f"It starts once {row.waits_for} has ended; no walltime says when that will be."
    if is_kept_back:
        ahead = row.waits_for or "a gang of another namespace"
        yield (
            f"Capacity that would be enough is kept for {ahead}, which is ahead of it in the queue. A gang that ends before that gang is"
            " expected to start may start now: state how long it runs with the annotation allaboard.dev/walltime."
        )
    if (kept := found.reservation) is not None:
        nodes = f"{len(kept.nodes)} node{'s' if len(kept.nodes) > 1 else ''}"
        others = "1 other job has" if kept.awaits == 1 else f"{kept.awaits} other jobs have"
        why = f"{kept.evicts} pods are evicted for it" if kept.evicts else f"{others} to end before"
        yield f"Capacity of {nodes} is reserved for it; {why} (times: {kept.basis})."
    if (plan := found.plan) is not None and row.position is not None and not plan.feasible:
        found_out = "proved that it doesn't fit now" if plan.feasible is False else "found no placement, and no proof that there is none"
        yield f"The last search {found_out}; its best placement has nodes for {plan.placed} members and none for {plan.unplaced}."
    if found.advice:
        yield found.advice


def _roles(found: Gang) -> PlainTable:
    names = sorted({name for role in found.roles for name in role.requests} - {"pods"})
    table = table_of("ROLE", "PODS", "BOUND", *(name.upper() for name in names))
    for role in found.roles:
        amounts = [format_amount(name, scheduler_amount(name, role.requests[name])) if name in role.requests else "" for name in names]
        table.add_row(role.role or "<none>", str(len(role.pods)), str(role.bound), *amounts)
    return table


def _node_groups(groups: Sequence[NodeGroup]) -> PlainTable:
    table = table_of("ROLE", "NODES", "TAKE", "LACK", "WHY", "NAMES", wrapped="NAMES")
    for each in groups:
        names = ", ".join(each.names) + (", \u2026" if each.names and len(each.names) < each.nodes else "")
        table.add_row(
            each.role or "<none>", str(each.nodes), f"{each.takes} each", _amounts(each.lacks), "; ".join(each.reasons) or "<none>", names
        )
    return table


def _outlook(outlook: Outlook) -> PlainTable:
    title = "WOULD RUN ON" if outlook.kind == "reserved" else "NEAREST MISS ON"
    table = table_of(title, "PODS", "GPUS", "USE", "LACKS NOW")
    for each in outlook.nodes:
        table.add_row(each.node, str(each.pods), f"{each.gpus:g}", _squares(each), _amounts(each.lacks))
    if outlook.unplaced:
        table.add_row("<no node>", str(outlook.unplaced), "", "", "")
    return table


def _squares(node: OutlookNode) -> Text:
    """Return a square for each GPU that the gang would use of a node, else for each core; those that aren't free now come last."""
    resource = "nvidia.com/gpu" if node.requests.get("nvidia.com/gpu") else "cpu"
    asked, lacking = node.requests.get(resource, 0), node.lacks.get(resource, 0)
    number = math.ceil(max(0.0, min(asked, _MOST_SQUARES)))
    missing = math.ceil(max(0.0, min(number * lacking / asked, number))) if asked > 0 else 0
    return Text.assemble((_HERE * (number - missing), "green"), (_MISSING * missing, "bold red"))


def _waits_for(outlook: Outlook, now: float) -> PlainTable:
    table = table_of("WAITS FOR", "ENDS", "CERTAINTY", "NODES", wrapped="NODES")
    for each in outlook.waits_for:
        table.add_row(each.gang or "<another namespace>", moment(each.ends, now), each.basis, ", ".join(each.nodes))
    return table


def _amounts(amounts: Amounts) -> str:
    return ", ".join(f"{format_amount(name, scheduler_amount(name, amount))} {name}" for name, amount in amounts.items()) or "<none>"
