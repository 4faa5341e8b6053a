"""What is to be done for a pipeline next, and how its stages stand: decided from what it asks for and what is there, and nothing else.

Nothing is remembered between two looks. A stage of which an object exists has begun, and is kept whole whatever becomes of earlier ones;
one that hasn't begins when all before it are ready.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from allaboard.kube.paths import Resource
from allaboard.model.errors import MalformedError, one_line
from allaboard.model.gang import GangKey
from allaboard.pipelines.objects import DEPLOYMENTS, FUNCTIONS, Body, change_to, complaint_of, is_current, is_ready, object_of
from allaboard.pipelines.stages import Pipeline, Policy, Stage, digest

Place = tuple[Resource, str, str]
"""The kind, namespace and name of an object."""

_LONGEST_MESSAGE = 512


class Phase(StrEnum):
    """How far a stage has come."""

    WAITING = "Waiting"
    DEPLOYING = "Deploying"
    READY = "Ready"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of a pipeline: its own objects by place, and by namespace and name the Deployments that run Functions of its own.

    ``has_functions`` tells that OpenFaaS's CRD is installed.
    """

    own: Mapping[Place, Body] = field(default_factory=dict)
    behind: Mapping[tuple[str, str], Body] = field(default_factory=dict)
    has_functions: bool = False

    def kind_of(self, namespace: str, name: str) -> Resource:
        """The kind that a step's object has, or would get: what runs is not replaced because OpenFaaS was installed, or removed."""
        exists = next((kind for kind in (DEPLOYMENTS, FUNCTIONS) if (kind, namespace, name) in self.own), None)
        return exists or (FUNCTIONS if self.has_functions else DEPLOYMENTS)

    def deployment(self, place: Place) -> Body | None:
        """The Deployment that runs a step."""
        kind, namespace, name = place
        return self.own.get(place) if kind is DEPLOYMENTS else self.behind.get((namespace, name))


@dataclass(frozen=True, slots=True)
class StageState:
    """How a stage stands: ``ready`` of ``total`` steps."""

    stage: Stage
    phase: Phase
    ready: int = 0
    total: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: objects to ``create``, others to ``mend``, each with its stage, and places to ``remove``."""

    states: tuple[StageState, ...] = ()
    create: tuple[tuple[str, Place, Body], ...] = ()
    mend: tuple[tuple[str, Place, Body], ...] = ()
    remove: tuple[Place, ...] = ()


def plan_of(pipeline: Pipeline, found: Found, policy: Policy, why: Callable[[GangKey], str] = lambda gang: "") -> Plan:
    """What to do for a pipeline. ``why`` says what a gang waits for; nothing, when it doesn't."""
    states: list[StageState] = []
    create, mend = list[tuple[str, Place, Body]](), list[tuple[str, Place, Body]]()
    kept: set[Place] = set()
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
            place = (found.kind_of(stage.namespace, name), stage.namespace, name)
            wanted[place] = object_of(pipeline, stage, step, place[0], policy)
        kept |= wanted.keys()
        has_begun = any(place in found.own for place in wanted)
        if awaited and not has_begun:
            states.append(StageState(stage, Phase.WAITING, 0, len(wanted), f"waits for {awaited}"))
            continue
        missing = [(stage.key, place, body) for place, body in wanted.items() if place not in found.own]
        changed = [
            (stage.key, place, change_to(body, found.own[place]))
            for place, body in wanted.items()
            if place in found.own and not is_current(found.own[place], body)
        ]
        create += missing
        mend += changed
        state = _state(stage, [found.deployment(place) for place in wanted], why(pipeline.gang_of(stage)))
        if missing or changed:
            state = replace(state, phase=Phase.DEPLOYING)
        states.append(state)
        if state.phase is not Phase.READY:
            awaited = awaited or stage.key
    # What can't be read may be what an object belongs to.
    is_readable = not pipeline.problem and not any(state.phase is Phase.FAILED for state in states)
    return Plan(tuple(states), tuple(create), tuple(mend), tuple(found.own.keys() - kept) if is_readable else ())


def _state(stage: Stage, deployments: list[Body | None], why: str) -> StageState:
    try:
        ready = sum(1 for each in deployments if each is not None and is_ready(each))
        complaint = next((words for each in deployments if each is not None and (words := complaint_of(each))), "")
    except (MalformedError, AttributeError, TypeError) as error:
        return StageState(stage, Phase.DEPLOYING, 0, len(deployments), f"a Deployment can't be understood: {error}")
    if ready == len(deployments):
        return StageState(stage, Phase.READY, ready, ready, "all steps are ready")
    message = f"{ready} of {len(deployments)} steps are ready"
    if reason := why or complaint:
        message = f"{message}: {reason}"
    return StageState(stage, Phase.DEPLOYING, ready, len(deployments), message)


def failed(states: tuple[StageState, ...], problems: Mapping[str, str]) -> tuple[StageState, ...]:
    """``states`` with stages that the API server has refused something of, by key and in its words."""
    return tuple(
        replace(each, phase=Phase.FAILED, message=problems[each.stage.key]) if each.stage.key in problems else each for each in states
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """What is wrong with a pipeline, or with one stage of it: the reason of an event, and its note."""

    reason: str
    message: str


def failures_of(pipeline: Pipeline, states: tuple[StageState, ...], problem: str) -> tuple[Failure, ...]:
    """All that is wrong with a pipeline; ``problem`` is of all of it."""
    whole = pipeline.problem or problem
    stages = [Failure("StageFailed", _cut(f"{each.stage.key}: {each.message}")) for each in states if each.phase is Phase.FAILED]
    return (*((Failure("PipelineFailed", _cut(whole)),) if whole else ()), *stages)


def status_of(pipeline: Pipeline, states: tuple[StageState, ...], problem: str, now: str) -> dict[str, Any]:
    """The whole status of an MLFlow. Its condition keeps ``lastTransitionTime`` unless its status flips."""
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
        "stages": [_told(pipeline, each) for each in states],
        "conditions": [{**condition, "observedGeneration": pipeline.generation}],
    }


def _told(pipeline: Pipeline, state: StageState) -> dict[str, Any]:
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


def is_told(pipeline: Pipeline, status: Mapping[str, Any]) -> bool:
    """Whether the API server has that status already."""
    return pipeline.told == digest(status)
