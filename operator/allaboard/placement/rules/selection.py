"""Finds which members of a gang the terms of pods select, by one set of bits for each value of a label.

A gang may have thousands of members, each with labels of its own such as an index, and hundreds of terms. So no term is compared with each
member: the expressions of a term are combined as sets of bits, one bit for each member.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm


@dataclass(slots=True)
class Selection:
    """The members of one gang, all of which are in one namespace."""

    members: Sequence[Pod]
    _holders: dict[str, dict[str, int]] = field(default_factory=dict)
    """By key and value of a label, the members that have it, as bits."""
    _found: dict[int, frozenset[str]] = field(default_factory=dict)
    """The UIDs of the members of each set of bits that was asked for."""
    _bits: dict[str, int] = field(default_factory=dict)
    """The bit of each member, by UID."""

    def of(self, terms: Sequence[PodTerm]) -> frozenset[str]:
        """Return the UIDs of the members that all ``terms`` select."""
        bits = self._all()
        for term in terms:
            bits &= self._selected(term)
        if bits not in self._found:
            self._found[bits] = frozenset(pod.uid for place, pod in enumerate(self.members) if bits >> place & 1)
        return self._found[bits]

    def number(self, term: PodTerm, but: Pod) -> int:
        """Return how many members other than ``but`` a term selects."""
        if not self._bits:
            self._bits = {pod.uid: 1 << place for place, pod in enumerate(self.members)}
        return (self._selected(term) & ~self._bits.get(but.uid, 0)).bit_count()

    def _all(self) -> int:
        return (1 << len(self.members)) - 1

    def _selected(self, term: PodTerm) -> int:
        """Return the members that a term selects, as bits."""
        if not self.members:
            return 0
        namespace = self.members[0].namespace
        concerned = term.concerns(namespace)
        if None not in concerned and namespace not in concerned:
            return 0
        bits = self._all()
        for expression in term.expressions:
            bits &= self._that_meet(expression)
        return bits

    def _that_meet(self, expression: LabelExpression) -> int:
        """Return the members whose labels meet an expression, as bits. A member without the label meets NotIn and DoesNotExist."""
        by_value = self._by_value(expression.key)
        match expression.operator:
            case "In":
                return _union(by_value.get(value, 0) for value in dict.fromkeys(expression.values))
            case "NotIn":
                return self._all() & ~_union(by_value.get(value, 0) for value in dict.fromkeys(expression.values))
            case "Exists":
                return _union(by_value.values())
            case _:
                return self._all() & ~_union(by_value.values())

    def _by_value(self, key: str) -> dict[str, int]:
        if key not in self._holders:
            places: dict[str, list[int]] = {}
            for place, pod in enumerate(self.members):
                if (value := pod.label(key)) is not None:
                    places.setdefault(value, []).append(place)
            self._holders[key] = {value: _bits_of(of_value, len(self.members)) for value, of_value in places.items()}
        return self._holders[key]


def _bits_of(places: Sequence[int], number: int) -> int:
    """Return the set of ``places`` among ``number`` places, as bits."""
    found = bytearray((number + 7) // 8)
    for place in places:
        found[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(found, "little")


def _union(sets: Iterable[int]) -> int:
    found = 0
    for bits in sets:
        found |= bits
    return found
