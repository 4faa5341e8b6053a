"""All options, typed and checked, from flags, the environment (``ALLABOARD_…``) and a YAML file, in that order of precedence.

An unknown or invalid option stops the start, and the message names the option: a scheduler that silently runs with defaults is worse than
none.
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

from allaboard.model.backfill import Backfill
from allaboard.model.errors import shown
from allaboard.model.gang import Objective
from allaboard.model.headroom import headroom_from
from allaboard.model.pairs import pairs_in
from allaboard.model.pod import Reading
from allaboard.model.raw_fields import LABEL_KEY, NAMESPACE, OBJECT_NAME
from allaboard.model.topologies import LEVELS, Levels
from allaboard.model.variables import OF_COMMANDS
from allaboard.model.yamltext import word_of
from allaboard.plugins import DEFAULT_STRATEGY, SHIPPED_STRATEGIES, STRATEGY_NAME, strategy_names
from allaboard.settings.fair_share import FairShareOptions
from allaboard.settings.files import MOST_BYTES, ConfigurationFile, parse_configuration
from allaboard.settings.gpu_metrics import GpuMetricsOptions
from allaboard.settings.gpus import GpuOptions
from allaboard.settings.kubescheduler import KUBECONFIG_PLACE
from allaboard.settings.messages import message_of, no_such_option
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
"""Longest ``lease_duration_seconds``. A Lease object with a longer duration is malformed."""


class SettingsError(ValueError):
    """Settings that can't be used. The message names each wrong option, and the file if the option is stated there."""


def _of_the_form(pattern: str, expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {expected}, not {shown(value)}")
        return value

    return AfterValidator(check)


_NAMESPACE_FORM = "the name of a namespace, of lower-case letters, digits and '-'"
_Namespaces = Annotated[tuple[Annotated[str, _of_the_form(NAMESPACE, _NAMESPACE_FORM)], ...], NoDecode]


_Hosts = Annotated[
    tuple[Annotated[str, _of_the_form(rf"{OBJECT_NAME}|[0-9a-f:]{{2,39}}", "the name or address of a host, in lower case")], ...], NoDecode
]
_Keys = Annotated[tuple[Annotated[str, _of_the_form(LABEL_KEY, "the key of a label")], ...], Field(min_length=1)]
_Topologies = dict[Annotated[str, _of_the_form(LABEL_KEY, "a name such as rack")], _Keys]
_Parameters = Annotated[dict[str, Annotated[str, Field(max_length=255)]], NoDecode]
_STRATEGY_FORM = "the name of a strategy, of lower-case letters, digits and '-'"
_Strategy = Annotated[str, _of_the_form(STRATEGY_NAME, _STRATEGY_FORM)]
_Strategies = Annotated[tuple[_Strategy, ...], NoDecode]


class Settings(BaseSettings):
    """The operator's options; each field is an environment variable ``ALLABOARD_<FIELD>`` and a key of the configuration file."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True)

    scheduler_names: _Names = Field(("allaboard",), min_length=1, description="Pods with one of these schedulerNames are scheduled.")
    namespaces: _Namespaces = Field((), description="Pods of these namespaces are scheduled; empty for all.")
    node_selector: Pairs = Field({}, description="Labels of the nodes that may be used (pool=train,zone=a); empty for all.")
    objective: Objective = Field(Objective.FRAGMENTATION, description="Aim of placements, unless a gang chooses another objective.")
    strategy: _Strategy = Field(DEFAULT_STRATEGY, description="Name of the strategy that places gangs, unless a gang chooses another one.")
    strategies: _Strategies = Field(
        SHIPPED_STRATEGIES, description="Strategies that gangs may choose besides `strategy`; names of plug-ins are allowed."
    )
    strategy_options: StrategyOptions = StrategyOptions()
    topology: Annotated[str, _of_the_form(f"({LABEL_KEY})?", "the key of a label such as topology.kubernetes.io/zone")] = Field(
        "", description="Node label, such as that of the rack. The members of a gang use few of its values, if possible; empty for none."
    )
    headroom: Pairs = Field(
        {}, description="Amount or share of each resource that is kept free on each node (cpu=20%,memory=4Gi); empty for none."
    )
    packing: PackingOptions = PackingOptions()
    gpu: GpuOptions = GpuOptions()
    topologies: _Topologies = Field(
        {},
        description="Additional topology levels by name, each with the node labels that may state it (rack, zone and others are built in).",
    )
    schedule_timeout_seconds: int = Field(
        60,
        ge=1,
        le=86_400,
        description="Seconds after which a gang that waits, or is partially bound, is reported; docs/reliability.md describes what else"
        " ends then.",
    )
    batch_window_seconds: float = Field(
        0.04,
        ge=0,
        le=10,
        description="Seconds for which a cycle waits for another pod before it starts, so that pods of a job are placed together. Three"
        " times as long once another pod has come.",
    )
    batch_window_max_seconds: float = Field(1.0, ge=0, le=60, description="Seconds after which a cycle starts, even if more pods come.")
    backoff_initial_seconds: float = Field(
        1.0, gt=0, le=600, description="Backoff in seconds after a gang's first failed attempt; doubles with each failure."
    )
    backoff_max_seconds: float = Field(60.0, gt=0, le=3600, description="Longest backoff in seconds between two attempts of a gang.")
    reservations: int = Field(
        4,
        ge=0,
        le=64,
        description="How many of the first gangs in the queue that don't fit get a reservation. 0 reserves nothing.",
    )
    backfill: Backfill = Field(
        Backfill.EASY,
        description="Which gangs may start before a gang with a reservation: those that don't delay it (`easy`), or none (`off`).",
    )
    reserve_after_seconds: float = Field(
        30.0,
        ge=0,
        le=86_400,
        description="Seconds for which a gang must have waited before its reservation holds back gangs of the same priority, if the"
        " gangs that have to end first state no walltime. Gangs of lower priority are held back at once.",
    )
    estimate_walltimes: bool = Field(
        False,
        description="Whether pods that state no walltime are expected to run as long as the last two pods of the same owner, or else of the"
        " same namespace.",
    )
    preemption: bool = Field(
        True,
        description="Whether pods of gangs with lower priority are evicted for a gang that fits in no other way. Pods of the"
        " preemption policy `Never` preempt none.",
    )
    preemption_delay_seconds: float = Field(
        0.0,
        ge=0,
        le=86_400,
        description="Seconds for which a gang waits for capacity before pods are evicted for it, such as the time in which an autoscaler"
        " adds nodes.",
    )
    min_runtime_seconds: float = Field(
        0.0, ge=0, le=30 * 86_400, description="Seconds for which a gang has run before pods of it may be evicted for another gang."
    )
    preempt_despite_budgets: bool = Field(
        False,
        description="Whether pods are evicted even if a PodDisruptionBudget forbids that, where a gang fits in no other way.",
    )
    preempt_with_kueue: bool = Field(
        False, description="Whether gangs that Kueue manages preempt and are preempted here, too. Otherwise only Kueue preempts them."
    )
    preempt_others: bool = Field(
        False,
        description="Whether single pods of other schedulers may be evicted, too, if their priority is lower. Pods of a gang, of Kueue, of"
        " a DaemonSet, and pods without a controller are never evicted.",
    )
    provisioning_class: Annotated[
        str, _of_the_form(f"({OBJECT_NAME})?", "the name of a class such as check-capacity.autoscaling.x-k8s.io")
    ] = Field(
        "",
        description="Provisioning class of the ProvisioningRequests by which an autoscaler is asked for the nodes of whole gangs"
        " (docs/autoscalers.md), such as `best-effort-atomic-scale-up.autoscaling.x-k8s.io`; empty to make no requests.",
    )
    provisioning_parameters: _Parameters = Field(
        {}, max_length=100, description='Parameters of the provisioning class, such as `{ValidUntilSeconds: "3600"}`.'
    )
    provisioning_backoff_seconds: float = Field(
        60.0,
        gt=0,
        le=86_400,
        description="Seconds after which an autoscaler that brought no nodes is asked again for the same members; doubles each time, to 30"
        " times as long.",
    )
    fair_share: FairShareOptions = FairShareOptions()
    openfaas: bool = Field(
        False,
        description="Whether pods of OpenFaaS functions are charged by their annotation com.openfaas.function.spec if their containers"
        " state no cpu or memory. The admission webhooks then also set the schedulerName of such pods.",
    )
    pipelines: bool = Field(
        False, description="Whether pipelines (kopf.dev/v1 MLFlow) are deployed: stage by stage, each stage as one gang."
    )
    pipeline_namespaces: _Namespaces = Field(
        (), description="Namespaces into which pipelines of other namespaces may deploy; empty for none."
    )
    dry_run: Literal["role", "all", "none"] = Field(
        "role",
        description="Binds that are dry-run before a gang is bound. `role`: where a webhook or an admission policy may refuse binds, one of"
        " each pod template, or all if bound pods couldn't be released again. `all`: always all. `none`: none.",
    )
    bind_concurrency: int = Field(64, ge=1, le=1024, description="Most binds at once. One namespace has at most three quarters of them.")
    volume_binding_timeout_seconds: float = Field(
        600.0,
        ge=1,
        le=3600,
        description="Seconds within which the volumes of a gang must be bound, for claims whose storage class waits for the pod's node.",
    )
    bind_attempts: int = Field(4, ge=1, le=20, description="Most attempts of one bind while the API server answers with transient errors.")
    kubeconfig: str = Field(
        "", description="Path of the kubeconfig; empty for the pod's service account, and outside of a cluster for `KUBECONFIG`."
    )
    client_qps: float = Field(
        0.0, ge=0, le=1_000_000, description="Most requests per second to the API server, without those of the Lease; 0 for no limit."
    )
    client_burst: int = Field(
        100, ge=1, le=1_000_000, description="Most requests to the API server at once, before `client_qps` limits them."
    )
    request_timeout_seconds: float = Field(15.0, gt=0, le=300, description="Time limit in seconds of one request to the API server.")
    reach_seconds: float = Field(
        30.0, ge=0, le=3600, description="Seconds to wait for the API server at the start. Then the operator ends with an error."
    )
    resync_seconds: float = Field(
        60.0, ge=1, le=3600, description="Seconds between two lists of all PodGroups, which find the deletions that a watch missed."
    )
    stale_seconds: float = Field(
        10.0,
        ge=5,
        le=3600,
        description="Age in seconds of the cached cluster state, by silence or lag of a watch, from which nothing is scheduled. The"
        " operator isn't ready then.",
    )
    workers: int = Field(
        1, ge=1, le=64, description="Processes for short searches, which other gangs wait for. Long searches have another process."
    )
    search_timeout_seconds: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="Time limit in seconds of a long search. After three quarters of it, the search answers with its best placement. A"
        " search that reaches the limit is ended, and the gang is retried.",
    )
    search: SearchOptions = SearchOptions()
    gpu_metrics: GpuMetricsOptions = GpuMetricsOptions()
    leader_elect: bool = Field(False, description="Whether replicas elect a leader, which alone schedules. On in config/ and in the chart.")
    lease_namespace: Annotated[str, _of_the_form(f"({NAMESPACE})?", _NAMESPACE_FORM)] = Field(
        "", description="Namespace of the Lease for leader election; empty for the pod's own, and for `default` outside of a cluster."
    )
    lease_name: Annotated[str, _of_the_form(OBJECT_NAME, "the name of an object, of lower-case letters, digits, '-' and '.'")] = Field(
        "allaboard", description="Name of the Lease for leader election."
    )
    lease_duration_seconds: int = Field(
        15, ge=1, le=LONGEST_LEASE_SECONDS, description="Seconds after the last renewal from which another replica may take the Lease."
    )
    lease_renew_deadline_seconds: float = Field(
        10.0, gt=0, description="Seconds without a renewal after which the leader stops scheduling."
    )
    lease_retry_seconds: float = Field(
        2.0, gt=0, description="Seconds between renewals of the Lease. A follower reads it eight times as often."
    )
    metrics_port: _Port = Field(8080, description="Port of /metrics and /readyz; 0 for none.")
    health_port: _Port = Field(8081, description="Port of the liveness probe with `allaboard run`; 0 for none.")
    api_port: _Port = Field(8082, description="Port of the read-only API on 127.0.0.1, for kubectl port-forward (docs/api.md); 0 for none.")
    api_service_port: _Port = Field(
        0, description="Port of the read-only API for a Service. Callers need a bearer token (docs/api.md); 0 for none."
    )
    api_service_address: Annotated[str, _of_the_form(rf"|{OBJECT_NAME}|[0-9a-f:]{{2,39}}", "an address, such as 10.0.0.1")] = Field(
        "", description="Address of api_service_port; empty for all addresses."
    )
    ui: bool = Field(False, description="Serve the departure board, a page on the port of the API (docs/api.md).")
    admission_port: _Port = Field(0, description="Port of the admission webhooks (docs/admission.md); 0 for none.")
    admission_hosts: _Hosts = Field(
        (), description="Names or addresses by which the API server reaches the webhooks; empty for those of their Service."
    )
    admission_certificate_days: int = Field(
        90, ge=1, le=3650, description="Days for which the webhooks' certificate is valid. It is renewed after two thirds of them."
    )
    log_format: Literal["text", "json"] = Field("text", description="Format of the log: lines of text, or one JSON object a line.")

    _in_force: InForce = PrivateAttr(InForce(()))

    @property
    def reading(self) -> Reading:
        """The settings that change how pods are read."""
        return Reading(frozenset(self.scheduler_names), self.openfaas, self.gpu.charged_by_label, self.preempt_others)

    @property
    def levels(self) -> Levels:
        """The labels of each topology level, by the level's name."""
        return {**LEVELS, **self.topologies}

    @property
    def in_force(self) -> InForce:
        """The scheduler names and profiles in force."""
        return self._in_force

    def with_profiles(self, in_force: InForce) -> Self:
        """Return a copy with the scheduler names and profiles of ``in_force``."""
        copy = self.model_copy(update={"scheduler_names": in_force.names})
        copy._in_force = in_force
        return copy

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles of a kube-scheduler's configuration, by scheduler name."""
        return self._in_force.profiles

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the configuration file, such as fields that aren't honoured."""
        return self._in_force.warnings

    @model_validator(mode="after")
    def _check_strategies(self) -> Self:
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
    def _check_lease_times(self) -> Self:
        if not self.lease_retry_seconds < self.lease_renew_deadline_seconds < self.lease_duration_seconds:
            raise ValueError(
                "lease_retry_seconds must be less than lease_renew_deadline_seconds, and that less than lease_duration_seconds, "
                f"not {self.lease_retry_seconds:g}, {self.lease_renew_deadline_seconds:g} and {self.lease_duration_seconds}"
            )
        return self

    @field_validator("headroom")
    @classmethod
    def _check_headroom(cls, value: dict[str, str]) -> dict[str, str]:
        for resource, amount in value.items():
            try:
                headroom_from(resource, amount)
            except ValueError as error:
                raise ValueError(f"{resource}: {error}") from error
        return value

    @field_validator("headroom", "provisioning_parameters", mode="before")
    @classmethod
    def _quantities(cls, value: object) -> object:
        """Return the values with numbers as text: a value may be stated as a number, as in manifests."""
        if not isinstance(value, Mapping):
            return value
        return {name: str(amount) if type(amount) in (int, float) else amount for name, amount in value.items()}

    _words = field_validator("backfill", mode="before")(word_of)
    _pairs = field_validator("node_selector", "headroom", "provisioning_parameters", mode="before")(pairs_in)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence: flags (as ``init``), the environment, the file."""
        return init_settings, _EnvironmentSource(settings_cls), _FileSource(settings_cls)


class _EnvironmentSource(EnvSettingsSource):
    """The environment. A variable may hold a group of options as JSON."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return the decoded JSON of a variable. Raises ``SettingsError``."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError as error:
            options = ", ".join(getattr(field.annotation, "model_fields", ()) if field else ())
            words = f"must be a mapping of {options} in JSON" if options else "must be a mapping in JSON"
            raise SettingsError(f"{self._variable(field_name, value)}: {words}, not {shown(value)}") from error

    def _variable(self, field_name: str, value: Any) -> str:
        """Return the name of the variable that holds ``value`` for the field; the field may be in a group."""
        names = (name for name, stated in self.env_vars.items() if stated == value and name.rpartition("__")[2] == field_name.lower())
        return next(names, f"{_PREFIX}{field_name}").upper()


class _FileSource(PydanticBaseSettingsSource):
    """The YAML file that ``ALLABOARD_CONFIG`` names."""

    def get_field_value(self, field: object, field_name: str) -> tuple[object, str, bool]:
        """Never called: ``__call__`` reads the whole file at once."""
        raise NotImplementedError

    def __call__(self) -> dict[str, object]:
        return dict(_options_of_file())


def load_settings(flags: Mapping[str, object] | None = None) -> Settings:
    """Return the settings in force: from ``flags``, else the environment, else the file that ``ALLABOARD_CONFIG`` names.

    Raises ``SettingsError``, which names each wrong option.
    """
    # Kubernetes sets variables for each Service. Those of a Service named "allaboard" are no mistake.
    unknown = sorted(
        name
        for name in os.environ
        if name.startswith(_PREFIX)
        and name != CONFIG_VARIABLE
        and name not in OF_COMMANDS
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
        stated = _options_of_file().keys() - dict(flags or {}).keys()
        raise SettingsError(
            "; ".join(_file_prefix(problem, stated) + message_of(problem, Settings) for problem in error.errors())
        ) from error
    return settings.with_profiles(_profiles_in_force(_read_file(), settings))


def _profiles_in_force(file: ConfigurationFile, settings: Settings) -> InForce:
    """Return the profiles of ``file`` that are in force with ``settings``, and warnings.

    Raises ``SettingsError`` for an unusable value of the file that no flag or variable replaces.
    """
    found = in_force(file.kubescheduler, settings.scheduler_names)
    for option, problem in file.kubescheduler.unusable.items():
        if option not in settings.model_fields_set:
            raise SettingsError(f"{os.environ[CONFIG_VARIABLE]}: {problem}")
        found = replace(found, warnings=(*found.warnings, f"{problem}; {option} is set elsewhere, so this value isn't used"))
    if settings.kubeconfig and file.kubescheduler.options.get("kubeconfig") == settings.kubeconfig:
        found = replace(found, kubeconfig_place=f"{KUBECONFIG_PLACE} of {os.environ[CONFIG_VARIABLE]}")
    if file.is_empty:
        words = f"{os.environ[CONFIG_VARIABLE]}: states nothing; options that no flag or variable sets have their defaults"
        found = replace(found, warnings=(words, *found.warnings), is_stated=False)
    return found


def _options_of_file() -> Mapping[str, object]:
    return _read_file().options


def _read_file() -> ConfigurationFile:
    """Return the parsed configuration file; an empty one if no file is named. Raises ``SettingsError``."""
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        return ConfigurationFile()
    try:
        with Path(path).open("rb") as file:
            return parse_configuration(file.read(MOST_BYTES + 1))
    except OSError as error:
        raise SettingsError(f"{path}: can't be read: {error.strerror}") from error
    except ConfigurationError as error:
        raise SettingsError(f"{path}: {error}") from error


def _file_prefix(problem: ErrorDetails, stated: Iterable[str]) -> str:
    """Return the file and a colon if the file states the option of ``problem`` and the environment doesn't; else an empty string."""
    path = [part for part in problem["loc"] if isinstance(part, str)]
    options = path[:1] or re.findall(r"\w+", problem["msg"])  # a problem with several options at once names them
    variables = [_PREFIX + "__".join(path[:end]).upper() for end in range(1, len(path) + 1)]
    is_in_environment = any(
        name in variables or (variables and name.startswith(f"{variables[-1]}__")) for name in map(str.upper, os.environ)
    )
    return "" if is_in_environment or set(stated).isdisjoint(options) else f"{os.environ[CONFIG_VARIABLE]}: "
