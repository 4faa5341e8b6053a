"""Choose the members whose labels, annotations and priority count for a run of a gang."""

from collections import Counter
from collections.abc import Sequence

from allaboard.gangs.options import label_key, option_of
from allaboard.gangs.podgroup import PodGroup
from allaboard.gangs.runs import Run, Source
from allaboard.model.gang import Hold, RoleMinimums
from allaboard.model.pod import Pod, by_age


def is_rollout(waiting: Sequence[Pod]) -> bool:
    """Return whether the waiting pods come from several controllers such as ReplicaSets, one of which replaces the other."""
    owners = {id(pod.owner): pod.owner for pod in waiting}  # mostly one object for all pods of a controller
    return len(owners) > 1 and len(set(owners.values())) > 1 and all(Source.of(owner) is Source.SERVING for owner in owners.values())


def speakers_of(alive: Sequence[Pod]) -> Sequence[Pod]:
    """Return the living pods, oldest first, that state a run's options: the waiting ones, in a rollout those of the youngest template.

    If no pod waits, the youngest pod states them. A new pod that differs from running members isn't held for that.
    """
    waiting = [pod for pod in alive if not pod.node_name]
    if is_rollout(waiting):
        youngest = max(waiting, key=by_age).owner
        return [pod for pod in waiting if pod.owner == youngest]
    return waiting or [max(alive, key=by_age)] if alive else ()


def priority_of(alive: Sequence[Pod]) -> int:
    """Return the priority of a run: that of its oldest bound member, but at most that of any waiting pod.

    So a replacement of a higher priority doesn't raise its gang's priority, and one bound pod doesn't raise that of many waiting pods.
    """
    bound = next(([pod.priority] for pod in alive if pod.node_name), [])
    return min((*bound, *(pod.priority for pod in alive if not pod.node_name)))


def still_possible(minimums: RoleMinimums, run: Run) -> RoleMinimums:
    """Return the minimums of roles, less the pods that no Job will create."""
    if not (minimums and run.gone_of_role):
        return minimums
    succeeded = Counter(pod.role for pod in run.members if pod.has_succeeded)
    return tuple((role, max(0, least - max(0, run.gone_of_role.get(role, 0) - succeeded[role]))) for role, least in minimums)


def with_distinct_options(alive: Sequence[Pod]) -> Sequence[Pod]:
    """Return the first pod of each distinct set of options; thousands of pods mostly state the same options, or none."""
    first: dict[tuple[tuple[str, str], ...], Pod] = {}
    for pod in alive:
        if pod.options:
            first.setdefault(pod.options, pod)
    return tuple(first.values())


def required_topology_of(group: PodGroup | None, alive: Sequence[Pod]) -> tuple[str, Hold | None]:
    """Return the PodGroup's required topology, empty if pods state their own, each role another; and a hold if one is no label key."""
    for pod in alive:
        if pod.option("required-topology") is not None:
            _, hold = option_of("required-topology", label_key, None, (pod,), "")
            if hold:
                return "", hold
    return option_of("required-topology", label_key, group, (), "")
