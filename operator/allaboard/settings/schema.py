"""Models of kube-scheduler's configuration, with the fields of all its versions.

A field of type ``object`` is not checked: a warning says that it isn't honoured. A null value counts as absent. The versions of 2020
accept keys in upper and lower case.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel

_SMALL = 100_000

Weight = Annotated[int, Field(ge=-_SMALL, le=_SMALL)]
Name = Annotated[str, Field(min_length=1, max_length=317)]

MOST_PROFILES = 64
_MOST_PLUGINS = 256
"""The most entries that a list may have. A kube-scheduler with all scheduler-plugins has about fifty plugins."""


class Part(BaseModel):
    """An object of the configuration; unknown fields are refused. If the validation context is true, keys match in any case."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _fold(cls, stated: object, info: ValidationInfo) -> object:
        if not isinstance(stated, Mapping):
            return stated
        known = {str(each.alias).lower(): str(each.alias) for each in cls.model_fields.values()} if info.context else {}
        present = {key: value for key, value in stated.items() if value is not None}
        folded = {known.get(str(key).lower(), str(key)): value for key, value in present.items()}
        if len(folded) < len(present):
            raise ValueError("must not state a field twice, in different spellings")
        return folded


class Point(Part):
    """A point of a shape: utilization in percent, and its score."""

    utilization: Weight = 0
    score: Weight = 0


class Resource(Part):
    """A resource that is scored, and its weight; 0 means 1."""

    name: Name
    weight: Weight = 0


class Shape(Part):
    """Scores of utilizations, for RequestedToCapacityRatio."""

    shape: list[Point] = Field(default=[])


class Args(Part):
    """Arguments of a plugin, with an optional apiVersion and kind."""

    api_version: str = ""
    kind: str = ""


class RatioArgs2020(Args):
    """Arguments of RequestedToCapacityRatio in v1alpha1 and v1alpha2 (2020)."""

    function_shape: list[Point] = Field(min_length=1)
    resource_to_weight_map: dict[Name, Weight] = Field(min_length=1)


class RatioArgs(Args):
    """Arguments of RequestedToCapacityRatio in v1beta1."""

    shape: list[Point] = Field(min_length=1)
    resources: list[Resource] = Field(default=[])


class AllocatedArgs(Args):
    """Arguments of NodeResourcesLeastAllocated and NodeResourcesMostAllocated, before v1beta2."""

    resources: list[Resource] = Field(default=[])


class ScoringStrategy(Part):
    """The scoringStrategy of NodeResourcesFit."""

    type: str = "LeastAllocated"
    resources: list[Resource] = Field(default=[])
    requested_to_capacity_ratio: Shape | None = None


class FitArgs(Args):
    """Arguments of NodeResourcesFit."""

    ignored_resources: object = None
    ignored_resource_groups: object = None
    scoring_strategy: ScoringStrategy = ScoringStrategy()


class Plugin(Part):
    """A plugin in a list of enabled or disabled plugins; weight 0 means 1."""

    name: Name
    weight: Annotated[int, Field(ge=0, le=_SMALL)] = 0


class PluginSet(Part):
    """Plugins that are enabled and disabled at one extension point."""

    enabled: list[Plugin] = Field(default=[], max_length=_MOST_PLUGINS)
    disabled: list[Plugin] = Field(default=[], max_length=_MOST_PLUGINS)


class Plugins(Part):
    """Plugins by extension point."""

    multi_point: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    unreserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()


class PluginConfig(Part):
    """The name of a plugin, and its arguments."""

    name: Name
    args: dict[str, Any] = Field(default={})


class SchedulerProfile(Part):
    """A profile: the configuration for the pods of one scheduler name."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: object = None
    plugins: Plugins = Plugins()
    plugin_config: list[PluginConfig] = Field(default=[], max_length=_MOST_PLUGINS)


class LeaderElection(Part):
    """Options of leader election. ``lock_object_…`` are the names that v1alpha1 has for ``resource_…``."""

    leader_elect: bool | None = None
    lease_duration: str = ""
    renew_deadline: str = ""
    retry_period: str = ""
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""
    lock_object_name: str = ""
    lock_object_namespace: str = ""


class ClientConnection(Part):
    """The connection to the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: Annotated[float, Field(ge=-_SMALL, le=_SMALL, allow_inf_nan=False)] = 0.0
    burst: Weight = 0


class KubeSchedulerConfiguration(Part):
    """The whole document KubeSchedulerConfiguration of a configuration file."""

    api_version: str
    kind: str
    profiles: list[SchedulerProfile] = Field(default=[], max_length=MOST_PROFILES)
    scheduler_name: str = ""
    plugins: Plugins | None = None
    plugin_config: list[PluginConfig] = Field(default=[], max_length=_MOST_PLUGINS)
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    pod_initial_backoff_seconds: Annotated[int, Field(ge=1, le=_SMALL)] | None = None
    pod_max_backoff_seconds: Annotated[int, Field(ge=1, le=_SMALL)] | None = None
    parallelism: object = None
    percentage_of_nodes_to_score: object = None
    healthz_bind_address: object = None
    metrics_bind_address: object = None
    enable_profiling: object = None
    enable_contention_profiling: object = None
    extenders: object = None
    delay_cache_until_active: object = None
    algorithm_source: object = None
    hard_pod_affinity_symmetric_weight: object = None
    disable_preemption: object = None
    bind_timeout_seconds: object = None
