"""Decides, from values alone, what to do about the nodes that an autoscaler may add for a gang.

A gang that lacks nodes gets one ProvisioningRequest. Its members are annotated once the request exists. The request is given up when the
autoscaler says that it brings no nodes (``Stage.is_over``), and the next request for the same members is made after a pause.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from allaboard.binding.provisioning_objects import Shape
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.model.provisioning import MOST_SHAPES, Provisioning, is_our_name
from allaboard.model.provisioning_request import ProvisioningRequest
from allaboard.records.asked import Asked, Demand


@dataclass(frozen=True, slots=True)
class Ask:
    """Make the request for the nodes of ``pods``, and annotate these; ``shapes`` has the same pods by kind."""

    demand: Demand
    pods: Sequence[Pod]
    shapes: Sequence[Shape]


@dataclass(frozen=True, slots=True)
class Annotate:
    """Annotate ``pods``, which came after the gang's request was made; without a ``request``, remove this scheduler's annotations."""

    pods: Sequence[Pod]
    request: str = ""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Delete a request that brings no nodes, and ask again after a pause."""

    request: ProvisioningRequest
    demand: Demand


Step = Ask | Annotate | GiveUp
Kind = tuple[SchedulingSpec, str]
"""The kind of a member for an autoscaler: what the member needs, and its role."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the nodes of a gang: what the gang's message says (``shown``), and what is to be done; None if nothing is."""

    shown: Provisioning | None = None
    step: Step | None = None


def progress_of(
    gang: Gang,
    asked: Asked | None,
    requests: Sequence[ProvisioningRequest],
    now: float,
    *,
    is_on: bool,
) -> Progress | None:
    """Return how far the nodes are that a refused gang lacks; None if no autoscaler is asked for the gang.

    ``requests`` are the gang's requests. ``is_on`` is False if no requests are made at all: then annotations that were left are removed.

    No request is made for a single pod, for which autoscalers add a node anyway, nor for members that name a request of others.
    """
    if not gang.missing or gang.is_single:
        return None
    if not is_on:
        annotated = [pod for pod in gang.candidates if is_our_name(pod.consumes)]
        return Progress(step=Annotate(annotated)) if annotated else None
    if any(pod.consumes and not is_our_name(pod.consumes) for pod in gang.candidates):
        return None
    pods = wanted_members(gang)
    shapes = shapes_of(pods)
    if len(shapes) > MOST_SHAPES:
        return Progress(Provisioning(note=f"no ProvisioningRequest is made, since its members are of more than {MOST_SHAPES} kinds"))
    demand = frozenset((kind, shape.count) for kind, shape in shapes.items())
    is_same = asked is not None and asked.demand == demand
    if asked is not None and is_same and now < asked.retry_at:
        return Progress(Provisioning(note=asked.problem, retry_time=asked.retry_time))
    # Without a record, an earlier leader has made the request. Whether it is for the same members shows when it is made again.
    over = next((each for each in requests if each.stage.is_over and (asked is None or each.name == asked.name)), None)
    if over is not None and (asked is None or is_same):
        return Progress(given_up(over), GiveUp(over, demand))
    live = next((each for each in requests if asked is not None and is_same and each.name == asked.name), None)
    if live is None:
        return Progress(Provisioning(is_being_made=True), Ask(demand, pods, list(shapes.values())))
    late = [pod for pod in pods if pod.consumes != live.name]
    return Progress(Provisioning(live.key, live.stage, live.note), Annotate(late, live.name) if late else None)


def given_up(request: ProvisioningRequest, retry_time: float = 0.0) -> Provisioning:
    """Return what a gang's message says about a request that is given up."""
    said = f": {request.note}" if request.note else ""
    return Provisioning(note=f"ProvisioningRequest {request.key} was given up, {request.stage}{said}", retry_time=retry_time)


def wanted_members(gang: Gang) -> list[Pod]:
    """Return the candidates that nodes are asked for: as many as must be bound next, the oldest first, and of each role enough."""
    lacking, chosen, rest = dict(gang.lacking), list[Pod](), list[Pod]()
    for pod in gang.candidates:
        if lacking.get(pod.role, 0) > 0:
            lacking[pod.role] -= 1
            chosen.append(pod)
        else:
            rest.append(pod)
    return [*chosen, *rest[: max(0, gang.least - len(chosen))]]


def is_needed(request: ProvisioningRequest, gang: Gang | None, asked: Asked | None) -> bool:
    """Return whether a request is kept: its gang waits for nodes, and the request is the gang's newest one."""
    if gang is None or gang.is_single or not gang.missing or not gang.can_act:
        return False
    if asked is None or not asked.name:
        return True  # its gang hasn't been attempted yet
    return request.name == asked.name and not asked.problem


def shapes_of(pods: Sequence[Pod]) -> dict[Kind, Shape]:
    """Return ``pods`` by kind. If there are more than ``MOST_SHAPES`` kinds, one more kind than that is enough to know."""
    first: dict[tuple[int, str], Pod] = {}
    counts: Counter[tuple[int, str]] = Counter()
    for pod in pods:
        same = id(pod.spec), pod.role  # equal specs are mostly one object, and comparing these takes a hundredth of the time
        first.setdefault(same, pod)
        counts[same] += 1
    found: dict[Kind, Shape] = {}
    for same, count in counts.items():
        pod = first[same]
        known = found.get(kind := (pod.spec, pod.role))
        found[kind] = Shape(known.sample if known else pod, count + (known.count if known else 0))
        if len(found) > MOST_SHAPES:
            break
    return found
