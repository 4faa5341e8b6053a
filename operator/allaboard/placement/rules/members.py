"""The rules between the members of a gang, as one value that is made from the gang and passed to each search and to the last check."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.podterms import PodTerm
from allaboard.model.reasons import Reason
from allaboard.placement.rules.apart import ApartRule
from allaboard.placement.rules.attraction import AttractionRule
from allaboard.placement.rules.coupling import CouplingRule
from allaboard.placement.rules.near import NearRule
from allaboard.placement.rules.segments import SegmentRule
from allaboard.placement.rules.selection import Selection
from allaboard.placement.rules.spread import SpreadRule
from allaboard.placement.rules.together import TogetherRule

_Term = TypeVar("_Term", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules between members of a gang. Members are given by uid.

    ``parts``: (members, number): at least ``number`` of these members must be placed. ``couplings``: the rules by which the nodes of some
    members restrict the nodes of other members. Messages name the first of them. ``attractions``: the preferences of members about other
    members, which no placement has to meet.
    """

    parts: Sequence[tuple[Collection[str], int]] = ()
    couplings: Sequence[CouplingRule] = ()
    attractions: Sequence[AttractionRule] = ()

    @property
    def is_plain(self) -> bool:
        """Return whether there are no rules: any members may be placed, and it doesn't matter where other members are."""
        return not (self.parts or self.couplings or self.attractions)

    @property
    def without_couplings(self) -> "Rules":
        """The rules that don't restrict nodes by the nodes of other members."""
        return Rules(self.parts, attractions=self.attractions)

    def without(self, reason: Reason) -> "Rules":
        """Return the rules without the couplings that have this reason."""
        return replace(self, couplings=[each for each in self.couplings if each.reason != reason])

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the rules distinguish. Members that are in the same sets are alike for the rules."""
        rules: tuple[CouplingRule | AttractionRule, ...] = (*self.couplings, *self.attractions)
        return [*(members for members, _ in self.parts), *(members for rule in rules for members in rule.sets)]

    def broken(self, assigned: Mapping[str, Node], nodes: Sequence[Node]) -> Iterator[Reason]:
        """Yield the rules that ``assigned`` breaks, as reasons: the node of each member, by the member's uid. ``nodes``: all nodes."""
        for rule in self.couplings:
            yield from rule.broken(assigned, nodes)


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
    kinds, group = _kinds(gang.candidates), Selection(gang.candidates)
    return Rules(
        parts=[(uids[role], min(number, len(uids[role])) if gang.settles else number) for role, number in lacking.items()],
        couplings=[
            *(TogetherRule(label, {pod.uid for pod in members}) for (label, _), members in gang.together.items()),
            *_segmented(gang),
            *_kept_apart(group, kinds),
            *_joined(list(_kept_near(group, kinds))),
            *_spread(group, kinds),
        ],
        attractions=[*_attracted(group, kinds)],
    )


def _segmented(gang: Gang) -> Iterator[CouplingRule]:
    """Yield the rules for segments that have no bound member yet: one for all whole segments, and one for each smaller segment."""
    for (size, label, _), segments in gang.segments.items():
        free = [segment for segment in segments if not any(pod.node_name for pod in segment)]
        waiting = [[pod.uid for pod in segment if pod.is_candidate] for segment in free]
        if whole := [uid for uids in waiting if len(uids) == size for uid in uids]:
            yield SegmentRule(label, size, tuple(whole))
        yield from (TogetherRule(label, set(uids)) for uids in waiting if 1 < len(uids) < size)


def begun_segments(gang: Gang) -> Iterator[tuple[str, Sequence[Pod]]]:
    """Yield (label, members) of each segment with bound members: its other members must join these."""
    for (_, label, _), segments in gang.segments.items():
        yield from ((label, segment) for segment in segments if any(pod.node_name for pod in segment))


_Kinds = Sequence[tuple[SchedulingSpec, Sequence[str]]]


def _kinds(candidates: Sequence[Pod]) -> _Kinds:
    """Return each spec of candidates, with the UIDs of its pods. Equal specs are mostly one object, and this isn't compared further."""
    found: dict[int, tuple[SchedulingSpec, list[str]]] = {}
    for pod in candidates:
        found.setdefault(id(pod.spec), (pod.spec, []))[1].append(pod.uid)
    return list(found.values())


def _kept_apart(group: Selection, kinds: _Kinds) -> Iterator[ApartRule]:
    """Yield a rule for each term of anti-affinity that selects other candidates than its holder."""
    for term, uids in _holders(kinds, lambda spec: spec.anti_affinity).items():
        if matched := _concerned(group, term, uids):
            yield ApartRule(term.topology_key, frozenset(uids), matched)


def _kept_near(group: Selection, kinds: _Kinds) -> Iterator[NearRule]:
    """Yield a rule for each label of each pod affinity of candidates.

    A selected pod matches all terms of the affinity, as in kube-scheduler.
    """

    def affinity_of(spec: SchedulingSpec) -> list[tuple[tuple[PodTerm, ...], tuple[tuple[str, tuple[str, ...]], ...]]]:
        return [(spec.pod_affinity, spec.near)] if spec.pod_affinity else []

    for (terms, near), uids in _holders(kinds, affinity_of).items():
        matched, served = group.of(terms), dict(near)
        for key in dict.fromkeys(term.topology_key for term in terms):
            others = any(values for other, values in near if other != key)
            yield NearRule(key, frozenset(uids), matched, served.get(key, ()), others)


def _joined(rules: list[NearRule]) -> Sequence[NearRule]:
    """Return ``rules``, of which those whose holders select each other are joined.

    The first pod of a rule may begin in a domain where no selected pod is. Of two rules whose holders select each other, only one has a
    first pod: whichever pod is bound first, the others must join it. Rules that also select other members aren't joined, since a holder can
    join these members elsewhere.
    """
    joined: list[NearRule] = []
    while rules:
        rule = rules.pop()
        partner = next((other for other in rules if _need_each_other(rule, other)), None)
        if partner is None:
            joined.append(rule)
        else:
            rules.remove(partner)
            holders, matched = frozenset(rule.holders) | frozenset(partner.holders), frozenset(rule.matched) | frozenset(partner.matched)
            rules.append(NearRule(rule.label, holders, matched, ()))
    return joined[::-1]


def _need_each_other(one: NearRule, other: NearRule) -> bool:
    """Return whether the first pod of either rule must be joined by the holders of the other rule."""
    if one.label != other.label or any(rule.values or rule.others_are_bound for rule in (one, other)):
        return False
    holders = [frozenset(rule.holders) for rule in (one, other)]
    matched = [frozenset(rule.matched) for rule in (one, other)]
    return bool(holders[0] & matched[1] and holders[1] & matched[0]) and matched[0] | matched[1] <= holders[0] | holders[1]


def _spread(group: Selection, kinds: _Kinds) -> Iterator[SpreadRule]:
    """Yield a rule for each topology spread constraint of candidates."""
    for spec, uids in kinds:
        keys = tuple(constraint.topology_key for constraint in spec.spread)
        counts = spec.spread_bound or ((),) * len(spec.spread)
        for constraint, bound in zip(spec.spread, counts, strict=True):
            matched = group.of((constraint.term,)) if constraint.counts_pods else frozenset()
            yield SpreadRule(constraint, keys, frozenset(uids), matched, bound, spec)


def _attracted(group: Selection, kinds: _Kinds) -> Iterator[AttractionRule]:
    """Yield a rule for each preference of candidates about other candidates."""
    for spec, uids in kinds:
        for weight, term in spec.preferred_pods:
            if matched := _concerned(group, term, uids):
                yield AttractionRule(term.topology_key, frozenset(uids), matched, spec, weight)
        for position, constraint in enumerate(spec.preferred_spread):
            if constraint.counts_pods and (matched := _concerned(group, constraint.term, uids)):
                yield AttractionRule(constraint.topology_key, frozenset(uids), matched, spec, constraint=position)


def _concerned(group: Selection, term: PodTerm, holders: Collection[str]) -> frozenset[str]:
    """Return the UIDs of the candidates that a term of ``holders`` selects; empty if it selects only its one holder."""
    found = group.of((term,))
    return found if len(found.union(holders)) > 1 else frozenset()


def _holders(kinds: _Kinds, terms_of: Callable[[SchedulingSpec], Iterable[_Term]]) -> dict[_Term, set[str]]:
    """Return the UIDs of the candidates that state each term."""
    found: dict[_Term, set[str]] = {}
    for spec, uids in kinds:
        for term in terms_of(spec):
            found.setdefault(term, set()).update(uids)
    return found
