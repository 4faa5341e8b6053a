"""Random nodes with GPUs, and what exporters measure of them, as a plain list of GPUs for each node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from allaboard.model.gpus import Cards, Measure
from allaboard.model.node import Node
from allaboard.model.requests import as_requests

MODELS = ("Tesla T4", "NVIDIA A100-SXM4-40GB", "Odd Card")
PRODUCTS = ("Tesla-T4", "NVIDIA-A100-SXM4-40GB", "Odd_Card")


@dataclass(frozen=True)
class Known:
    """A node in plain values, as the tests of GPUs draw it.

    ``cards`` has the model and the measurements of each GPU; empty without an exporter.
    """

    name: str
    gpus: int
    labels: Mapping[str, str] = field(default_factory=dict)
    cards: Sequence[tuple[int, Mapping[Measure, float]]] = ()

    @property
    def node(self) -> Node:
        amounts = {"pods": 110, "cpu": 64_000} | ({"nvidia.com/gpu": self.gpus} if self.gpus else {})
        return Node(self.name, self.name, as_requests(amounts), self.labels)


def cards_of(nodes: Sequence[Known]) -> Cards:
    """Return what exporters measure of the nodes that have an exporter."""
    measured_nodes = [node for node in nodes if node.cards]
    most = max((len(node.cards) for node in measured_nodes), default=0)
    values = np.full((len(Measure), len(measured_nodes), most), np.nan, dtype=np.float32)
    model = np.full((len(measured_nodes), most), -1, dtype=np.int32)
    for row, node in enumerate(measured_nodes):
        for column, (kind, measured) in enumerate(node.cards):
            model[row, column] = kind
            for measure, value in measured.items():
                values[measure, row, column] = value
    names = tuple(tuple(f"gpu{column}" for column in range(len(node.cards))) for node in measured_nodes)
    return Cards({node.name: row for row, node in enumerate(measured_nodes)}, names, MODELS, model, values)


_MEASURED = st.fixed_dictionaries(
    {},
    optional={
        Measure.FREE: st.sampled_from((0.0, 4096.0, 15360.0, 40960.0)),
        Measure.MEMORY: st.sampled_from((15360.0, 40960.0)),
        Measure.POWER: st.sampled_from((30.0, 70.0, 300.0)),
        Measure.ENCODER: st.sampled_from((0.0, 0.5)),
        Measure.DECODER: st.sampled_from((0.0, 1.0)),
        Measure.XID: st.sampled_from((0.0, 13.0, 79.0)),
        Measure.REMAP_FAILURE: st.sampled_from((0.0, 0.0, 1.0)),
    },
)


@st.composite
def nodes(draw: st.DrawFn, most: int = 5) -> list[Known]:
    """Draw nodes: some with labels, some with an exporter, some with both, and some without GPUs."""
    found = []
    for number in range(draw(st.integers(0, most))):
        gpus = draw(st.integers(0, 4))
        labels: dict[str, str] = {}
        if gpus and draw(st.booleans()):
            labels["nvidia.com/gpu.product"] = draw(st.sampled_from(PRODUCTS))
        if gpus and draw(st.booleans()):
            labels["nvidia.com/gpu.memory"] = draw(st.sampled_from(("15360", "40960", "nonsense")))
        cards = draw(st.lists(st.tuples(st.integers(0, 2), _MEASURED), min_size=gpus, max_size=gpus)) if draw(st.booleans()) else []
        found.append(Known(f"n{number}", gpus, labels, cards))
    return found
