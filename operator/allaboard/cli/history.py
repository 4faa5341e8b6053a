"""``allaboard history``: show the last decisions about all gangs, or about one gang."""

import click

from allaboard.cli.boards import Shows, Wanted
from allaboard.cli.durations import moment
from allaboard.cli.tables import print_with_details, table_of
from allaboard.cli.watching import note_hidden, show, without_title
from allaboard.sight.values import Decisions


def history(
    gang: str | None,
    namespace: str,
    every_namespace: bool,
    api: str | None,
    snapshots: tuple[str, ...],
    kubeconfig: str | None,
    output: str,
) -> None:
    """Print the last decisions, the oldest first. Raises ``BadInputError`` if they can't be read."""

    async def read(board: Shows) -> Decisions:
        found = await board.decisions()
        rows = [row for row in found.decisions if (every_namespace or row.namespace == namespace) and gang in (None, row.name)]
        return found.model_copy(update={"decisions": rows})

    def print_table(found: Decisions) -> None:
        if found.decisions:
            _print(found)
        else:
            click.echo("no decisions are known; only the operator that leads remembers them, since its start", err=True)
        note_hidden(found.hidden, "decisions")

    show(Wanted(api or "", snapshots, kubeconfig or ""), read, print_table, output=output)


def _print(found: Decisions) -> None:
    table = table_of("TIME", "NAMESPACE", "GANG", "DECISION", "REASON", "TIMES")
    for row in found.decisions:
        table.add_row(moment(row.last_at, found.at), row.namespace, row.name, row.decision, row.reason or "<none>", str(row.times))
    print_with_details(table, [[without_title(row.namespace, row.name, row.message)] if row.message else [] for row in found.decisions])
