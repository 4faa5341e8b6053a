"""Checks ``spec.minResources``: resources that must be free in the cluster before a gang starts, beyond its members' requests.

Job operators state them for members that don't exist yet. Example: a Spark driver requests 1 cpu, is a gang of one, and creates executors
that request 3 more. With minResources of 4 cpu the driver starts once 4 cpu are free. As in coscheduling (``CheckClusterResource``) the sum
over all nodes counts. Nothing is reserved for members that are created later. A gang with a bound member isn't checked.
"""

from collections import Counter
from fractions import Fraction

import numpy as np

from allaboard.model.gang import Gang
from allaboard.model.reasons import Cause, Code, Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Explanation, Plan, RoleExplanation, SearchReport
from allaboard.placement.problem.plan import Shortage
from allaboard.placement.remedies.causes import whole_amounts


def beyond_members(gang: Gang) -> dict[str, int]:
    """Return the resources of which minResources asks for more than the starting members take, with the amount that must be free.

    Empty for most gangs: if their members fit, minResources is met.
    """
    if not gang.min_resources or gang.bound or not gang.candidates:
        return {}
    kinds = {id(pod.spec): dict(pod.spec.requests) for pod in gang.candidates}  # equal specs are mostly one object
    number = Counter(id(pod.spec) for pod in gang.candidates)
    least = gang.least

    def taken(resource: str) -> int:
        """Return the least amount of ``resource`` that the members that must start can take: the sum of the smallest requests."""
        left, total = least, 0
        for amount, pods in sorted((kinds[kind].get(resource, 0), pods) for kind, pods in number.items()):
            total += amount * min(left, pods)
            left -= min(left, pods)
        return total

    return {resource: amount for resource, amount in gang.min_resources if amount > taken(resource)}


def shortage_of(gang: Gang, snapshot: Snapshot) -> Shortage | None:
    """Return the scarcest resource of minResources, the one with the smallest free share; None if enough of each is free.

    Resources of the gang's terminating members count as free. Nodes that take no pods count as full.
    """
    wanted = beyond_members(gang)
    if not wanted:
        return None
    takes_pods = np.array([node.is_ready and not node.is_unschedulable for node in snapshot.nodes], dtype=np.bool_)
    _, free = whole_amounts(snapshot, list(wanted))
    free_amounts = dict(zip(wanted, free[:, takes_pods].sum(axis=1).tolist(), strict=True))
    for pod in gang.members:
        if pod.is_bound:
            free_amounts.update({name: free_amounts[name] + amount for name, amount in pod.spec.requests if name in free_amounts})
    shortages = [Shortage(name, amount, free_amounts[name]) for name, amount in wanted.items() if amount > free_amounts[name]]
    return max(shortages, key=lambda each: (Fraction(each.requested, each.free + 1), each.resource), default=None)


def refusal(gang: Gang, snapshot: Snapshot, short: Shortage) -> Plan:
    """Return the plan that refuses a gang for the shortage ``short``, without a search: no pod is placed."""
    pods = tuple(pod.uid for pod in gang.candidates)
    nodes = len(snapshot.nodes)
    reasons = ((Reason(Kind.MIN_RESOURCES, short.resource), nodes),) if nodes else ()
    roles = (RoleExplanation(pods, len(pods), len(pods), reasons),)
    return Plan(
        feasible=False,
        assignments=(),
        unplaced=pods,
        explanation=Explanation(nodes, gang.least, 0, roles, short, lacking=gang.least),
        search=SearchReport(0.0, 0.0, 0, "bound", (), ""),
    )


def cause(snapshot: Snapshot, short: Shortage) -> Cause:
    """Return the cause of a refusal for the shortage ``short``: the nodes don't have that much in all, or it isn't free now."""
    has, _ = whole_amounts(snapshot, [short.resource])
    rule = Reason(Kind.MIN_RESOURCES, short.resource)
    in_all = int(has.sum())
    if in_all < short.requested:
        return Cause(Code.NEVER_FITS, short.resource, short.requested, in_all, rule=rule)
    return Cause(Code.INSUFFICIENT, short.resource, short.requested, short.free, rule=rule)
