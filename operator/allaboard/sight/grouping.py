"""Finds the labels by which nodes can be grouped."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allaboard.model.node import HOSTNAME, Node
from allaboard.runtime.slices import Slices

_MOST_LABELS = 24
_MOST_VALUES = 4096  # different values that are counted for one label


@dataclass(slots=True)
class Grouping:
    """The labels of nodes by which the nodes can be grouped. The result for one tuple of nodes is kept."""

    _nodes: tuple[Node, ...] = ()
    _labels: Sequence[str] = field(default_factory=list)

    async def labels(self, nodes: tuple[Node, ...]) -> Sequence[str]:
        """Return the labels of which two nodes at least have the same value, those with most nodes first; a few at most."""
        if nodes is not self._nodes:
            slices, numbers, values = Slices(), Counter[str](), dict[str, set[str]]()
            for node in nodes:
                await slices.give_way()
                for label, value in node.labels.items():
                    numbers[label] += 1
                    known = values.setdefault(label, set())
                    if len(known) < _MOST_VALUES:
                        known.add(value)
            shared = [label for label, _ in numbers.most_common() if len(values[label]) < numbers[label] and label != HOSTNAME]
            self._nodes, self._labels = nodes, sorted(shared[:_MOST_LABELS])
        return self._labels


def domains_of(nodes: Sequence[Node], label: str) -> Mapping[str, str]:
    """Return the value of a label on each node that has it, by the node's name."""
    return {node.name: value for node in nodes if (value := node.labels.get(label)) is not None}
