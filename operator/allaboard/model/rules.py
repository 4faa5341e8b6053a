"""The rules between the members of a gang, as one value that is made from the gang and passed to each search.

This module defines what each rule means, and checks the rules in plain Python before members are bound. For the search
``placement.problem.rule_arrays`` turns the rules into arrays.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from allaboard.model.gang import Gang
from allaboard.model.node import Node
from allaboard.model.reasons import Kind, Reason


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules between members of a gang. Members are given by uid.

    ``parts``: (members, number): at least ``number`` of these members must be placed. ``together``: (node label, members): these members
    must be on nodes that have the same value of the label.
    """

    parts: Sequence[tuple[Collection[str], int]] = ()
    together: Sequence[tuple[str, Collection[str]]] = ()

    @property
    def couplings(self) -> Sequence[Reason]:
        """The rules by which the nodes of some members restrict the nodes of other members, as reasons. Messages name the first of them."""
        return [Reason(Kind.TOPOLOGY, label) for label, _ in self.together]

    @property
    def is_plain(self) -> bool:
        """Return whether there are no rules: any members may be placed, wherever other members are."""
        return not (self.parts or self.couplings)

    @property
    def without_couplings(self) -> "Rules":
        """The rules that don't depend on the nodes of other members."""
        return Rules(self.parts)

    def broken(self, assigned: Mapping[str, Node]) -> Iterator[Reason]:
        """Yield the rules that ``assigned`` breaks, as reasons. ``assigned``: the node of each member, by the member's uid."""
        for label, uids in self.together:
            values = {node.labels.get(label) for uid, node in assigned.items() if uid in uids}
            if len(values) > 1 or None in values:
                yield Reason(Kind.TOPOLOGY, label, ", ".join(sorted(value or "none" for value in values)))


NO_RULES = Rules()


def rules_of(gang: Gang) -> Rules:
    """Return the rules of a gang: how many members each role lacks of its own minimum, and which members must share a domain."""
    lacking = gang.lacking
    uids: dict[str, set[str]] = {role: set() for role in lacking}
    for pod in gang.candidates if lacking else ():
        if pod.role in uids:
            uids[pod.role].add(pod.uid)
    return Rules(
        parts=[(uids[role], min(number, len(uids[role])) if gang.settles else number) for role, number in lacking.items()],
        together=[(label, {pod.uid for pod in members}) for (label, _), members in gang.together.items()],
    )
