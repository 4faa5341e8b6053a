"""Tables of the names that exporters use for metrics and labels. Each table is called a dialect.

Each known exporter has a dialect, and the settings may state one more. A series measures one GPU of one node. The labels that name the
node, the GPU and its model are listed in order of preference.
Names and units: dcgm-exporter default-counters.csv, ObserverWard pkg/scraper/gpu_scraper.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from allaboard.model.gpus import Measure
from allaboard.settings.gpu_metrics import USED as USED_NAME
from allaboard.settings.gpu_metrics import meaning_of

USED = len(Measure)
"""Index of the quantity "memory in use", in MiB. It is not a ``Measure``: total and free memory are derived from it."""

RESERVED = USED + 1
"""Index of the quantity "memory that the driver reserves", in MiB."""

QUANTITIES = RESERVED + 1
"""Number of quantities: each ``Measure``, ``USED`` and ``RESERVED``."""

INSTANCE = "instance"
"""The label with the address that Prometheus has scraped, which is the address of the exporter's pod, not of a node."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of an exporter, and the quantity that it measures.

    The metric's value times ``scale`` is in the unit of ``quantity``. ``of_parts``: whether each series of a MIG instance has the value of
    the whole GPU. ``zero_is_unknown``: whether the exporter writes 0 for an unknown value.
    """

    name: str
    quantity: int
    scale: float = 1.0
    of_parts: bool = False
    zero_is_unknown: bool = False

    @property
    def takes_least(self) -> bool:
        """True if the least of several values for one GPU counts; False if the greatest counts."""
        return self.quantity == Measure.FREE


@dataclass(frozen=True, slots=True)
class Dialect:
    """The metrics of one exporter, and the labels of its series.

    ``nodes``, ``cards`` and ``models``: labels that name the node, the GPU and its model, the preferred label first. ``metrics``: if two
    metrics measure one quantity, the better metric comes first. ``parts``: the label that only series of MIG instances have; empty without
    such a label.
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
    # Labels of the exporter come before labels that Prometheus adds. If both use one name, Prometheus renames the exporter's to exported_….
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
"""Label selectors for the pods of exporters: as installed by gpu-operator, by the chart of dcgm-exporter, and by ObserverWard."""

EXPORTER_PORTS: Mapping[str, int] = {"observerward": 9909}
"""Port of an exporter's pods, by the value of their label ``name``. Exporters with another value listen on ``DCGM_PORT``."""

DCGM_PORT = 9400


def dialects(stated: Mapping[str, str], node: str, card: str, model: str) -> tuple[Dialect, ...]:
    """Return the dialects in the order in which they are tried.

    The dialect that the settings state as ``gpu_metrics.metrics`` comes first, if they do, then the known dialects.
    """
    if not stated:
        return KNOWN
    metrics = []
    for name, meaning in stated.items():
        measure, scale = meaning_of(meaning)
        metrics.append(Metric(name, USED if measure == USED_NAME else Measure[measure.upper()], scale))
    return Dialect("settings", (node, f"exported_{node}", INSTANCE), (card,), (model,), tuple(metrics)), *KNOWN
