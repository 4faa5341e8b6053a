"""The group of options ``gpu_metrics``: where metrics of GPUs are read, and what each metric measures."""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import NoDecode

from allaboard.model.errors import shown
from allaboard.model.gpus import Measure
from allaboard.model.pairs import pairs_in
from allaboard.model.raw_fields import NAMESPACE
from allaboard.model.yamltext import word_of
from allaboard.settings.pairs import Pairs

USED = "used"
"""The measure of used memory, in MiB. With the free memory it gives a card's whole memory, and with the whole memory the free memory."""

_SIZES = {"bytes": 2.0**-20, "kib": 2.0**-10, "mib": 1.0, "gib": 2.0**10}
_RATIOS = {"ratio": 1.0, "percent": 0.01}
_UNITS: Mapping[str, Mapping[str, float]] = {
    **dict.fromkeys(("memory", "free", USED), _SIZES),
    **dict.fromkeys(("utilization", "encoder", "decoder"), _RATIOS),
    "power": {"w": 1.0, "mw": 0.001},
    "temperature": {"c": 1.0},
    "bandwidth": {"gb/s": 1.0},
}
"""Measure → unit → factor that turns a number of this unit into the measure's own unit. Measures that are counts have no units."""

_MEASURES = (*(measure.name.lower() for measure in Measure), USED)
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,99}", re.ASCII)
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]{1,100}){0,8}", re.ASCII)


def meaning_of(stated: str) -> tuple[str, float]:
    """Return the measure that a text such as ``free:bytes`` names, and the factor for its numbers. Raises ``ValueError``."""
    measure, _, unit = stated.partition(":")
    name, spelt = measure.strip().lower(), unit.strip().lower()
    if name not in _MEASURES:
        raise ValueError(f"{shown(measure)} is no measure; known are {', '.join(_MEASURES)}")
    units = {"": 1.0, **_UNITS.get(name, {})}
    if spelt in units:
        return name, units[spelt]
    try:
        factor = float(spelt)
    except ValueError:
        factor = 0.0
    if not (isfinite(factor) and factor > 0):
        known = ", ".join(filter(None, units))
        raise ValueError(f"{shown(unit)} is no unit of {name}; known are {f'{known}, or ' if known else ''}a factor more than 0")
    return name, factor


def _matching(pattern: "re.Pattern[str]", expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if value and not pattern.fullmatch(value):
            raise ValueError(f"must be {expected}, not {shown(value)}")
        return value

    return AfterValidator(check)


_Namespace = Annotated[str, _matching(re.compile(NAMESPACE, re.ASCII), "the name of a namespace, of lower-case letters, digits and '-'")]
_Namespaces = Annotated[tuple[_Namespace, ...], NoDecode]
_Label = Annotated[str, _matching(_LABEL, "the name of a label of metrics, of letters, digits and '_'")]


class GpuMetricsOptions(BaseModel):
    """Options on metrics of GPUs. Metrics are read in the background: scheduling never waits for them, and goes on without them."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    source: Literal["auto", "exporters", "off"] = Field(
        "auto",
        description="Where metrics of GPUs are read: from a Prometheus (`auto`), from the pods of exporters (`exporters`), or nowhere"
        " (`off`). `auto` uses `gpu_metrics.url`, else finds Prometheus by its Service; if no Prometheus has metrics of GPUs, none are"
        " used.",
    )
    url: str = Field(
        "", description="URL of Prometheus, with its path prefix if it has one (https://prometheus.example/prometheus); empty to find it."
    )
    namespaces: _Namespaces = Field(
        ("monitoring", "prometheus", "kube-prometheus", "kube-prometheus-stack", "observability", "openshift-monitoring"),
        description="Namespaces in which the Service of Prometheus is looked for. It gets credentials, so tenants must have no rights"
        " there.",
    )
    exporter_namespaces: _Namespaces = Field(
        ("gpu-operator", "nvidia-gpu-operator", "kube-system", "monitoring", "prometheus"),
        description="Namespaces in which pods of exporters are looked for. Their metrics are trusted: tenants must have no rights there.",
    )
    path_prefix: Annotated[str, _matching(_PREFIX, "a path such as /prometheus, without a slash at its end")] = Field(
        "", description="Path prefix of a Prometheus that is found by its Service, such as /prometheus; empty for none."
    )
    matchers: Pairs = Field(
        {}, description="Labels that a series of metrics must have to be used (job=nvidia-dcgm-exporter); empty for all series."
    )
    metrics: Pairs = Field(
        {},
        description="Metrics of exporters that Allaboard doesn't know, each with its measure and a unit or factor"
        " (my_gpu_free_bytes=free:bytes); docs/gpu.md lists the measures.",
    )
    node_label: _Label = Field("node", description="Label of the metrics in `gpu_metrics.metrics` that holds the node's name.")
    card_label: _Label = Field("gpu", description="Label of the metrics in `gpu_metrics.metrics` that identifies a card of the node.")
    model_label: _Label = Field("model", description="Label of the metrics in `gpu_metrics.metrics` that holds the card's model.")
    interval_seconds: float = Field(30.0, ge=0.1, le=3600, description="Seconds between two readings of the metrics.")
    stale_seconds: float = Field(
        120.0,
        ge=0.2,
        le=86_400,
        description="Age in seconds from which metrics count as unknown. Must be more than `gpu_metrics.interval_seconds`.",
    )
    timeout_seconds: float = Field(10.0, gt=0, le=300, description="Time limit in seconds of one request for metrics.")
    ca_file: str = Field("", description="File of CA certificates (PEM) that verify Prometheus; empty for those of the system.")
    insecure_skip_verify: bool = Field(False, description="If true, the certificate of Prometheus isn't verified.")
    token_file: str = Field("", description="File with a bearer token for Prometheus, read again for each request; empty for none.")
    username_file: str = Field("", description="File with a user name for Prometheus; needs `gpu_metrics.password_file`; empty for none.")
    password_file: str = Field("", description="File with the password for the user of `gpu_metrics.username_file`; empty for none.")

    @field_validator("namespaces", "exporter_namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    _words = field_validator("source", mode="before")(word_of)
    _as_pairs = field_validator("matchers", "metrics", mode="before")(pairs_in)

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            is_fine = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) and not (parts.query or parts.fragment)
        except ValueError:
            is_fine = False
        if value and (not is_fine or parts.username is not None):
            words = "https://prometheus.example/prefix, without query and credentials (gpu_metrics.token_file, gpu_metrics.username_file)"
            raise ValueError(f"must be like {words}")  # the message doesn't repeat the value, which may hold a password
        return value.rstrip("/")

    @field_validator("matchers")
    @classmethod
    def _check_label_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _LABEL.fullmatch(name):
                raise ValueError(f"{shown(name)} is no label of metrics")
        return value

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, value: dict[str, str]) -> dict[str, str]:
        for name, stated in value.items():
            if not _METRIC.fullmatch(name):
                raise ValueError(f"{shown(name)} is no metric's name")
            meaning_of(stated)
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.stale_seconds <= self.interval_seconds:
            raise ValueError(
                "gpu_metrics.stale_seconds must be more than gpu_metrics.interval_seconds, "
                f"not {self.stale_seconds:g} and {self.interval_seconds:g}"
            )
        if self.url and self.source == "exporters":
            raise ValueError("gpu_metrics.url: isn't used with gpu_metrics.source: exporters; leave out one of them")
        if bool(self.username_file) != bool(self.password_file):
            raise ValueError("gpu_metrics.username_file and gpu_metrics.password_file must be named together")
        if self.token_file and self.username_file:
            raise ValueError("gpu_metrics.token_file and gpu_metrics.username_file: name one of them")
        return self
