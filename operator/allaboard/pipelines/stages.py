"""Reads an ``MLFlow`` object into a pipeline: stages in order, each a set of steps that start together or not at all.

``MLFlow`` is the kind of the earlier OpenFaaS scheduler. A user that may create one has pods created with our rights, so every field that
is used is checked here. A mistake in one stage is reported for that stage alone.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

import orjson

from allaboard.model.errors import MalformedError, shown
from allaboard.model.gang import GangKey
from allaboard.model.limits import AMOUNTS, RULES, STAGES, STEPS, Tally
from allaboard.model.quantities import parse_quantity
from allaboard.model.raw_fields import LABEL_KEY, NAMESPACE, integer, items, labels, mapping, text, texts
from allaboard.model.requests import RawObject

DEFAULT_SCHEDULER = "default-scheduler"
LONGEST_LABEL = 63
"""The most characters of a label's value, and of a name that is one part of a host name."""

_is_label = re.compile(NAMESPACE, re.ASCII).fullmatch
_stage_key = re.compile(r"stage(0|[1-9][0-9]{0,3})", re.ASCII).fullmatch
_is_resource = re.compile(LABEL_KEY, re.ASCII).fullmatch
_is_image = re.compile(r"[!-~]+").fullmatch

_Amounts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One function of a pipeline. ``name`` is unique in the pipeline; ``requests`` and ``limits`` are quantities by resource."""

    name: str
    image: str
    requests: _Amounts = ()
    limits: _Amounts = ()

    @property
    def amounts(self) -> dict[str, dict[str, str]]:
        """Requests and limits in the form of a container's ``resources``."""
        return {key: dict(found) for key, found in (("requests", self.requests), ("limits", self.limits)) if found}


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps whose pods are one gang.

    ``key``: ``stage1``, ``stage2`` and so on. ``rule``: the users of the stage, which is only shown and not enforced. ``scheduler_name``:
    empty for ours. ``problem``: why the stage can't be deployed; empty if it can. A stage with a problem has no steps.
    """

    key: str
    title: str = ""
    namespace: str = ""
    scheduler_name: str = ""
    rule: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One MLFlow at one generation.

    ``stages``: in the order of their numbers. ``problem``: why none of the stages can be read; empty if they can. ``ready``: status and
    ``lastTransitionTime`` (RFC 3339) of the condition Ready. ``status_digest``: digest of the whole status that the API server has.
    """

    namespace: str
    name: str
    uid: str
    generation: int = 0
    stages: tuple[Stage, ...] = ()
    problem: str = ""
    is_terminating: bool = False
    ready: tuple[str, str] = ("", "")
    status_digest: str = ""

    @property
    def key(self) -> str:
        """Namespace and name, as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def gang_of(self, stage: Stage) -> GangKey:
        """Return the gang of a stage's pods.

        In a namespace other than the pipeline's own, its name begins with the pipeline's namespace, so that names don't clash.
        """
        home = "" if stage.namespace == self.namespace else f"{self.namespace}."
        return GangKey(stage.namespace, f"{home}{self.name}.{stage.key}")

    def object_name(self, step: Step) -> str:
        """Return the name of the object that runs a step."""
        return f"{self.name}-{step.name}"


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits that the settings put on pipelines.

    ``scheduler_names``: names of our scheduler. ``namespaces``: namespaces into which all pipelines may deploy, beside their own namespace.
    ``scheduled``: namespaces whose pods we schedule; empty for all.
    """

    scheduler_names: tuple[str, ...] = ("allaboard",)
    namespaces: tuple[str, ...] = ()
    scheduled: Collection[str] = ()

    def refusal(self, pipeline: Pipeline, stage: Stage) -> str:
        """Return why a stage may not be deployed into its namespace; empty if it may."""
        if stage.namespace != pipeline.namespace and stage.namespace not in self.namespaces:
            return f"pipelines of namespace {pipeline.namespace} may not deploy into {stage.namespace} (setting pipeline_namespaces)"
        if self.scheduled and stage.namespace not in self.scheduled and self.scheduler_of(stage) in self.scheduler_names:
            return f"pods of namespace {stage.namespace} are not scheduled here (setting namespaces)"
        return ""

    def scheduler_of(self, stage: Stage) -> str:
        """Return the scheduler of a stage's pods: ours, also instead of ``default-scheduler``, which would bind the pods one by one."""
        return self.scheduler_names[0] if stage.scheduler_name in ("", DEFAULT_SCHEDULER) else stage.scheduler_name


def pipeline_from(raw: RawObject) -> Pipeline:
    """Return the record of a raw MLFlow, with mistakes of its spec as problems. Raises ``MalformedError`` if name or UID are missing."""
    metadata = mapping(raw, "metadata")
    status = raw.get("status")
    found = Pipeline(
        namespace=text(metadata, "namespace", path="metadata."),
        name=text(metadata, "name", path="metadata."),
        uid=text(metadata, "uid", path="metadata."),
        generation=integer(metadata, "generation", path="metadata."),
        is_terminating=metadata.get("deletionTimestamp") is not None,
        ready=_ready_in(status),
        status_digest=digest(status or {}),
    )
    if not (found.namespace and found.name and found.uid):
        raise MalformedError("metadata", "has no namespace, name or uid")
    try:
        return replace(found, stages=_stages(found, raw))
    except MalformedError as error:
        return replace(found, problem=str(error))


def digest(value: object) -> str:
    """Return a digest of a JSON value, which is the same for equal values; empty if the value isn't JSON."""
    try:
        return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
    except (TypeError, ValueError):  # the value isn't JSON
        return ""


def _ready_in(status: object) -> tuple[str, str]:
    try:
        for _, condition in items(status if isinstance(status, Mapping) else {}, "conditions"):
            if condition.get("type") == "Ready":
                return text(condition, "status"), text(condition, "lastTransitionTime")
    except MalformedError:
        pass  # malformed conditions count as missing
    return "", ""


def _stages(pipeline: Pipeline, raw: RawObject) -> tuple[Stage, ...]:
    """Return the stages in order. Raises ``MalformedError`` for a mistake that concerns all stages."""
    if not _is_label(pipeline.name):
        raise MalformedError("metadata.name", f"{shown(pipeline.name)} must be lower-case letters, digits and '-', 63 at most")
    stated = mapping(mapping(raw, "spec"), "pipeline", "spec.")
    if not stated:
        raise MalformedError("spec.pipeline", "has no stages; they are called stage1, stage2 and so on")
    Tally(STAGES).take(stated, "spec.pipeline")
    numbers: dict[int, str] = {}
    for key in stated:
        match = _stage_key(key) if isinstance(key, str) else None
        if match is None:
            raise MalformedError("spec.pipeline", f"{shown(key)} is not the name of a stage, such as stage1")
        numbers[int(match[1])] = key
    steps, names = Tally(STEPS), set[str]()
    return tuple(_stage(pipeline, key, stated, steps, names) for _, key in sorted(numbers.items()))


def _stage(pipeline: Pipeline, key: str, stated: RawObject, steps: Tally, names: set[str]) -> Stage:
    path = f"spec.pipeline.{key}."
    stage = Stage(key)
    try:
        raw = mapping(stated, key, "spec.pipeline.")
        stage = replace(stage, namespace=text(raw, "namespace", path=path) or pipeline.namespace, title=text(raw, "name", path=path))
        if not _is_label(stage.namespace):
            raise MalformedError(f"{path}namespace", f"{shown(stage.namespace)} can't be the name of a namespace")
        if len(gang := pipeline.gang_of(stage).name) > LONGEST_LABEL:
            raise MalformedError(path.rstrip("."), f"the name of its gang, {gang}, is longer than {LONGEST_LABEL} characters")
        return replace(
            stage,
            scheduler_name=text(raw, "schedulerName", path=path),
            rule=_rule(raw, path),
            steps=_steps(pipeline, raw, path, steps, names),
        )
    except MalformedError as error:
        return replace(stage, problem=str(error))


def _rule(raw: RawObject, path: str) -> tuple[str, ...]:
    rule = texts(raw, "rule", path, RULES)
    for user in rule:
        if not _is_label(user):
            raise MalformedError(f"{path}rule", f"{shown(user)} must be lower-case letters, digits and '-', 63 at most")
    return rule


def _steps(pipeline: Pipeline, raw: RawObject, path: str, tally: Tally, names: set[str]) -> tuple[Step, ...]:
    found = []
    for where, each in items(raw, "step", path, tally):
        resources = {key: _amounts(each, key, where) for key in ("requests", "limits")}
        step = Step(text(each, "name", path=where), text(each, "mlfun", path=where), resources["requests"], resources["limits"])
        if not _is_label(step.name):
            raise MalformedError(f"{where}name", f"{shown(step.name)} must be lower-case letters, digits and '-', 63 at most")
        if len(name := pipeline.object_name(step)) > LONGEST_LABEL:
            raise MalformedError(f"{where}name", f"the name of its object, {name}, is longer than {LONGEST_LABEL} characters")
        if step.name in names:
            raise MalformedError(f"{where}name", f"{shown(step.name)} is the name of two steps")
        if not _is_image(step.image):
            raise MalformedError(f"{where}mlfun", f"{shown(step.image)} is not the name of an image")
        names.add(step.name)
        found.append(step)
    if not found:
        raise MalformedError(f"{path}step", "has no steps")
    return tuple(found)


def _amounts(step: RawObject, key: str, path: str) -> _Amounts:
    stated = {name: str(value) if type(value) in (int, float) else value for name, value in mapping(step, key, path).items()}
    amounts = labels({key: stated}, key, path, AMOUNTS)
    for resource, quantity in amounts.items():
        if not _is_resource(resource):
            raise MalformedError(f"{path}{key}", f"{shown(resource)} is not the name of a resource")
        parse_quantity(quantity, f"{path}{key}[{resource}]")
    return tuple(sorted(amounts.items()))
