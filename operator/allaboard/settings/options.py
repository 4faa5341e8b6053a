"""Every option, typed and checked: from flags, the environment (``ALLABOARD_…``) and a YAML file, in that order of precedence.

An unknown or invalid option stops the start with the option named: a scheduler that silently runs with defaults is worse than none.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as DecodingError

from allaboard.model.errors import shown
from allaboard.model.gang import Objective
from allaboard.model.headroom import headroom_from
from allaboard.model.pairs import pairs_in
from allaboard.model.pod import Reading
from allaboard.model.raw_fields import LABEL_KEY, NAMESPACE, OBJECT_NAME
from allaboard.model.topologies import LEVELS, Levels
from allaboard.plugins import DEFAULT_STRATEGY, SHIPPED_STRATEGIES, STRATEGY_NAME, strategy_names
from allaboard.settings.files import MOST_BYTES, Stated, stated_in
from allaboard.settings.gpu_metrics import GpuMetricsOptions
from allaboard.settings.gpus import GpuOptions
from allaboard.settings.kubescheduler import KUBECONFIG_PLACE
from allaboard.settings.messages import in_words, no_such_option
from allaboard.settings.pairs import Pairs
from allaboard.settings.placement import PackingOptions, SearchOptions
from allaboard.settings.profiles import ConfigurationError, InForce, Profile, in_force
from allaboard.settings.strategies import StrategyOptions

_PREFIX = "ALLABOARD_"
CONFIG_VARIABLE = f"{_PREFIX}CONFIG"

_SERVICE_LINK = re.compile(r"ALLABOARD(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)")

_Names = Annotated[tuple[str, ...], NoDecode]
_Port = Annotated[int, Field(ge=0, le=65535)]


LONGEST_LEASE_SECONDS = 300
"""A Lease object that says more is malformed."""


class SettingsError(ValueError):
    """The settings can't be used; the message names each offending option, and the file where one does."""


def _of_the_form(pattern: str, what: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {what}, not {shown(value)}")
        return value

    return AfterValidator(check)


_A_NAMESPACE = "the name of a namespace, of lower-case letters, digits and '-'"
_Namespaces = Annotated[tuple[Annotated[str, _of_the_form(NAMESPACE, _A_NAMESPACE)], ...], NoDecode]


_Hosts = Annotated[
    tuple[Annotated[str, _of_the_form(rf"{OBJECT_NAME}|[0-9a-f:]{{2,39}}", "the name or address of a host, in lower case")], ...], NoDecode
]
_Keys = Annotated[tuple[Annotated[str, _of_the_form(LABEL_KEY, "the key of a label")], ...], Field(min_length=1)]
_Topologies = dict[Annotated[str, _of_the_form(LABEL_KEY, "a name such as rack")], _Keys]
_A_STRATEGY = "the name of a strategy, of lower-case letters, digits and '-'"
_Strategy = Annotated[str, _of_the_form(STRATEGY_NAME, _A_STRATEGY)]
_Strategies = Annotated[tuple[_Strategy, ...], NoDecode]


class Settings(BaseSettings):
    """The operator's options; each field is an environment variable ``ALLABOARD_<FIELD>`` and a key of the configuration file."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)

    scheduler_names: _Names = Field(("allaboard",), min_length=1, description="Pods whose schedulerName is one of these are ours.")
    namespaces: _Namespaces = Field((), description="Namespaces whose pods are ours; none named means all.")
    node_selector: Pairs = Field({}, description="Labels of the nodes that are ours (pool=train,zone=a); none named means all.")
    objective: Objective = Field(Objective.FRAGMENTATION, description="What placements aim at unless a gang says otherwise.")
    strategy: _Strategy = Field(DEFAULT_STRATEGY, description="Who places gangs that don't say otherwise: a strategy's name.")
    strategies: _Strategies = Field(SHIPPED_STRATEGIES, description="Strategies that gangs may choose, plug-ins too; beside `strategy`.")
    strategy_options: StrategyOptions = StrategyOptions()
    topology: Annotated[str, _of_the_form(f"({LABEL_KEY})?", "the key of a label such as topology.kubernetes.io/zone")] = Field(
        "", description="Label of nodes, such as their rack, of whose values a gang should use few."
    )
    headroom: Pairs = Field({}, description="What is kept free on each node, by resource (cpu=20%,memory=4Gi); GPUs only if named.")
    packing: PackingOptions = PackingOptions()
    gpu: GpuOptions = GpuOptions()
    topologies: _Topologies = Field(
        {},
        description="Names of levels of the topology, each with the labels of nodes that may tell it; beside nvlink, rack and the others.",
    )
    schedule_timeout_seconds: int = Field(
        60,
        ge=1,
        le=86_400,
        description="How long a gang may wait, or be half bound, before that is reported; docs/reliability.md says what else it ends.",
    )
    batch_window_seconds: float = Field(
        0.04,
        ge=0,
        le=10,
        description="How long a cycle waits for more pods before it starts; three times as long once one has followed.",
    )
    batch_window_max_seconds: float = Field(1.0, ge=0, le=60, description="How long pods are gathered at most while more of them come.")
    backoff_initial_seconds: float = Field(1.0, gt=0, le=600, description="Pause after the first failed attempt; doubles each time.")
    backoff_max_seconds: float = Field(60.0, gt=0, le=3600, description="Longest pause between attempts.")
    overtaking_times: int = Field(
        3, ge=1, le=1000, description="How often a gang may be overtaken by younger ones that use the cluster better, before none may."
    )
    overtaking_seconds: float = Field(300.0, ge=0, le=86_400, description="For how long after the first time; 0 means once at most.")
    openfaas: bool = Field(
        False,
        description="Whether a function's pod whose containers state no cpu or memory takes what com.openfaas.function.spec asks for, and"
        " admission gives us function pods.",
    )
    pipelines: bool = Field(False, description="Whether pipelines (kopf.dev/v1 MLFlow) are deployed, one gang per stage, in order.")
    pipeline_namespaces: _Namespaces = Field((), description="Namespaces that pipelines of other namespaces may deploy into.")
    dry_run: Literal["role", "all", "none"] = Field(
        "role",
        description="Which binds are tried without effect before: one of each template, and all where none could be undone; all; or none.",
    )
    bind_concurrency: int = Field(64, ge=1, le=1024, description="Binds in flight at once; a namespace has three quarters of them at most.")
    bind_attempts: int = Field(4, ge=1, le=20, description="Tries of one bind while the API server answers with transient errors.")
    kubeconfig: str = Field("", description="Path of the kubeconfig; none named means the pod's service account, else `KUBECONFIG`.")
    client_qps: float = Field(
        0.0, ge=0, le=1_000_000, description="Requests a second to the API server at most, those of the Lease aside; 0 means no limit."
    )
    client_burst: int = Field(100, ge=1, le=1_000_000, description="Requests at once before `client_qps` holds.")
    request_timeout_seconds: float = Field(15.0, gt=0, le=300, description="Time limit of one API request.")
    reach_seconds: float = Field(
        30.0, ge=0, le=3600, description="How long the API server is waited for at the start, before the operator ends and says so."
    )
    resync_seconds: float = Field(60.0, ge=1, le=3600, description="How often PodGroups are listed anew, to forget deleted ones.")
    stale_seconds: float = Field(
        10.0,
        ge=5,
        le=3600,
        description="Age of what is known after which the operator isn't ready and decides nothing: silence of a watch, or lag.",
    )
    workers: int = Field(
        1, ge=1, le=64, description="Processes for the searches that others wait for; long searches have one of their own."
    )
    search_timeout_seconds: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="A long search that takes three quarters of it answers with the best it has; one that still doesn't is killed,"
        " and the gang retried.",
    )
    search: SearchOptions = SearchOptions()
    gpu_metrics: GpuMetricsOptions = GpuMetricsOptions()
    leader_elect: bool = Field(False, description="Whether replicas elect one that decides; on in config/.")
    lease_namespace: Annotated[str, _of_the_form(f"({NAMESPACE})?", _A_NAMESPACE)] = Field(
        "", description="Namespace of the Lease of the election; none named means the pod's own, and `default` outside of a cluster."
    )
    lease_name: Annotated[str, _of_the_form(OBJECT_NAME, "the name of an object, of lower-case letters, digits, '-' and '.'")] = Field(
        "allaboard", description="Name of the Lease."
    )
    lease_duration_seconds: int = Field(
        15, ge=1, le=LONGEST_LEASE_SECONDS, description="How long after its last renewal another replica may take the Lease."
    )
    lease_renew_deadline_seconds: float = Field(10.0, gt=0, description="How long without a renewal the leader goes on.")
    lease_retry_seconds: float = Field(2.0, gt=0, description="Pause between renewals; a follower looks eight times as often.")
    metrics_port: _Port = Field(8080, description="Port of /metrics; 0 means no metrics server.")
    health_port: _Port = Field(8081, description="Port of the liveness probe with `allaboard run`; 0 means none.")
    admission_port: _Port = Field(0, description="Port of the admission webhooks (docs/admission.md); 0 means none.")
    admission_hosts: _Hosts = Field(
        (), description="Names or addresses by which the API server reaches the webhooks; none named means those of their Service."
    )
    admission_certificate_days: int = Field(
        90, ge=1, le=3650, description="Life of the webhooks' certificate, which is renewed after two thirds of it."
    )
    log_format: Literal["text", "json"] = Field("text", description="How log lines look.")

    _in_force: InForce = PrivateAttr(InForce(()))

    @property
    def reading(self) -> Reading:
        """How pods are read."""
        return Reading(frozenset(self.scheduler_names), self.openfaas, self.gpu.charged_by_label)

    @property
    def levels(self) -> Levels:
        """The levels of the topology by name."""
        return {**LEVELS, **self.topologies}

    @property
    def in_force(self) -> InForce:
        """What a kube-scheduler's configuration means here."""
        return self._in_force

    def with_profiles(self, in_force: InForce) -> Self:
        """The same with the scheduler names and profiles that are ``in_force``."""
        copy = self.model_copy(update={"scheduler_names": in_force.names})
        copy._in_force = in_force
        return copy

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """What a kube-scheduler's configuration says, by scheduler name."""
        return self._in_force.profiles

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of a kube-scheduler's configuration isn't honoured."""
        return self._in_force.warnings

    @model_validator(mode="after")
    def _know_the_strategies(self) -> Self:
        stated = {self.strategy, *self.strategies, *self.strategy_options.by_name}
        if not stated <= set(SHIPPED_STRATEGIES) and (unknown := stated.difference(strategy_names())):
            options = (("strategy", (self.strategy,)), ("strategies", self.strategies), ("strategy_options", unknown))
            option = next(option for option, names in options if unknown.intersection(names))
            raise ValueError(f"{option}: no strategy {min(unknown)!r} is installed; known are {', '.join(strategy_names())}")
        return self

    @field_validator("scheduler_names", "namespaces", "pipeline_namespaces", "admission_hosts", "strategies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @model_validator(mode="after")
    def _keep_the_order_of_the_lease(self) -> Self:
        if not self.lease_retry_seconds < self.lease_renew_deadline_seconds < self.lease_duration_seconds:
            raise ValueError(
                "lease_retry_seconds must be less than lease_renew_deadline_seconds, and that less than lease_duration_seconds, "
                f"not {self.lease_retry_seconds:g}, {self.lease_renew_deadline_seconds:g} and {self.lease_duration_seconds}"
            )
        return self

    @field_validator("headroom")
    @classmethod
    def _amounts(cls, value: dict[str, str]) -> dict[str, str]:
        for resource, amount in value.items():
            try:
                headroom_from(resource, amount)
            except ValueError as error:
                raise ValueError(f"{resource}: {error}") from error
        return value

    @field_validator("headroom", mode="before")
    @classmethod
    def _as_quantities(cls, value: object) -> object:
        """Numbers are quantities too, as they are in manifests."""
        if not isinstance(value, Mapping):
            return value
        return {name: str(amount) if type(amount) in (int, float) else amount for name, amount in value.items()}

    _pairs = field_validator("node_selector", "headroom", mode="before")(pairs_in)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags come in as ``init``, the file is merged below the environment by ``load_settings``."""
        return init_settings, _EnvironmentSource(settings_cls), _FileSource(settings_cls)


class _EnvironmentSource(EnvSettingsSource):
    """The environment, which may hold a group of options as JSON."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError as error:
            options = ", ".join(getattr(field.annotation, "model_fields", ()) if field else ())
            words = f"must be a mapping of {options} in JSON" if options else "must be a mapping in JSON"
            raise SettingsError(f"{self._variable(field_name, value)}: {words}, not {shown(value)}") from error

    def _variable(self, field_name: str, value: Any) -> str:
        """The variable that holds ``value`` for a field of that name, which may be one of a group."""
        names = (name for name, stated in self.env_vars.items() if stated == value and name.rpartition("__")[2] == field_name.lower())
        return next(names, f"{_PREFIX}{field_name}").upper()


class _FileSource(PydanticBaseSettingsSource):
    """The YAML file that ``ALLABOARD_CONFIG`` names."""

    def get_field_value(self, field: object, field_name: str) -> tuple[object, str, bool]:
        raise NotImplementedError  # the whole file is read at once, in __call__

    def __call__(self) -> dict[str, object]:
        return dict(_stated_in_file())


def load_settings(flags: Mapping[str, object] | None = None) -> Settings:
    """The settings in force: ``flags``, then the environment, then the file that ``ALLABOARD_CONFIG`` names.

    Raises ``SettingsError`` that names each offending option.
    """
    # Kubernetes sets variables for each Service, so that one named "allaboard" must not look like a mistake.
    unknown = sorted(
        name
        for name in os.environ
        if name.startswith(_PREFIX)
        and name != CONFIG_VARIABLE
        and not _SERVICE_LINK.fullmatch(name)
        and name.removeprefix(_PREFIX).split("__")[0].lower() not in Settings.model_fields
    )
    if unknown:
        names = [name.removeprefix(_PREFIX).lower() for name in unknown]
        problems = [no_such_option(name, Settings.model_fields, lambda option: f"{_PREFIX}{option.upper()}") for name in names]
        raise SettingsError("; ".join(f"{name}: {problem}" for name, problem in zip(unknown, problems, strict=True)))
    try:
        settings = Settings(**dict(flags or {}))  # type: ignore[arg-type]  # pydantic checks the types
    except DecodingError as error:
        raise SettingsError(str(error.__cause__)) from error
    except ValidationError as error:
        stated = _stated_in_file().keys() - dict(flags or {}).keys()
        raise SettingsError("; ".join(_place(problem, stated) + in_words(problem, Settings) for problem in error.errors())) from error
    return settings.with_profiles(_meant(_file(), settings))


def _meant(file: Stated, settings: Settings) -> InForce:
    """What ``file`` means beside ``settings``, in words too. Raises ``SettingsError`` for what can't be used and nobody else sets."""
    found = in_force(file.foreign, settings.scheduler_names)
    for option, problem in file.foreign.unusable.items():
        if option not in settings.model_fields_set:
            raise SettingsError(f"{os.environ[CONFIG_VARIABLE]}: {problem}")
        found = replace(found, warnings=(*found.warnings, f"{problem}; {option} is set elsewhere, so that this one isn't used"))
    if settings.kubeconfig and file.foreign.options.get("kubeconfig") == settings.kubeconfig:
        found = replace(found, kubeconfig_place=f"{KUBECONFIG_PLACE} of {os.environ[CONFIG_VARIABLE]}")
    if file.is_empty:
        words = f"{os.environ[CONFIG_VARIABLE]}: states nothing; all that no flag or variable sets is at its default"
        found = replace(found, warnings=(words, *found.warnings), is_stated=False)
    return found


def _stated_in_file() -> Mapping[str, object]:
    return _file().options


def _file() -> Stated:
    """What the file says. Raises ``SettingsError``."""
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        return Stated()
    try:
        with Path(path).open("rb") as file:
            return stated_in(file.read(MOST_BYTES + 1))
    except OSError as error:
        raise SettingsError(f"{path}: can't be read: {error.strerror}") from error
    except ConfigurationError as error:
        raise SettingsError(f"{path}: {error}") from error


def _place(problem: ErrorDetails, stated: Iterable[str]) -> str:
    """The file and a colon, when the problem is with what is ``stated`` there and not in the environment."""
    path = [part for part in problem["loc"] if isinstance(part, str)]
    options = path[:1] or re.findall(r"\w+", problem["msg"])  # a problem with several options at once names them
    variables = [_PREFIX + "__".join(path[:end]).upper() for end in range(1, len(path) + 1)]
    is_in_environment = any(
        name in variables or (variables and name.startswith(f"{variables[-1]}__")) for name in map(str.upper, os.environ)
    )
    return "" if is_in_environment or set(stated).isdisjoint(options) else f"{os.environ[CONFIG_VARIABLE]}: "
