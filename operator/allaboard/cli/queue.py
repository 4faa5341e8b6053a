"""``allaboard queue``: show the gangs that wait, in the order in which they are attempted, and why each of them waits."""

from collections.abc import Iterator, Sequence

import click

from allaboard.cli.boards import Shows, Wanted
from allaboard.cli.durations import duration, moment
from allaboard.cli.tables import is_too_wide, print_aligned, print_with_details, table_of
from allaboard.cli.watching import note_hidden, show, without_title
from allaboard.sight.values import GangRow, Queue

_COLUMNS = ("#", "GANG", "PRIO", "MEMBERS", "GPUS", "WAITED", "START", "REASON")


def queue(
    namespace: str | None, api: str | None, snapshots: tuple[str, ...], kubeconfig: str | None, output: str, watch: bool, every: float
) -> None:
    """Print the queue, once or again and again. Raises ``BadInputError`` if it can't be read."""

    async def read(board: Shows) -> Queue:
        found = await board.queue()
        rows = [row for row in found.gangs if namespace in (None, row.namespace)]
        return found.model_copy(update={"gangs": rows})

    def print_table(found: Queue) -> None:
        if found.gangs:
            _print(found, is_wide=output == "wide")
        else:
            click.echo(f"no gang waits in namespace {namespace}" if namespace else "no gang waits", err=True)
        note_hidden(found.hidden, "gangs")

    show(Wanted(api or "", snapshots, kubeconfig or ""), read, print_table, output=output, every=every if watch else None)


def _print(found: Queue, *, is_wide: bool) -> None:
    wide, narrow = table_of(*_COLUMNS, "WAITS FOR", "MESSAGE"), table_of(*_COLUMNS)
    for row in found.gangs:
        cells = _cells(row, found.at)
        wide.add_row(*cells, row.waits_for or "<none>", without_title(row.namespace, row.name, row.message))
        narrow.add_row(*cells)
    if is_wide and not is_too_wide(wide):
        print_aligned(wide)
    else:
        print_with_details(narrow, [list(_details(row)) for row in found.gangs])


def _details(row: GangRow) -> Iterator[str]:
    if row.message:
        yield without_title(row.namespace, row.name, row.message)
    if row.waits_for:
        yield f"waits for {row.waits_for}"


def _cells(row: GangRow, now: float) -> Sequence[str]:
    return (
        str(row.position),
        f"{row.namespace}/{row.name}",
        str(row.priority),
        f"{row.members.bound}/{row.members.needed}",
        f"{row.gpus:g}",
        "<unknown>" if row.waiting_since is None else duration(now - row.waiting_since),
        "<unknown>" if row.expected_start is None else moment(row.expected_start, now),
        row.state or "<none>",
    )
