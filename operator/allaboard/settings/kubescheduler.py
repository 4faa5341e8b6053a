"""Reads kube-scheduler's configuration (``kubescheduler.config.k8s.io``), of every version from 2020 on.

The meaning of a file depends on its version: the plugins that are enabled by default, their weights, and how they score. A known field
that isn't honoured becomes a warning. An unknown field or an invalid value is an error that names the field.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from allaboard.model.errors import shown
from allaboard.model.fit import Era, FitScoring, Strategy
from allaboard.settings.messages import no_such, requirement_of
from allaboard.settings.plugins import meant_by
from allaboard.settings.profiles import ConfigurationError, KubeSchedulerSettings, Profile
from allaboard.settings.schema import (
    AllocatedArgs,
    Args,
    ClientConnection,
    FitArgs,
    KubeSchedulerConfiguration,
    LeaderElection,
    Plugin,
    PluginConfig,
    Plugins,
    Point,
    RatioArgs,
    RatioArgs2020,
    Resource,
    SchedulerProfile,
)

GROUP = "kubescheduler.config.k8s.io"
KIND = "KubeSchedulerConfiguration"
KUBECONFIG_PLACE = "clientConnection.kubeconfig"

_ERAS = {
    "v1alpha1": Era.V1ALPHA,
    "v1alpha2": Era.V1ALPHA,
    "v1beta1": Era.V1BETA1,
    "v1beta2": Era.TODAY,
    "v1beta3": Era.TODAY,
    "v1": Era.TODAY,
}
VERSIONS = tuple(_ERAS)
_MOST_WEIGHT = 100
_LARGEST_SCORE = 10

_FIT = "NodeResourcesFit"
_RATIO = "RequestedToCapacityRatio"
_LEAST = "NodeResourcesLeastAllocated"
_MOST = "NodeResourcesMostAllocated"
_OTHER_SCORES = ("NodeAffinity", "TaintToleration", "ImageLocality", "InterPodAffinity", "PodTopologySpread")
_GPUS = "genius"
"""Name of the plugin of Genius, a scheduler that uses GPU metrics. The plugin's weight becomes the weight of Allaboard's GPU score.

Allaboard filters nodes by the pods' GPU labels whether or not the plugin is enabled.
"""

_UNSCORED = "NodeResourcesBalancedAllocation"
"""The score plugin that kube-scheduler enables by default and Allaboard doesn't have."""

_PLUGIN_REASONS = {
    "LeastRequestedPriority": f"is the name of no plugin, so it has no effect in kube-scheduler either; {_LEAST} was meant",
    "Coscheduling": "isn't needed: gangs are scheduled whole in any case",
}
_FIELD_REASONS = {
    "parallelism": "the option `workers` sets the number of processes that search",
    "percentage_of_nodes_to_score": "all nodes are considered",
    "healthz_bind_address": "the option `health_port` sets the port of the probes",
    "metrics_bind_address": "the option `metrics_port` sets the port of the metrics",
    "extenders": "extenders aren't called",
}
"""Reasons why fields aren't honoured. Other fields have no reason in their warning."""

_PLACEHOLDER = re.compile(r"replace[_-]?me|change[_-]?me|<.*>|\$\{.*\}|your[_-]", re.IGNORECASE)
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")

_Model = TypeVar("_Model", bound=BaseModel)


def kubescheduler_from(raw: Mapping[str, object]) -> KubeSchedulerSettings:
    """Return what a ``KubeSchedulerConfiguration`` asks for. Raises ``ConfigurationError``, which names the field."""
    api_version = next((value for key, value in raw.items() if key.lower() == "apiversion"), None)
    group, _, version = str(api_version).partition("/")
    if api_version is None:
        raise ConfigurationError(f"apiVersion: is missing; one of {', '.join(f'{GROUP}/{each}' for each in VERSIONS)}")
    if group != GROUP or version not in _ERAS:
        raise ConfigurationError(f"apiVersion: must be {GROUP}/ and one of {', '.join(VERSIONS)}, not {shown(api_version)}")
    return _Reader(version).read(raw)


class _Reader:
    """Reads one configuration of a given version, and collects warnings."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._era = _ERAS[version]
        self._warnings: list[str] = []
        self._unusable: dict[str, str] = {}

    def read(self, raw: Mapping[str, object]) -> KubeSchedulerSettings:
        # 1. Check the fields.
        stated = self._parsed(KubeSchedulerConfiguration, raw, "")
        if stated.kind != KIND:
            raise ConfigurationError(f"kind: must be {KIND}, not {shown(stated.kind)}")
        # 2. Read the profiles.
        profiles = [self._profile(profile, place) for profile, place in self._profiles(stated)]
        # 3. Take over fields that options of Allaboard correspond to, and warn of the others.
        options = self._connection(stated.client_connection) | self._election(stated.leader_election)
        for name, value in (
            ("backoff_initial_seconds", stated.pod_initial_backoff_seconds),
            ("backoff_max_seconds", stated.pod_max_backoff_seconds),
        ):
            if value is not None:
                options[name] = float(value)
        for name in KubeSchedulerConfiguration.model_fields.keys() & stated.model_fields_set:
            field = KubeSchedulerConfiguration.model_fields[name]
            if field.annotation is object:
                self._warn(str(field.alias), "isn't honoured" + (f": {_FIELD_REASONS[name]}" if name in _FIELD_REASONS else ""))
        return KubeSchedulerSettings(tuple(profiles), options, tuple(self._warnings), self._unusable)

    def _profiles(self, stated: KubeSchedulerConfiguration) -> Iterator[tuple[SchedulerProfile, str]]:
        """Yield the profiles and their places. A file of v1alpha1 is itself the only profile."""
        if self._version == "v1alpha1":
            if stated.profiles:
                raise ConfigurationError("profiles: v1alpha1 has none; state apiVersion v1, or plugins and pluginConfig at the top")
            plugins = stated.plugins or Plugins()
            yield SchedulerProfile(schedulerName=stated.scheduler_name, plugins=plugins, pluginConfig=stated.plugin_config), ""
            return
        for name in ("plugins", "plugin_config", "scheduler_name"):
            if name in stated.model_fields_set:
                alias = KubeSchedulerConfiguration.model_fields[name].alias
                raise ConfigurationError(f"{alias}: {self._version} has it in profiles; move it to profiles[0].{alias}")
        places: dict[str, int] = {}
        for number, profile in enumerate(stated.profiles):
            if profile.scheduler_name in places:
                first = places[profile.scheduler_name]
                mistake = f"{profile.scheduler_name!r} is that of profiles[{first}], too" if profile.scheduler_name else "is missing again"
                raise ConfigurationError(f"profiles[{number}].schedulerName: {mistake}; give each profile a name of its own")
            places[profile.scheduler_name] = number
            yield profile, f"profiles[{number}]"

    def _profile(self, profile: SchedulerProfile, place: str) -> Profile:
        prefix = f"{place}." if place else ""
        if len(profile.scheduler_name) > 253:
            raise ConfigurationError(f"{prefix}schedulerName: must be 253 characters at most, not {len(profile.scheduler_name)}")
        if profile.percentage_of_nodes_to_score is not None:
            self._warn(f"{prefix}percentageOfNodesToScore", f"isn't honoured: {_FIELD_REASONS['percentage_of_nodes_to_score']}")
        weights, is_explicit = self._score_plugins(profile.plugins, prefix)
        arguments = self._arguments(profile.plugin_config, f"{prefix}pluginConfig")
        enabled = sorted(
            (name for name in self._resource_plugins if name in weights), key=lambda name: (name not in is_explicit, -weights[name])
        )
        for name in enabled[1:]:
            self._warn(
                f"{prefix}plugins.score",
                f"{name} (weight {weights[name]}) isn't scored beside {enabled[0]}, though kube-scheduler scores both",
            )
        for name, (where, _) in arguments.items():
            if name in self._resource_plugins and name not in enabled[:1]:
                self._warn(where, f"isn't in force: {name} isn't enabled" if name not in enabled else f"isn't in force beside {enabled[0]}")
        if _UNSCORED in weights:
            self._warn(f"{prefix}plugins.score", f"{_UNSCORED} is enabled in kube-scheduler by default; Allaboard has no such score")
        other_scores = {name: weights.get(name, 0) for name in _OTHER_SCORES}
        scoring = FitScoring(
            era=self._era,
            weight=weights[enabled[0]] if enabled else 0,
            affinity=other_scores["NodeAffinity"],
            taints=other_scores["TaintToleration"],
            images=other_scores["ImageLocality"],
            pods=other_scores["InterPodAffinity"],
            spread=other_scores["PodTopologySpread"],
            gpus=weights.get(_GPUS, 0),
            **(self._strategy(enabled[0], arguments, f"{prefix}pluginConfig") if enabled else {}),
        )
        return Profile(profile.scheduler_name, scoring, place or "the file")

    def _score_plugins(self, plugins: Plugins, prefix: str) -> tuple[dict[str, int], frozenset[str]]:
        """Return the weights of the enabled score plugins, and the names of the score plugins that the file itself enables."""
        weights = self._defaults()
        explicit: set[str] = set()
        for point in ("multiPoint", "score"):
            stated = plugins.multi_point if point == "multiPoint" else plugins.score
            where = f"{prefix}plugins.{point}"
            _refuse_typos(stated.disabled, f"{where}.disabled")
            _refuse_typos(stated.enabled, f"{where}.enabled")
            for plugin in stated.disabled:
                if plugin.name == "*":
                    weights.clear()
                elif weights.pop(plugin.name, None) is None:
                    self._warn_of_plugin(f"{where}.disabled", plugin, "isn't enabled, or isn't known")
            for plugin in stated.enabled:
                if plugin.name in self._scored():
                    weights[plugin.name] = plugin.weight or 1
                    explicit.add(plugin.name)
                else:
                    self._warn_of_plugin(f"{where}.enabled", plugin, "isn't scored: Allaboard has no such score")
        for name in Plugins.model_fields.keys() & plugins.model_fields_set - {"multi_point", "score"}:
            point = str(Plugins.model_fields[name].alias)
            where, stated = f"{prefix}plugins.{point}", getattr(plugins, name)
            _refuse_typos(stated.enabled, f"{where}.enabled")
            _refuse_typos(stated.disabled, f"{where}.disabled")
            for plugin in stated.enabled:
                self._warn_of_plugin(f"{where}.enabled", plugin, "isn't honoured")
            for plugin in stated.disabled:
                self._warn_of_plugin(f"{where}.disabled", plugin, "isn't honoured: Allaboard's own rules decide where pods may run")
        return weights, frozenset(explicit)

    def _defaults(self) -> dict[str, int]:
        """Return the weights of the score plugins that are enabled by default (the registries of 1.18, 1.20, 1.22 and 1.37)."""
        is_weighty = self._version in ("v1beta3", "v1")
        affinity, taints, others = (2, 3, 2) if is_weighty else (1, 1, 1)
        fit = _FIT if self._era is Era.TODAY else _LEAST
        weights = {
            fit: 1,
            "NodeAffinity": affinity,
            "TaintToleration": taints,
            "ImageLocality": 1,
            _UNSCORED: 1,
            "InterPodAffinity": others,
        }
        return weights if self._version == "v1alpha1" else weights | {"PodTopologySpread": 2}

    @property
    def _resource_plugins(self) -> tuple[str, ...]:
        """The plugins that score nodes by the requested share of resources. Only one of them is in force."""
        return (_FIT,) if self._era is Era.TODAY else (_RATIO, _LEAST, _MOST)

    def _scored(self) -> frozenset[str]:
        return frozenset((*self._resource_plugins, *_OTHER_SCORES, _UNSCORED, _GPUS))

    def _arguments(self, configs: Sequence[PluginConfig], where: str) -> dict[str, tuple[str, Mapping[str, object]]]:
        """Return the arguments of plugins by name, with their places. Warn of plugins whose arguments aren't honoured."""
        found: dict[str, tuple[str, Mapping[str, object]]] = {}
        _refuse_typos(configs, where)
        for number, config in enumerate(configs):
            if config.name in found:
                raise ConfigurationError(f"{where}[{number}].name: {shown(config.name)} has arguments already; state them once")
            found[config.name] = f"{where}[{number}].args", config.args
            if config.name not in (_FIT, _RATIO, _LEAST, _MOST):
                self._warn(f"{where}[{number}].args", f"{config.name}: isn't honoured")
            elif config.name == _FIT and self._era is not Era.TODAY:
                if any(name.lower() == "scoringstrategy" for name in config.args):
                    raise ConfigurationError(
                        f"{where}[{number}].args.scoringStrategy: {self._version} has none; v1beta2 and later do; state apiVersion v1,"
                        f" or enable {_RATIO}, {_LEAST} or {_MOST} in plugins.score"
                    )
                self._warn(
                    f"{where}[{number}].args", f"{config.name}: isn't honoured: a pod's requests must be free on its node in any case"
                )
        return found

    def _strategy(self, plugin: str, arguments: Mapping[str, tuple[str, Mapping[str, object]]], where: str) -> dict[str, Any]:
        """Return the scoring of a resource plugin, as keyword arguments of ``FitScoring``."""
        place, args = arguments.get(plugin, (f"{where}[{plugin}].args", {}))
        if plugin == _FIT:
            return self._fit(self._parsed(FitArgs, args, place), place)
        if plugin in (_LEAST, _MOST):
            resources = self._resources(self._parsed(AllocatedArgs, args, place).resources, f"{place}.resources")
            return {"strategy": Strategy.LEAST if plugin == _LEAST else Strategy.MOST, **resources}
        if self._era is Era.V1ALPHA:
            return self._ratio_of_2020(self._parsed(RatioArgs2020, args, place), place)
        stated = self._parsed(RatioArgs, args, place)
        resources = self._resources(stated.resources, f"{place}.resources")
        return {"strategy": Strategy.RATIO, "shape": _shape(stated.shape, f"{place}.shape"), **resources}

    def _fit(self, stated: FitArgs, place: str) -> dict[str, Any]:
        for name in ("ignored_resources", "ignored_resource_groups"):
            if name in stated.model_fields_set:
                alias = FitArgs.model_fields[name].alias
                self._warn(f"{place}.{alias}", "isn't honoured: a pod's requests must be free on its node in any case")
        strategy, where = stated.scoring_strategy, f"{place}.scoringStrategy"
        if strategy.type not in set(Strategy):
            raise ConfigurationError(f"{where}.type: must be one of {', '.join(Strategy)}, not {shown(strategy.type)}")
        resources = self._resources(strategy.resources, f"{where}.resources")
        ratio = strategy.requested_to_capacity_ratio
        if strategy.type != Strategy.RATIO:
            if ratio is not None:
                self._warn(f"{where}.requestedToCapacityRatio", f"isn't in force: type is {strategy.type}")
            return {"strategy": Strategy(strategy.type), **resources}
        shape = _shape(ratio.shape if ratio else [], f"{where}.requestedToCapacityRatio.shape")
        return {"strategy": Strategy.RATIO, "shape": shape, **resources}

    def _ratio_of_2020(self, stated: RatioArgs2020, place: str) -> dict[str, Any]:
        """Return the scoring that RequestedToCapacityRatio's arguments of 2020 state. As in kube-scheduler of 2020, no value is checked."""
        shape = tuple((point.utilization, point.score) for point in stated.function_shape)
        utilizations = [utilization for utilization, _ in shape]
        if utilizations != sorted(set(utilizations)) or not all(0 <= number <= 100 for point in shape for number in point):
            problem = "isn't by rising utilization, or has a utilization or score outside of 0 to 100"
            self._warn(f"{place}.functionShape", f"{problem}; it is used unchanged, as kube-scheduler did")
        for name, weight in stated.resource_to_weight_map.items():
            if weight < 1:
                self._warn(f"{place}.resourceToWeightMap[{name}]", f"{weight} is less than 1; it is used unchanged, as kube-scheduler did")
        return {"strategy": Strategy.RATIO, "shape": shape, "resources": tuple(stated.resource_to_weight_map.items())}

    def _resources(self, stated: Sequence[Resource], where: str) -> dict[str, tuple[tuple[str, int], ...]]:
        """Return the weights by resource, as a keyword argument of ``FitScoring``. Empty for its default, cpu 1 and memory 1."""
        found: dict[str, int] = {}
        for number, resource in enumerate(stated):
            if resource.name in found:
                raise ConfigurationError(f"{where}[{number}].name: {shown(resource.name)} has a weight already; state it once")
            if not 0 <= resource.weight <= _MOST_WEIGHT:
                raise ConfigurationError(f"{where}[{number}].weight: must be 1 to {_MOST_WEIGHT}, not {resource.weight}")
            found[resource.name] = resource.weight or 1
        return {"resources": tuple(found.items())} if found else {}

    def _connection(self, stated: ClientConnection) -> dict[str, object]:
        options: dict[str, object] = {}
        if _PLACEHOLDER.search(stated.kubeconfig):
            words = "is a placeholder: replace it by a kubeconfig's path, or remove the line"
            self._unusable["kubeconfig"] = f"{KUBECONFIG_PLACE}: {shown(stated.kubeconfig)} {words}"
        elif stated.kubeconfig:
            options["kubeconfig"] = stated.kubeconfig
        if stated.qps > 0:
            options["client_qps"] = stated.qps
        if stated.burst > 0:
            options["client_burst"] = stated.burst
        for name, alias in (("accept_content_types", "acceptContentTypes"), ("content_type", "contentType")):
            if getattr(stated, name) not in ("", "application/json"):
                self._warn(f"clientConnection.{alias}", "isn't honoured: requests to the API server are JSON")
        return options

    def _election(self, stated: LeaderElection) -> dict[str, object]:
        times = {
            "lease_duration_seconds": ("leaseDuration", stated.lease_duration),
            "lease_renew_deadline_seconds": ("renewDeadline", stated.renew_deadline),
            "lease_retry_seconds": ("retryPeriod", stated.retry_period),
        }
        options: dict[str, object] = {option: _seconds(text, f"leaderElection.{field}") for option, (field, text) in times.items() if text}
        if stated.leader_elect is not None:
            options["leader_elect"] = stated.leader_elect
        names = {
            "lease_name": stated.resource_name or stated.lock_object_name,
            "lease_namespace": stated.resource_namespace or stated.lock_object_namespace,
        }
        options |= {option: name for option, name in names.items() if name}
        if stated.resource_lock not in ("", "leases"):
            self._warn("leaderElection.resourceLock", f"isn't honoured: the lock is a Lease, not {shown(stated.resource_lock)}")
        return options

    def _parsed(self, model: type[_Model], raw: object, place: str) -> _Model:
        is_any_case = self._era is Era.V1ALPHA
        try:
            return model.model_validate(raw, context=is_any_case)
        except ValidationError as error:
            raise ConfigurationError("; ".join(_message_of(model, problem, place) for problem in error.errors()[:3])) from error

    def _warn_of_plugin(self, where: str, plugin: Plugin, otherwise: str) -> None:
        if plugin.name == _GPUS and where.endswith((".preFilter.enabled", ".filter.enabled")):
            return  # Allaboard filters by the pods' labels in any case
        weight = f" (weight {plugin.weight})" if plugin.weight else ""
        self._warn(where, f"{plugin.name[:64]}{weight}: {_PLUGIN_REASONS.get(plugin.name, otherwise)}")

    def _warn(self, where: str, words: str) -> None:
        self._warnings.append(f"{where}: {words}")


def _refuse_typos(stated: Sequence[Plugin | PluginConfig], where: str) -> None:
    """Raise ``ConfigurationError`` for a misspelt name of a plugin, whose weight or arguments would have no effect."""
    for number, each in enumerate(stated):
        if meant := meant_by(each.name):
            raise ConfigurationError(f"{where}[{number}].name: no such plugin as {shown(each.name)}; did you mean {meant}?")


def _shape(stated: Sequence[Point], where: str) -> tuple[tuple[int, int], ...]:
    """Return a shape's points (utilization, score). Raises ``ConfigurationError`` if one is out of range or the utilizations don't rise."""
    if not stated:
        raise ConfigurationError(f"{where}: must have at least one point, such as {{utilization: 0, score: 0}}")
    for number, point in enumerate(stated):
        if not 0 <= point.utilization <= 100:
            raise ConfigurationError(f"{where}[{number}].utilization: must be 0 to 100, not {point.utilization}")
        if not 0 <= point.score <= _LARGEST_SCORE:
            raise ConfigurationError(f"{where}[{number}].score: must be 0 to {_LARGEST_SCORE}, not {point.score}")
        if number and point.utilization <= stated[number - 1].utilization:
            raise ConfigurationError(f"{where}[{number}].utilization: must be more than that of the point before, not {point.utilization}")
    return tuple((point.utilization, point.score) for point in stated)


def _seconds(text: str, where: str) -> int:
    """Return the seconds of a Go duration. Raises ``ConfigurationError``."""
    found = _DURATION.fullmatch(text) if len(text) < 20 else None
    if not found or not text:
        raise ConfigurationError(f"{where}: must be whole seconds such as 15s or 1m30s, not {shown(text)}")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _message_of(model: type[BaseModel], problem: Any, place: str) -> str:
    """Return one line about an error of pydantic: the field, and what its value must be."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
    where = f"{place}{path}".lstrip(".") or "the document"
    kind = problem["type"]
    if kind == "extra_forbidden":
        *group, name = problem["loc"]
        return f"{where}: {no_such('field', str(name), _fields_of(model, group))}"
    if kind in ("too_long", "string_too_long"):
        most = problem["ctx"]["max_length"]
        return f"{where}: must have {most} entries at most" if kind == "too_long" else f"{where}: must be {most} characters at most"
    words = requirement_of(kind, problem.get("ctx", {})) or problem["msg"].removeprefix("Value error, ")
    return f"{where}: {words}" if kind == "missing" else f"{where}: {words}, not {shown(problem['input'])}"


def _fields_of(model: Any, path: Sequence[object]) -> Sequence[str]:
    """Return the names of the fields of the object at ``path``."""
    for part in path:
        if isinstance(part, str):
            field = next(each for each in model.model_fields.values() if each.alias == part)
            model = next(each for each in (field.annotation, *getattr(field.annotation, "__args__", ())) if hasattr(each, "model_fields"))
    return [str(each.alias) for each in model.model_fields.values() if each.alias not in _ARGS_FIELDS]


_ARGS_FIELDS = frozenset(str(each.alias) for each in Args.model_fields.values())
