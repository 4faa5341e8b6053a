"""The rules between the members of a gang, as one value: made of a gang here, and passed whole wherever a place for it is looked for.

What each rule means is written down here, and counted in plain Python for the last check before anybody is bound; for the search
``placement.problem.rule_arrays`` has it in arrays.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from allaboard.model.gang import Gang
from allaboard.model.node import Node
from allaboard.model.reasons import Kind, Reason


@dataclass(frozen=True, slots=True)
class Rules:
    """Members by uid: of each of ``parts`` so many must be placed, those of each of ``together`` where a label has the same value."""

    parts: Sequence[tuple[Collection[str], int]] = ()
    together: Sequence[tuple[str, Collection[str]]] = ()

    @property
    def couplings(self) -> Sequence[Reason]:
        """What keeps members from where they would fit because of where the others are; the first is the one to name."""
        return [Reason(Kind.TOPOLOGY, label) for label, _ in self.together]

    @property
    def is_plain(self) -> bool:
        """Whether any members will do, wherever the others are."""
        return not (self.parts or self.couplings)

    @property
    def without_couplings(self) -> "Rules":
        """Those that don't ask where the others are."""
        return Rules(self.parts)

    def broken(self, seats: Mapping[str, Node]) -> Iterator[Reason]:
        """The rules that members break who sit on these nodes, by uid."""
        for label, uids in self.together:
            values = {node.labels.get(label) for uid, node in seats.items() if uid in uids}
            if len(values) > 1 or None in values:
                yield Reason(Kind.TOPOLOGY, label, ", ".join(sorted(value or "none" for value in values)))


NO_RULES = Rules()


def rules_of(gang: Gang) -> Rules:
    """What a gang's roles lack of their own minimums, and which of its members must share a domain."""
    lacking = gang.lacking
    uids: dict[str, set[str]] = {role: set() for role in lacking}
    for pod in gang.candidates if lacking else ():
        if pod.role in uids:
            uids[pod.role].add(pod.uid)
    return Rules(
        parts=[(uids[role], min(number, len(uids[role])) if gang.settles else number) for role, number in lacking.items()],
        together=[(label, {pod.uid for pod in members}) for (label, _), members in gang.together.items()],
    )
