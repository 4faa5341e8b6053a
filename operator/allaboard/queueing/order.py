"""Computes a gang's queue position, and the changes that wake a refused gang."""

from collections.abc import Iterable

from allaboard.model.gang import Gang, GangKey, OnMemberLost, Outline
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind
from allaboard.placement import Explanation
from allaboard.records.sort_key import HEALS, PLAIN, Group, Order, Own
from allaboard.records.wake_up import GPU_CHANGES, WakeUpOn

_FIRST = -(2**31)  # before any priority, which is an int32


def order_of(
    gang: Gang | Outline,
    *,
    is_first: bool = False,
    may_go_first: bool = True,
    has_grown: bool = False,
    usage: int = 0,
    share: int = 0,
    tenant: str = "",
    since: float | None = None,
    namespace_priority: int = 0,
) -> Order:
    """Return a gang's queue position.

    Priority counts first. Within a priority the order is:

    1. gangs that this scheduler left partially bound (``is_first``);
    2. gangs that have lost a member;
    3. the other gangs.

    Then these count, one after the other:

    - the namespace's search-time usage (``usage``, a level);
    - the share of the cluster that the gang's tenant has used (``share``, a level; 0 if the fair order is off);
    - age and name.

    ``tenant`` is the tenant, if that isn't the namespace.

    Some rules keep tenants from abusing this order:

    - No gang goes before a higher priority. A tenant could raise the minimum of a bound gang, or forge a stamp.
    - A gang that has lost a member doesn't go first for that if its namespace has search-time usage. Nor does it if the gang ``has_grown``:
      its members request more than when it was whole. A tenant could have many such gangs that are hard to place.
    - A partially bound gang goes first only while ``may_go_first`` is True. It is False once partially bound gangs of the namespace have
      kept others waiting for long enough.

    ``since`` is the effective creation time, if a ``namespace_priority`` changes it (``gangs.namespace_priority``).
    """
    heals = gang.is_partially_bound and gang.missing_of_stamped > 0 and gang.on_member_lost is not OnMemberLost.IGNORE and not has_grown
    standing = HEALS if heals and not usage else PLAIN
    group = Group(gang.key.namespace, -gang.priority, not is_first, heals, tenant)
    created = gang.created if since is None else since
    own = Own(-namespace_priority, gang.created, gang.key)
    return Order(-gang.priority, not (is_first and may_go_first), standing, usage, share, created, gang.key, (group, own))


def order_of_gone(key: GangKey) -> Order:
    """Return the queue position of a gang that no longer exists. It is the first, so that the gang's state is deleted at once."""
    return Order(_FIRST, False, HEALS, 0, 0, 0.0, key)


def wakes_up_on(explanation: Explanation, candidates: Iterable[Pod]) -> WakeUpOn:
    """Return the changes that wake a refused gang: more of the resources that its unplaced roles lacked.

    In a gang of several roles, capacity for one role may let pods of another role move to it. So then more of any resource that a candidate
    requests wakes the gang.
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
