"""``allaboard top``: show how full the nodes are and by which gangs, and how many jobs of each size could start now."""

import string
from collections.abc import Iterator, Sequence
from itertools import cycle

from rich.text import Text

from allaboard.cli.boards import Shows, Wanted
from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import PlainTable, print_tables, table_of
from allaboard.cli.watching import show
from allaboard.sight.values import NodeRow, Nodes

SIZES = (1, 2, 4, 8)
"""Numbers of GPUs on one node, for which it is shown how many jobs could start."""

_MOST_SQUARES = 16
_FREE, _LETTERS = ".", string.ascii_letters
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red", "bright_cyan", "bright_magenta", "bright_yellow", "bright_green")


def top(by: str, api: str | None, snapshots: tuple[str, ...], kubeconfig: str | None, output: str, watch: bool, every: float) -> None:
    """Print the nodes, once or again and again. Raises ``BadInputError`` if they can't be read."""

    async def read(board: Shows) -> Nodes:
        found = await board.nodes()
        if not by:
            return found
        groups = await board.domains(by)
        if not groups.domains:
            known = ", ".join(groups.labels) or "none"
            raise BadInputError(f"--by {by}: no node has this label; labels that group nodes: {known}")
        nodes = [node.model_copy(update={"domain": groups.domains.get(node.name, "")}) for node in found.nodes]
        return found.model_copy(update={"grouped_by": by, "nodes": nodes})

    def print_table(found: Nodes) -> None:
        print_tables(_nodes(found, letters_of(found.nodes)), _startable(found))

    show(Wanted(api or "", snapshots, kubeconfig or ""), read, print_table, output=output, every=every if watch else None)


def letters_of(nodes: Sequence[NodeRow]) -> dict[str, str]:
    """Return a letter for each gang that uses GPUs, in the order of the nodes; letters are used again if there are many gangs."""
    gangs = dict.fromkeys(share.gang for node in nodes for share in node.shares if share.gpus)
    return dict(zip(gangs, cycle(_LETTERS)))


def bar(node: NodeRow, letters: dict[str, str]) -> str:
    """Return a square for each GPU of a node: the letter of the gang that uses the GPU, or a dot. Parts of GPUs are rounded."""
    squares = round(min(node.gpus, _MOST_SQUARES))
    if squares < 1:
        return ""
    scale = squares / node.gpus
    used = "".join(letters[share.gang] * round(max(0.0, min(share.gpus * scale, squares))) for share in node.shares if share.gpus)
    return used[:squares].ljust(squares, _FREE)


def painted(squares: str) -> Text:
    """Return a bar whose letters have colours in a terminal; a letter has the same colour on all nodes."""
    text = Text(squares)
    for place, square in enumerate(squares):
        style = "dim" if square == _FREE else _COLOURS[_LETTERS.index(square) % len(_COLOURS)]
        text.stylize(style, place, place + 1)
    return text


def startable(nodes: Sequence[NodeRow], size: int) -> int:
    """Return how many pods with ``size`` GPUs each the nodes could take now, by GPUs alone."""
    return sum(int(node.gpus_free // size) for node in nodes if node.is_ready and not node.is_cordoned)


def _nodes(found: Nodes, letters: dict[str, str]) -> PlainTable:
    table = table_of(
        "NODE", *([_domain_title(found)] if found.grouped_by else []), "GPUS", "FREE", "STRANDED", "USE", "GANGS", wrapped="GANGS"
    )
    for node in found.nodes:
        gangs = ", ".join(f"{letters[each.gang]} {each.gang or 'another namespace'}" for each in node.shares if each.gpus)
        state = "not ready" if not node.is_ready else "cordoned" if node.is_cordoned else ""
        domain = [node.domain or "<none>"] if found.grouped_by else []
        use = bar(node, letters)
        amounts = (f"{node.gpus:g}", f"{node.gpus_free:g}", f"{node.gpus_stranded:g}")
        table.add_row(node.name, *domain, *amounts, painted(use), gangs or state or "<none>")
    return table


def _startable(found: Nodes) -> PlainTable:
    """Return how many jobs of each size could start, for each domain and in all."""
    table = table_of(
        _domain_title(found) if found.grouped_by else "NODES", *(f"{size} GPU{'S' if size > 1 else ''}" for size in SIZES), "WHOLE NODES"
    )
    for title, nodes in _groups(found):
        whole = sum(node.gpus > 0 and node.gpus_free == node.gpus and node.is_ready and not node.is_cordoned for node in nodes)
        table.add_row(title, *(str(startable(nodes, size)) for size in SIZES), str(whole))
    return table


def _groups(found: Nodes) -> Iterator[tuple[str, Sequence[NodeRow]]]:
    if found.grouped_by:
        for domain in sorted({node.domain for node in found.nodes}):
            yield domain or "<none>", [node for node in found.nodes if node.domain == domain]
    yield "all", found.nodes


def _domain_title(found: Nodes) -> str:
    return found.grouped_by.rpartition("/")[2].upper()
