"""What exporters call things: a table for each of the dialects that are known, and one made of the settings for any other.

A series is of a node, of one of its cards, and measures something; of which labels that is read is said in the order in which they are
believed. Names and units: dcgm-exporter default-counters.csv, ObserverWard pkg/scraper/gpu_scraper.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from allaboard.model.gpus import Measure
from allaboard.settings.gpu_metrics import USED as USED_NAME
from allaboard.settings.gpu_metrics import meaning_of

USED = len(Measure)
"""MiB of a card's memory that somebody uses; beside the measures, which follow from it."""

RESERVED = USED + 1
"""MiB that the driver keeps for itself."""

QUANTITIES = RESERVED + 1
"""How many there are: each ``Measure``, ``USED`` and ``RESERVED``."""

INSTANCE = "instance"
"""The label in which Prometheus says where it has scraped: the address of the exporter's pod, not a node."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric says: ``quantity``, in its unit when multiplied by ``scale``.

    ``of_parts``: the rows of a card's parts (MIG) say it of the whole card. ``zero_is_unknown``: the exporter writes 0 for what it can't
    find out. ``takes_least``: of several rows of one card the least counts; else the most.
    """

    name: str
    quantity: int
    scale: float = 1.0
    of_parts: bool = False
    zero_is_unknown: bool = False

    @property
    def takes_least(self) -> bool:
        return self.quantity == Measure.FREE


@dataclass(frozen=True, slots=True)
class Dialect:
    """The metrics of one exporter, of two with the same quantity the better one first, and the labels of its series.

    ``parts`` is the label that rows have which are about a part of a card.
    """

    name: str
    nodes: tuple[str, ...]
    cards: tuple[str, ...]
    models: tuple[str, ...]
    metrics: tuple[Metric, ...]
    parts: str = ""


_PERCENT = 0.01

DCGM = Dialect(
    "dcgm-exporter",
    # What the exporter says comes before what Prometheus adds; where both have used one name, Prometheus has renamed the exporter's.
    nodes=(
        *("Hostname", "exported_Hostname", "hostname", "exported_hostname"),
        *("node", "exported_node", "kubernetes_node", "exported_kubernetes_node", INSTANCE),
    ),
    cards=("gpu", "UUID", "uuid"),
    models=("modelName", "model_name"),
    parts="GPU_I_ID",
    metrics=(
        Metric("DCGM_FI_DEV_GPU_TEMP", Measure.TEMPERATURE, of_parts=True),
        Metric("DCGM_FI_DEV_POWER_USAGE", Measure.POWER, of_parts=True),
        Metric("DCGM_FI_DEV_FB_FREE", Measure.FREE),
        Metric("DCGM_FI_DEV_FB_USED", USED),
        Metric("DCGM_FI_DEV_FB_RESERVED", RESERVED),
        Metric("DCGM_FI_DEV_FB_TOTAL", Measure.MEMORY, zero_is_unknown=True),
        Metric("DCGM_FI_DEV_GPU_UTIL", Measure.UTILIZATION, _PERCENT),
        Metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Measure.UTILIZATION),
        Metric("DCGM_FI_DEV_ENC_UTIL", Measure.ENCODER, _PERCENT),
        Metric("DCGM_FI_DEV_DEC_UTIL", Measure.DECODER, _PERCENT),
        Metric("DCGM_FI_DEV_XID_ERRORS", Measure.XID, of_parts=True),
        Metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", Measure.REMAP_FAILURE, of_parts=True),
    ),
)

_DYNAMIC, _STATIC = "observerward_dynamic_gpu_", "observerward_static_gpu_"

OBSERVERWARD = Dialect(
    "ObserverWard",
    nodes=("kubernetes_node", "exported_kubernetes_node", "node", INSTANCE),
    cards=("id", "uuid"),
    models=("model",),
    metrics=(
        Metric(f"{_DYNAMIC}free_global_memory_MiB", Measure.FREE),
        Metric(f"{_DYNAMIC}used_global_memory_MiB", USED),
        Metric(f"{_DYNAMIC}power_usage_W", Measure.POWER),
        Metric(f"{_DYNAMIC}encoder_utilization", Measure.ENCODER, _PERCENT),
        Metric(f"{_DYNAMIC}decoder_utilization", Measure.DECODER, _PERCENT),
        Metric(f"{_STATIC}memory_size", Measure.MEMORY, zero_is_unknown=True),
        Metric(f"{_STATIC}multiprocessor_count", Measure.MULTIPROCESSORS, zero_is_unknown=True),
        Metric(f"{_STATIC}shared_encoder_count", Measure.ENCODERS, zero_is_unknown=True),
        Metric(f"{_STATIC}shared_decoder_count", Measure.DECODERS, zero_is_unknown=True),
    ),
)

KNOWN = (DCGM, OBSERVERWARD)

EXPORTER_LABELS = ("app=nvidia-dcgm-exporter", "app.kubernetes.io/name=dcgm-exporter", "name=observerward")
"""Which pods are exporters: gpu-operator's, those of dcgm-exporter's own chart, and ObserverWard's."""

EXPORTER_PORTS: Mapping[str, int] = {"observerward": 9909}
"""Of the pods whose label ``name`` is that; of all others it is ``DCGM_PORT``."""

DCGM_PORT = 9400


def dialects(stated: Mapping[str, str], node: str, card: str, model: str) -> tuple[Dialect, ...]:
    """The known ones, and before them that of the settings, if they state metrics (``gpu_metrics.metrics``)."""
    if not stated:
        return KNOWN
    metrics = []
    for name, words in stated.items():
        measure, scale = meaning_of(words)
        metrics.append(Metric(name, USED if measure == USED_NAME else Measure[measure.upper()], scale))
    return Dialect("settings", (node, f"exported_{node}", INSTANCE), (card,), (model,), tuple(metrics)), *KNOWN
