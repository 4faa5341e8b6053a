"""The GPUs of all nodes as arrays. What exporters measure of a GPU counts before what its node's labels say.

Thousands of nodes have only a few distinct sets of labels, so each set is read once. Measurements are copied for all nodes at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.errors import MalformedError
from allaboard.model.gpumodels import MODELS, Attributes
from allaboard.model.gpunames import Expression, canonical, expression
from allaboard.model.gpus import AMD, INTEL, NVIDIA, Cards, Measure
from allaboard.model.gpuscore import WEIGHTS, ScoreWeights, graded, scores
from allaboard.model.node import Node
from allaboard.model.quantities import parse_quantity

_MOST_CARDS = 64  # GPUs of a node that no exporter measures.
_MOST_KINDS = 1024  # Sets of labels that are remembered, beyond one for each node.
_MOST_NAMES = 2048  # Pairs of an exporter's and a label's name of a GPU.
_MOST_REMEMBERED = 16_384  # Names of GPUs whose first matching expression is cached.
_MOST_ALIASES = 256  # Lists of expressions that are kept compiled.
_MEBIBYTE = 2**20

WHOLE_GPUS = (NVIDIA, "nvidia.com/gpu.shared", AMD, *INTEL, "habana.ai/gaudi")
"""Resources that are whole GPUs, and no partitions of GPUs."""

# Labels with the product, number and memory of a node's GPUs, of GPU feature discovery, AMD's node labeller and Intel's device plugin.
_PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "gpu.intel.com/family",
)
_COUNTS = ("nvidia.com/gpu.count", "gpu.intel.com/device.count", "gpu.intel.com/cards")
_MEMORIES = ("nvidia.com/gpu.memory", "amd.com/gpu.vram", "beta.amd.com/gpu.vram", "gpu.intel.com/memory.max")
_REPLICAS = "nvidia.com/gpu.replicas"
_READ = (*_PRODUCTS, *_COUNTS, *_MEMORIES, _REPLICAS)

APPLICATION_ERRORS = (13, 31, 43, 45, 68, 69)
"""Numbers of XID errors that a fault of an application causes on a healthy GPU (docs.nvidia.com/deploy/xid-errors)."""


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """The settings for GPUs.

    ``unknown_fits``: whether a GPU of unknown memory counts as having enough. ``excludes_unhealthy``: whether GPUs with errors are left
    out; the XIDs ``application_errors`` don't count as errors of the GPU. ``aliases``: additional names of GPUs, each with the expression
    for the GPU names that it stands for. ``models``: attributes of GPUs, by the expression for their names; these are tried before
    ``MODELS``. ``weight``: the weight of the GPU score in placements, relative to the objective.
    """

    unknown_fits: bool = False
    excludes_unhealthy: bool = True
    application_errors: tuple[int, ...] = APPLICATION_ERRORS
    aliases: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Attributes] = field(default_factory=dict)
    weights: ScoreWeights = WEIGHTS
    weight: float = 1.0


POLICY = GpuPolicy()


@dataclass(frozen=True, slots=True, eq=False)
class GpuInventory:
    """The GPUs of a snapshot's nodes, one row per node.

    ``names``: the ``canonical`` names of each kind of GPU. ``kind``: int32[nodes, gpus], index into ``names``; -1 if there is no GPU, or if
    the GPU must not be used. ``free``: float64[nodes, gpus], MiB that are measured to be free, else the GPU's total; NaN if neither is
    known. ``replicas``: int64[nodes], pods that share a GPU by time-slicing. ``unwell``: int64[nodes], devices offered by the node that
    belong to GPUs known to be unhealthy. ``score``: float64[nodes], from 0 to 1 for the best GPUs. ``grade``: float64[nodes], the score in
    a few steps (``model.gpuscore.graded``).
    """

    names: tuple[tuple[str, ...], ...]
    kind: NDArray[np.int32]
    free: Floats
    replicas: Integers
    unwell: Integers
    score: Floats
    grade: Floats
    policy: GpuPolicy = POLICY

    @property
    def is_here(self) -> Mask:
        """The places in the arrays that have a usable GPU: bool[nodes, gpus]."""
        here: Mask = self.kind >= 0
        return here

    def on(self, rows: slice) -> "GpuInventory":
        """Return the inventory of the nodes in ``rows``."""
        return replace(
            self,
            kind=self.kind[rows],
            free=self.free[rows],
            replicas=self.replicas[rows],
            unwell=self.unwell[rows],
            score=self.score[rows],
            grade=self.grade[rows],
        )


class Kind(NamedTuple):
    """The GPUs of a node, as its labels describe them.

    ``memory`` is in MiB, NaN if unknown; ``offered`` is the number of devices in allocatable.
    """

    product: str
    number: int
    memory: float
    replicas: int
    offered: int


_NOTHING = Kind("", 0, np.nan, 1, 0)


class LabelReader:
    """Reads what node labels say of GPUs. A node is read again only after a change of the node."""

    def __init__(self) -> None:
        self._codes: dict[str, tuple[Node, int]] = {}
        self._kinds: dict[tuple[object, ...], int] = {}
        self._read: list[Kind] = []

    def kinds(self, nodes: Sequence[Node]) -> tuple[Integers, Sequence[Kind]]:
        """Return the kind of GPUs of each node, and the list of all kinds, which has at least one entry.

        The kind of a node is an index into the list: int64[nodes].
        """
        if len(self._kinds) > _MOST_KINDS + len(nodes):
            self._codes, self._kinds, self._read = {}, {}, []  # so that the kinds of removed nodes are forgotten
        known, self._codes = self._codes, {}
        codes = np.zeros(len(nodes), dtype=np.int64)
        for row, node in enumerate(nodes):
            seen = known.get(node.name)
            if seen is None or seen[0] is not node:
                seen = node, self._code(_key(node))
            self._codes[node.name] = seen
            codes[row] = seen[1]
        return codes, self._read or (_NOTHING,)

    def _code(self, key: tuple[object, ...]) -> int:
        code = self._kinds.setdefault(key, len(self._read))
        if code == len(self._read):
            self._read.append(_kind(key))
        return code


def gpus_of(nodes: Sequence[Node], cards: Cards, policy: GpuPolicy = POLICY, reader: LabelReader | None = None) -> GpuInventory | None:
    """Return the GPUs of ``nodes``; ``None`` if there are no GPUs.

    Pass the same ``reader`` each time, so that labels are read only once.
    """
    codes, kinds = (reader or LabelReader()).kinds(nodes)
    rows = np.fromiter((cards.rows.get(node.name, -1) for node in nodes), dtype=np.int64, count=len(nodes))
    is_measured = rows >= 0
    if not is_measured.any() and not any(kinds[code].number for code in np.unique(codes).tolist()):
        return None
    # 1. The model of each GPU: the exporter's name, or the name by label, which holds for all GPUs of the node.
    width = max(cards.model.shape[1] if is_measured.any() else 0, *(kind.number for kind in kinds))
    measured = np.full((len(Measure), len(nodes), width), np.nan)
    model = np.full((len(nodes), width), -1, dtype=np.int64)
    if is_measured.any():
        most = cards.model.shape[1]
        measured[:, is_measured, :most] = cards.values[:, rows[is_measured]]
        model[is_measured, :most] = cards.model[rows[is_measured]]
    has_cards = np.any(model >= 0, axis=1)
    counts = np.array([kind.number for kind in kinds])[codes]
    products = {name: place for place, name in enumerate(dict.fromkeys(kind.product for kind in kinds))}
    product = np.array([products[kind.product] for kind in kinds])[codes][:, None]
    by_label = ~has_cards[:, None] & (np.arange(width) < counts[:, None])
    model = np.where(model >= 0, model, np.where(by_label, len(cards.models), -1))
    known, kind = _distinct(model, product, len(products))
    if len(known) > _MOST_NAMES:  # then the exporter's name counts only where no label names the GPU
        model = np.where((model >= 0) & (product != products.get("", -1)), len(cards.models), model)
        known, kind = _distinct(model, product, len(products))
    said, labelled_as = [*map(canonical, cards.models), ""], [*map(canonical, products)]
    each_said = (divmod(pair, len(products)) for pair in known.tolist())
    names = [tuple(dict.fromkeys(name for name in (said[model], labelled_as[row]) if name)) for model, row in each_said]
    # 2. The attributes of each GPU: measured, by label, or by model.
    attributes = np.array([_attributes(each, policy) for each in names], dtype=np.float64).reshape(len(names), len(Attributes._fields))
    labelled = np.array([kind.memory for kind in kinds])[codes][:, None]
    has = _known(measured[Measure.MEMORY], np.broadcast_to(labelled, kind.shape))
    free = _known(measured[Measure.FREE], has)
    # 3. The health of each GPU.
    is_unwell: Mask = _unwell(measured, policy) & (kind >= 0) & policy.excludes_unhealthy
    replicas = np.array([kind.replicas for kind in kinds])[codes]
    # Unhealthy GPUs beyond the node's number may be forged, and take no device away. Nor do those that the kubelet leaves out itself.
    offered = np.array([kind.offered for kind in kinds])[codes]
    unwell = np.minimum(np.count_nonzero(is_unwell, axis=1), counts) * replicas
    left_out = np.maximum(0, np.maximum(counts, np.count_nonzero(kind >= 0, axis=1)) * replicas - offered)
    kind[is_unwell] = -1
    aliased = tuple((*each, *_aliases(each, policy)) for each in names)
    # A driver that shares GPUs offers more devices than there are GPUs, and leaves out unhealthy GPUs itself.
    counts_cards = np.fromiter((node.shared is None for node in nodes), dtype=np.bool_, count=len(nodes))
    score = scores(measured, has, attributes, kind, policy.weights)
    return GpuInventory(
        names=aliased,
        kind=kind,
        free=np.where(kind >= 0, free, np.nan),
        replicas=replicas,
        unwell=np.where(counts_cards, np.clip(unwell - left_out, 0, offered), 0),
        score=score,
        grade=graded(score),
        policy=policy,
    )


def _known(first: Floats, otherwise: Floats) -> Floats:
    found: Floats = np.where(np.isnan(first), otherwise, first)
    return found


def _unwell(measured: Floats, policy: GpuPolicy) -> Mask:
    """Return which GPUs are unhealthy: bool[nodes, gpus].

    A GPU is unhealthy if it has an XID error that isn't an application's, or memory rows that couldn't be remapped.
    """
    xid = np.nan_to_num(measured[Measure.XID])
    unwell: Mask = ((xid != 0) & ~np.isin(xid, policy.application_errors)) | (np.nan_to_num(measured[Measure.REMAP_FAILURE]) > 0)
    return unwell


def _key(node: Node) -> tuple[object, ...]:
    """Return the parts of a node that describe its GPUs; empty for a node without GPUs."""
    labels, offered = node.labels, next(((name, amount) for name, amount in node.allocatable if name in WHOLE_GPUS), None)
    return (offered, *map(labels.get, _READ)) if offered or not labels.keys().isdisjoint(_READ) else ()


def kind_of(node: Node) -> Kind:
    """Return what the labels of ``node`` say of its GPUs."""
    return _kind(_key(node))


def _kind(key: tuple[object, ...]) -> Kind:
    if not key:
        return _NOTHING
    offered, labels = key[0], dict(zip(_READ, key[1:], strict=True))
    amount = offered[1] if isinstance(offered, tuple) else 0
    replicas = max(1, _integer(labels[_REPLICAS]))
    # A node whose GPUs are time-sliced offers ``replicas`` devices for each GPU.
    count = next((number for label in _COUNTS if (number := _integer(labels[label]))), 0) or -(-amount // replicas)
    product = next((str(found) for label in _PRODUCTS if (found := labels[label])), "")
    memory = next((size for label in _MEMORIES if (size := _mebibytes(label, labels[label])) > 0), np.nan)
    return Kind(product, min(count, _MOST_CARDS), memory, replicas, amount)


def _integer(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _mebibytes(label: str, text: object) -> float:
    """Return the memory of a GPU in MiB, as a label states it; 0 if the value is unreadable.

    NVIDIA's label is in MiB. AMD's is a text such as ``64G``, which means GiB. Intel's is in bytes.
    """
    if not isinstance(text, str):
        return 0.0
    if label.startswith("nvidia"):
        return float(_integer(text))
    if "amd.com" in label and text[-1:] in ("M", "G", "T"):
        text += "i"
    try:
        return float(parse_quantity(text) / _MEBIBYTE)
    except MalformedError:
        return 0.0


def _distinct(models: NDArray[np.int64], product: NDArray[np.int64], products: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the distinct pairs of a model and a product, and each GPU's index into these pairs: int32[nodes, gpus].

    A model is an exporter's name, and a product is what node labels say. The index is -1 where there is no GPU.
    """
    pairs = np.where(models >= 0, models * products + product, -1) + 1
    is_there = np.bincount(pairs.ravel(), minlength=1) > 0
    is_there[0] = False
    places = (np.cumsum(is_there) - 1).astype(np.int32)
    places[0] = -1
    return np.flatnonzero(is_there) - 1, places[pairs]


def _attributes(names: tuple[str, ...], policy: GpuPolicy) -> Attributes:
    for models in filter(None, (policy.models, MODELS)):
        patterns = tuple(models)
        place = min((_first(patterns, name) for name in names), default=len(patterns))
        if place < len(patterns):
            return models[patterns[place]]
    return Attributes()


def _aliases(names: tuple[str, ...], policy: GpuPolicy) -> Iterator[str]:
    for alias, meant in policy.aliases.items():
        if any(_first((meant,), name) == 0 for name in names):
            yield canonical(alias)


@lru_cache(maxsize=_MOST_REMEMBERED)
def _first(patterns: tuple[str, ...], name: str) -> int:
    """Return the index of the first of ``patterns`` that matches ``name``; ``len(patterns)`` if no pattern matches.

    The result is cached, since names stay the same for days.
    """
    return next((place for place, ready in enumerate(_ready(patterns)) if ready.search(name) is not None), len(patterns))


@lru_cache(maxsize=_MOST_ALIASES)
def _ready(patterns: tuple[str, ...]) -> tuple[Expression, ...]:
    return tuple(map(expression, patterns))
