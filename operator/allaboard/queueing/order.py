"""Computes the place of a gang in the queue, and what wakes a refused gang."""

from collections.abc import Iterable

from allaboard.model.gang import Gang, GangKey, OnMemberLost, Outline
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind
from allaboard.placement import Explanation
from allaboard.records.sort_key import HEALS, OVERTAKEN, PLAIN, Group, Order, Own
from allaboard.records.wake_up import GPU_CHANGES, WakeUpOn

_FIRST = -(2**31)  # before any priority, which is an int32


def order_of(
    gang: Gang | Outline,
    *,
    is_first: bool = False,
    may_go_first: bool = True,
    is_protected: bool = False,
    has_grown: bool = False,
    usage: int = 0,
    since: float | None = None,
    namespace_priority: int = 0,
) -> Order:
    """Return a gang's place in the queue.

    Priority counts first. Then gangs go first that we left partially bound (``is_first``), then gangs that have lost a member, then gangs
    that must not be overtaken. Then counts ``usage``, the search time that the namespace has used, then age and name.

    Nothing takes a gang past a higher priority: a tenant could raise the minimum of a bound gang, or forge a stamp. Healing takes no gang
    past namespaces that have used less search time, nor a gang that ``has_grown``: a tenant could have many gangs that have lost members
    and are hard to place. ``may_go_first`` ends when partially bound gangs of the namespace have gone first for long enough, since a tenant
    can forge stamps. ``since`` is the creation time that counts, if a ``namespace_priority`` changes it (``gangs.namespace_priority``).
    """
    heals = gang.is_partially_bound and gang.missing_of_stamped > 0 and gang.on_member_lost is not OnMemberLost.IGNORE and not has_grown
    standing = HEALS if heals and not usage else OVERTAKEN if is_protected else PLAIN
    group = Group(gang.key.namespace, -gang.priority, not is_first, heals, is_protected)
    made = gang.created if since is None else since
    own = Own(-namespace_priority, gang.created, gang.key)
    return Order(-gang.priority, not (is_first and may_go_first), standing, usage, made, gang.key, (group, own))


def order_of_gone(key: GangKey) -> Order:
    """Return the place of a gang that doesn't exist any more: it is due at once, only to be forgotten."""
    return Order(_FIRST, False, HEALS, 0, 0.0, key)


def wakes_up_on(explanation: Explanation, candidates: Iterable[Pod]) -> WakeUpOn:
    """Return what the unplaced roles lacked.

    With several roles, capacity for one may let another one move. Then any resource that a candidate requests may help.
    """
    resources: set[str] = set()
    kept = {reason for role in explanation.roles for reason, _ in role.reasons}
    anything = any(reason.kind.is_movable for reason in kept)
    if len(explanation.roles) > 1:
        specs = {pod.spec for pod in candidates}
        resources.update(resource for spec in specs for resource, _ in spec.requests if resource != "pods")
    if explanation.shortage:
        resources.add(explanation.shortage.resource)
    resources.update(reason.subject for reason in kept if reason.kind is Kind.INSUFFICIENT)
    if any(reason.kind.is_of_gpus for reason in kept):
        resources.add(GPU_CHANGES)
    return WakeUpOn(frozenset(resources), anything or not resources)
