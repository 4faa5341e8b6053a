"""Adds the defaults of a namespace's LimitRanges to pods, and refuses pods by its LimitRanges and ResourceQuotas.

The rules are those of the API server's admission control (kubernetes plugin/pkg/admission/limitranger and resourcequota,
pkg/quota/v1/evaluator/core, 1.37). Quotas with scopes count only some pods, and are ignored.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Any

from allaboard.model.quantities import parse_quantity
from allaboard.model.raw_fields import items, mapping, text
from allaboard.model.requests import RawObject, pod_requests
from allaboard.whatif.runtimeclasses import NotAdmittedError

LIMIT_RANGE, RESOURCE_QUOTA = ("", "LimitRange"), ("", "ResourceQuota")

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_CONTAINERS = ("containers", "initContainers")

Amounts = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits that one LimitRange sets for containers, as raw amounts by resource."""

    default: Mapping[str, object]
    default_request: Mapping[str, object]
    least: Mapping[str, object]
    most: Mapping[str, object]


@dataclass(slots=True)
class _Quota:
    """The limits of one ResourceQuota and the used amounts, by keys such as ``requests.cpu``. Both are empty if the quota has scopes."""

    name: str
    hard: Amounts
    used: dict[str, Fraction]


@dataclass(slots=True)
class Quotas:
    """LimitRanges and ResourceQuotas by namespace and name. An object that is added replaces the earlier object of the same name."""

    limits: dict[str, dict[str, list[_Limits]]] = field(default_factory=lambda: defaultdict(dict))
    quotas: dict[str, dict[str, _Quota]] = field(default_factory=lambda: defaultdict(dict))

    def overriding(self, others: "Quotas") -> "Quotas":
        """Return the LimitRanges and quotas of this object and of ``others``; if both have one of a name, that of this object counts.

        A quota that replaces a quota of ``others`` keeps the used amounts of the replaced quota.
        """
        both = Quotas()
        for namespace in self.limits.keys() | others.limits.keys():
            both.limits[namespace] = others.limits.get(namespace, {}) | self.limits.get(namespace, {})
        for namespace in self.quotas.keys() | others.quotas.keys():
            known = dict(others.quotas.get(namespace, {}))
            for name, quota in self.quotas.get(namespace, {}).items():
                used = known[name].used if name in known else {}
                known[name] = replace(quota, used={key: used.get(key, Fraction(0)) for key in quota.hard})
            both.quotas[namespace] = known
        return both

    def learn_limits(self, raw: RawObject) -> None:
        """Add a LimitRange. Raises ``MalformedError``."""
        found: list[_Limits] = []
        for path, limit in items(mapping(raw, "spec"), "limits", "spec."):
            if limit.get("type") == "Container":
                most, default = mapping(limit, "max", path), mapping(limit, "default", path)
                default = {**most, **default}  # as the API server defaults the object (pkg/apis/core/v1/defaults.go)
                request = {**mapping(limit, "min", path), **default, **mapping(limit, "defaultRequest", path)}
                found.append(_Limits(default, request, mapping(limit, "min", path), most))
        self.limits[_namespace(raw)][_name(raw)] = found

    def learn_quota(self, raw: RawObject) -> None:
        """Add a ResourceQuota. Raises ``MalformedError``."""
        spec = mapping(raw, "spec")
        has_scopes = spec.get("scopes") or spec.get("scopeSelector")
        hard = {} if has_scopes else _amounts(mapping(spec, "hard", "spec."), "spec.hard")
        used = _amounts(mapping(mapping(raw, "status"), "used", "status."), "status.used")
        name = _name(raw)
        self.quotas[_namespace(raw)][name] = _Quota(name, hard, {key: used.get(key, Fraction(0)) for key in hard})

    def defaulted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Return a raw pod with the defaults of its namespace's LimitRanges. Raises ``NotAdmittedError`` and ``MalformedError``."""
        for limits in chain.from_iterable(self.limits.get(pod["metadata"]["namespace"], {}).values()):
            pod = _limited(pod, limits)
        return pod

    def charge(self, pod: RawObject) -> None:
        """Count a new pod in its quotas. Raises ``NotAdmittedError`` if the pod would exceed a quota, and ``MalformedError``."""
        quotas = self.quotas.get(_namespace(pod), {}).values()
        usage = dict(_usage(pod)) if quotas else {}
        for quota in quotas:
            _check(quota, usage)
        for quota in quotas:
            for key in quota.hard.keys() & usage.keys():
                quota.used[key] += usage[key]


def _limited(pod: dict[str, Any], limits: _Limits) -> dict[str, Any]:
    spec = dict(pod["spec"])
    for key in _CONTAINERS:
        completed = []
        for path, container in items(spec, key, "spec."):
            stated = mapping(container, "resources", path)
            resources = {
                "limits": {**limits.default, **mapping(stated, "limits", path)},
                "requests": {**limits.default_request, **mapping(stated, "requests", path)},
            }
            completed.append({**container, "resources": {**stated, **resources}})
            for resource, least in limits.least.items():
                _compare(resource, "minimum", least, "request", resources["requests"].get(resource))
            for resource, most in limits.most.items():
                _compare(resource, "maximum", most, "limit", resources["limits"].get(resource))
            for resource, amount in resources["requests"].items():
                limit = resources["limits"].get(resource)
                if None not in (amount, limit) and parse_quantity(amount, resource) > parse_quantity(limit, resource):
                    raise NotAdmittedError(f"{path}resources.requests[{resource}]: {amount} is more than the limit of {limit}")
        if completed:
            spec[key] = completed
    return {**pod, "spec": spec}


def _compare(resource: str, bound: str, amount: object, what: str, stated: object) -> None:
    limit = parse_quantity(amount, resource)
    found = None if stated is None else parse_quantity(stated, resource)
    if found is None or (found < limit if bound == "minimum" else found > limit):
        problem = f"No {what} is specified" if stated is None else f"{what} is {stated}"
        raise NotAdmittedError(f"{bound} {resource} usage per Container is {amount}{'.' if stated is None else ', but'} {problem}")


def _check(quota: _Quota, usage: Amounts) -> None:
    unstated = sorted(key for key in quota.hard if key in _MUST_BE_STATED and not usage.get(key))
    if unstated:
        raise NotAdmittedError(f"failed quota: {quota.name}: must specify {','.join(unstated)}")
    over = sorted(key for key, hard in quota.hard.items() if usage.get(key) and quota.used[key] + usage[key] > hard)
    if over:
        parts = (("requested", usage), ("used", quota.used), ("limited", quota.hard))
        words = ", ".join(f"{what}: {','.join(f'{key}={_shown(amounts[key])}' for key in over)}" for what, amounts in parts)
        raise NotAdmittedError(f"exceeded quota: {quota.name}, {words}")


_MUST_BE_STATED = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))


def _usage(pod: RawObject) -> Iterator[tuple[str, Fraction]]:
    """Yield what a pod counts in ResourceQuotas: amounts by keys such as ``requests.cpu``."""
    yield from (("pods", Fraction(1)), ("count/pods", Fraction(1)))
    for resource, amount in pod_requests(pod):
        if resource != "pods":
            used = Fraction(amount, 1000 if resource == "cpu" else 1)
            yield f"requests.{resource}", used
            if resource in _NATIVE:
                yield resource, used
    limits: dict[str, Fraction] = defaultdict(Fraction)
    for path, container in items(mapping(pod, "spec"), "containers", "spec."):
        for resource, value in mapping(mapping(container, "resources", path), "limits", path).items():
            limits[f"limits.{resource}"] += parse_quantity(value, f"{path}resources.limits[{resource}]")
    yield from limits.items()


def _amounts(stated: Mapping[str, object], path: str) -> dict[str, Fraction]:
    return {key: parse_quantity(value, f"{path}[{key}]") for key, value in stated.items()}


def _shown(amount: Fraction) -> str:
    return str(amount) if amount.denominator == 1 else f"{int(amount * 1000)}m"


def _namespace(raw: RawObject) -> str:
    return text(mapping(raw, "metadata"), "namespace", path="metadata.") or "default"


def _name(raw: RawObject) -> str:
    metadata = mapping(raw, "metadata")
    return text(metadata, "name", path="metadata.") or text(metadata, "generateName", path="metadata.")
