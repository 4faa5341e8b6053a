"""The rules between the members of a gang, as one value that is made from the gang and passed to each search and to the last check."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from allaboard.model.gang import Gang
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.podterms import PodTerm
from allaboard.model.reasons import Reason
from allaboard.placement.rules.apart import ApartRule
from allaboard.placement.rules.coupling import CouplingRule
from allaboard.placement.rules.together import TogetherRule


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules between members of a gang. Members are given by uid.

    ``parts``: (members, number): at least ``number`` of these members must be placed. ``couplings``: the rules by which the nodes of some
    members restrict the nodes of other members. Messages name the first of them.
    """

    parts: Sequence[tuple[Collection[str], int]] = ()
    couplings: Sequence[CouplingRule] = ()

    @property
    def is_plain(self) -> bool:
        """Return whether there are no rules: any members may be placed, wherever other members are."""
        return not (self.parts or self.couplings)

    @property
    def without_couplings(self) -> "Rules":
        """The rules that don't depend on the nodes of other members."""
        return Rules(self.parts)

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the rules distinguish. Members that are in the same sets are alike for the rules."""
        return [*(members for members, _ in self.parts), *(members for rule in self.couplings for members in rule.sets)]

    def broken(self, assigned: Mapping[str, Node]) -> Iterator[Reason]:
        """Yield the rules that ``assigned`` breaks, as reasons. ``assigned``: the node of each member, by the member's uid."""
        for rule in self.couplings:
            yield from rule.broken(assigned)


NO_RULES = Rules()


def rules_of(gang: Gang) -> Rules:
    """Return the rules of a gang.

    They say how many members each role lacks of its own minimum, which members must share a domain, and which must not.
    """
    lacking = gang.lacking
    uids: dict[str, set[str]] = {role: set() for role in lacking}
    for pod in gang.candidates if lacking else ():
        if pod.role in uids:
            uids[pod.role].add(pod.uid)
    return Rules(
        parts=[(uids[role], min(number, len(uids[role])) if gang.settles else number) for role, number in lacking.items()],
        couplings=[
            *(TogetherRule(label, {pod.uid for pod in members}) for (label, _), members in gang.together.items()),
            *_kept_apart(gang.candidates),
        ],
    )


def _kept_apart(candidates: Sequence[Pod]) -> Iterator[ApartRule]:
    """Yield a rule for each term of anti-affinity that selects other candidates than its holder."""
    holders: dict[PodTerm, set[str]] = {}
    for pod in candidates:
        for term in pod.spec.anti_affinity:
            holders.setdefault(term, set()).add(pod.uid)
    for term, uids in holders.items():
        keys = {expression.key for expression in term.expressions}
        known: dict[tuple[tuple[str, str], ...], bool] = {}  # pods of one template mostly have equal labels of these keys
        matched = set()
        for pod in candidates:
            relevant = tuple(pair for pair in pod.labels if pair[0] in keys)
            if relevant not in known:
                known[relevant] = term.matches(dict(relevant))
            concerned = term.concerns(pod.namespace)
            if known[relevant] and (None in concerned or pod.namespace in concerned):
                matched.add(pod.uid)
        if matched - uids or (matched and len(uids) > 1):
            yield ApartRule(term.topology_key, frozenset(uids), frozenset(matched))
