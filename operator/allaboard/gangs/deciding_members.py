"""Choose the members whose labels and annotations decide the minimum and options of a run, and compute the run's priority.

Members of one run may differ: running pods may have another template than their replacements. So the waiting pods decide, and the running
pods only if no pod waits.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from allaboard.gangs.options import option_of
from allaboard.gangs.podgroup import PodGroup
from allaboard.gangs.runs import Run, Source
from allaboard.model.gang import Hold, RoleMinimums
from allaboard.model.limits import ENDED
from allaboard.model.options import OPTION_PREFIX
from allaboard.model.pod import Pod, by_age
from allaboard.model.topologies import TopologyWish, label_key, topology_wish


def is_rollout(waiting: Sequence[Pod]) -> bool:
    """Return whether the waiting pods come from several ReplicaSets or similar controllers, as in a rollout."""
    owners = {id(pod.owner): pod.owner for pod in waiting}  # mostly one object for all pods of a controller
    return len(owners) > 1 and len(set(owners.values())) > 1 and all(Source.of(owner) is Source.SERVING for owner in owners.values())


def deciding_members(alive: Sequence[Pod]) -> Sequence[Pod]:
    """Return the pods whose labels and annotations decide a run's minimum and options, oldest first.

    These are the waiting pods of ``alive``. In a rollout they are the waiting pods of the youngest controller. If no pod waits, the
    youngest living pod decides. So a new pod may differ from running members, and the gang isn't held for that.
    """
    waiting = [pod for pod in alive if not pod.node_name]
    if is_rollout(waiting):
        youngest = max(waiting, key=by_age).owner
        return [pod for pod in waiting if pod.owner == youngest]
    return waiting or [max(alive, key=by_age)] if alive else ()


def priority_of(alive: Sequence[Pod]) -> int:
    """Return the priority of a run: the lowest of its oldest bound member's and its waiting pods' priorities.

    So a replacement of higher priority doesn't raise its gang's priority, nor does one bound pod raise the priority of many waiting pods.
    """
    bound = next(([pod.priority] for pod in alive if pod.node_name), [])
    return min((*bound, *(pod.priority for pod in alive if not pod.node_name)))


def creatable_minimums(minimums: RoleMinimums, run: Run) -> RoleMinimums:
    """Return the minimums of roles, reduced by the pods of each role that no Job will create."""
    if not (minimums and run.gone_of_role):
        return minimums
    succeeded = Counter(pod.role for pod in run.members if pod.has_succeeded)
    return tuple((role, max(0, least - max(0, run.gone_of_role.get(role, 0) - succeeded[role]))) for role, least in minimums)


def first_of_each_options(alive: Sequence[Pod]) -> Sequence[Pod]:
    """Return the first pod of each distinct set of options; pods without options are left out.

    So few pods are read, since thousands of pods mostly state the same options, or none.
    """
    first: dict[tuple[tuple[str, str], ...], Pod] = {}
    for pod in alive:
        if pod.options:
            first.setdefault(pod.options, pod)
    return tuple(first.values())


def topology_of(group: PodGroup | None, alive: Sequence[Pod], default: str) -> tuple[TopologyWish, Hold | None]:
    """Return the topology that is asked for the whole gang, and a hold if one that is stated is malformed.

    The pods of a role may require a topology, and segments, for their role; these aren't part of the result. The preferred level is the
    pods', which must agree, else the PodGroup's, else ``default``. What the PodGroup requires is for the whole gang.
    """
    preferred: dict[str, Pod] = {}
    for pod in alive:
        for name, parse in (("topology", topology_wish), ("required-topology", label_key)):
            found, hold = option_of(name, parse, None, (pod,), None)
            if hold:
                return TopologyWish(), hold
            if isinstance(found, TopologyWish) and found.preferred:
                preferred.setdefault(found.preferred, pod)
    if len(preferred) > 1:
        (first, one), (second, other) = list(preferred.items())[:2]
        text = f"Annotations {OPTION_PREFIX}topology do not match: pod {other.name} says {second}, pod {one.name} says {first}"
        return TopologyWish(), Hold("TopologyMismatch", text, other, f"metadata.annotations[{OPTION_PREFIX}topology]")
    wish, hold = option_of("topology", topology_wish, group, (), TopologyWish())
    required, required_hold = option_of("required-topology", label_key, group, (), "")
    if hold or required_hold:
        return TopologyWish(), hold or required_hold
    return replace(wish, preferred=next(iter(preferred), "") or wish.preferred or default, required=wish.required or required), None


def within_limit(members: Collection[Pod]) -> Collection[Pod]:
    """Return the members, but only the youngest of the ended members, up to a limit: a Job keeps all of its ended pods."""
    if len(members) <= ENDED.most:
        return members
    ended = [pod for pod in members if pod.is_terminal]
    if len(ended) <= ENDED.most:
        return members
    ended = heapq.nlargest(ENDED.most, ended, key=by_age)
    return [*(pod for pod in members if not pod.is_terminal), *ended]
