"""Decides what to do next for a pipeline, and computes its status, from its spec and the existing objects alone.

Nothing is remembered between two decisions. A stage begins when all earlier stages are ready. A stage with an existing object has begun:
its objects are kept complete, even if an earlier stage is no longer ready.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from allaboard.kube.paths import Resource
from allaboard.model.errors import MalformedError, one_line
from allaboard.model.gang import GangKey
from allaboard.pipelines.objects import DEPLOYMENTS, FUNCTIONS, Body, change_to, is_current, is_ready, object_of, replica_failure_of
from allaboard.pipelines.stages import Pipeline, Policy, Stage, digest

ObjectKey = tuple[Resource, str, str]
"""The kind, namespace and name of an object."""

_LONGEST_MESSAGE = 512


class Phase(StrEnum):
    """The progress of a stage."""

    WAITING = "Waiting"
    DEPLOYING = "Deploying"
    READY = "Ready"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Found:
    """The existing objects of a pipeline.

    ``own``: its Deployments and Functions. ``behind``: the Deployments that OpenFaaS makes for its Functions, by namespace and name.
    ``has_functions``: OpenFaaS's CRD is installed.
    """

    own: Mapping[ObjectKey, Body] = field(default_factory=dict)
    behind: Mapping[tuple[str, str], Body] = field(default_factory=dict)
    has_functions: bool = False

    def kind_of(self, namespace: str, name: str) -> Resource:
        """Return the kind that a step's object has or would get. Existing objects keep their kind if OpenFaaS is installed or removed."""
        exists = next((kind for kind in (DEPLOYMENTS, FUNCTIONS) if (kind, namespace, name) in self.own), None)
        return exists or (FUNCTIONS if self.has_functions else DEPLOYMENTS)

    def deployment(self, object_key: ObjectKey) -> Body | None:
        """Return the Deployment that runs a step; None if it doesn't exist."""
        kind, namespace, name = object_key
        return self.own.get(object_key) if kind is DEPLOYMENTS else self.behind.get((namespace, name))


@dataclass(frozen=True, slots=True)
class StageState:
    """The phase of a stage, and the number of steps that are ready, of ``total``."""

    stage: Stage
    phase: Phase
    ready: int = 0
    total: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions for a pipeline: objects to ``create`` and to ``repair``, each with its stage, and objects to ``remove``."""

    states: tuple[StageState, ...] = ()
    create: tuple[tuple[str, ObjectKey, Body], ...] = ()
    repair: tuple[tuple[str, ObjectKey, Body], ...] = ()
    remove: tuple[ObjectKey, ...] = ()


def plan_of(pipeline: Pipeline, found: Found, policy: Policy, why: Callable[[GangKey], str] = lambda gang: "") -> Plan:
    """Return what to do for a pipeline. ``why`` returns the reason for which a gang waits; empty if it doesn't wait."""
    states: list[StageState] = []
    create, repair = list[tuple[str, ObjectKey, Body]](), list[tuple[str, ObjectKey, Body]]()
    kept: set[ObjectKey] = set()
    awaited = ""
    for stage in pipeline.stages:
        problem = stage.problem or policy.refusal(pipeline, stage)
        if problem:
            states.append(StageState(stage, Phase.FAILED, 0, len(stage.steps), problem))
            awaited = awaited or stage.key
            continue
        wanted = {}
        for step in stage.steps:
            name = pipeline.object_name(step)
            object_key = (found.kind_of(stage.namespace, name), stage.namespace, name)
            wanted[object_key] = object_of(pipeline, stage, step, object_key[0], policy)
        kept |= wanted.keys()
        has_begun = any(object_key in found.own for object_key in wanted)
        if awaited and not has_begun:
            states.append(StageState(stage, Phase.WAITING, 0, len(wanted), f"waits for {awaited}"))
            continue
        missing = [(stage.key, object_key, body) for object_key, body in wanted.items() if object_key not in found.own]
        changed = [
            (stage.key, object_key, change_to(body, found.own[object_key]))
            for object_key, body in wanted.items()
            if object_key in found.own and not is_current(found.own[object_key], body)
        ]
        create += missing
        repair += changed
        state = _state(stage, [found.deployment(object_key) for object_key in wanted], why(pipeline.gang_of(stage)))
        if missing or changed:
            state = replace(state, phase=Phase.DEPLOYING)
        states.append(state)
        if state.phase is not Phase.READY:
            awaited = awaited or stage.key
    # An object that no readable stage wants may belong to a stage that can't be read.
    is_readable = not pipeline.problem and not any(state.phase is Phase.FAILED for state in states)
    return Plan(tuple(states), tuple(create), tuple(repair), tuple(found.own.keys() - kept) if is_readable else ())


def _state(stage: Stage, deployments: list[Body | None], why: str) -> StageState:
    try:
        ready = sum(1 for each in deployments if each is not None and is_ready(each))
        failure = next((text for each in deployments if each is not None and (text := replica_failure_of(each))), "")
    except (MalformedError, AttributeError, TypeError) as error:
        return StageState(stage, Phase.DEPLOYING, 0, len(deployments), f"a Deployment is malformed: {error}")
    if ready == len(deployments):
        return StageState(stage, Phase.READY, ready, ready, "all steps are ready")
    message = f"{ready} of {len(deployments)} steps are ready"
    if reason := why or failure:
        message = f"{message}: {reason}"
    return StageState(stage, Phase.DEPLOYING, ready, len(deployments), message)


def with_failures(states: tuple[StageState, ...], problems: Mapping[str, str]) -> tuple[StageState, ...]:
    """Return ``states`` with the phase Failed for the stages in ``problems``, which has the API server's refusals by stage."""
    return tuple(
        replace(each, phase=Phase.FAILED, message=problems[each.stage.key]) if each.stage.key in problems else each for each in states
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a pipeline or of one stage: the reason and the note of an event."""

    reason: str
    message: str


def failures_of(pipeline: Pipeline, states: tuple[StageState, ...], problem: str) -> tuple[Failure, ...]:
    """Return all failures of a pipeline; ``problem`` concerns the whole pipeline, empty if there is none."""
    whole = pipeline.problem or problem
    stages = [Failure("StageFailed", _cut(f"{each.stage.key}: {each.message}")) for each in states if each.phase is Phase.FAILED]
    return (*((Failure("PipelineFailed", _cut(whole)),) if whole else ()), *stages)


def status_of(pipeline: Pipeline, states: tuple[StageState, ...], problem: str, now: str) -> dict[str, Any]:
    """Return the whole status of an MLFlow. Its condition keeps ``lastTransitionTime`` unless the condition's status changes."""
    problem = pipeline.problem or problem
    done = sum(1 for each in states if each.phase is Phase.READY)
    current = next((each for each in states if each.phase is not Phase.READY), None)
    is_ready = not problem and current is None
    if problem:
        reason, message = "Failed", problem
    elif current is None:
        reason, message = "Ready", "all stages are ready"
    else:
        reason, message = str(current.phase), f"{current.stage.key}: {current.message}"
    state = "True" if is_ready else "False"
    since = pipeline.ready[1] if pipeline.ready[0] == state and pipeline.ready[1] else now
    condition = {"type": "Ready", "status": state, "reason": reason, "message": _cut(message), "lastTransitionTime": since}
    return {
        "observedGeneration": pipeline.generation,
        "phase": reason,
        "stage": current.stage.key if current else "",
        "ready": f"{done}/{len(states)}",
        "message": _cut(message),
        "stages": [_stage_status(pipeline, each) for each in states],
        "conditions": [{**condition, "observedGeneration": pipeline.generation}],
    }


def _stage_status(pipeline: Pipeline, state: StageState) -> dict[str, Any]:
    stage = state.stage
    return {
        "name": stage.key,
        "title": stage.title,
        "namespace": stage.namespace,
        "podGroup": "" if stage.problem else pipeline.gang_of(stage).name,
        "phase": str(state.phase),
        "ready": state.ready,
        "total": state.total,
        "message": _cut(state.message),
    }


def _cut(message: str) -> str:
    message = one_line(message)
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[: _LONGEST_MESSAGE - 4]} ..."


def is_stored(pipeline: Pipeline, status: Mapping[str, Any]) -> bool:
    """Return whether the API server already has this status."""
    return pipeline.status_digest == digest(status)
