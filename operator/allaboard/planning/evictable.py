"""Says which bound pods may be evicted for a gang of higher priority, and what their eviction costs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from allaboard.cluster.budgets import Budget
from allaboard.model.foreign_gang_labels import NONE
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.kueue import is_named_by_kueue
from allaboard.model.pod import Pod
from allaboard.model.times import parse_time
from allaboard.placement import Problem
from allaboard.placement.remedies.preemption import Evictable
from allaboard.runtime.slices import Slices
from allaboard.settings.options import Settings

_OF_THEIR_NODE = ("DaemonSet", "Node")  # kinds of controllers; a Node is the controller of a static pod
_SLICE = 500  # batches that are counted before other tasks may run: a millisecond


@dataclass(frozen=True, slots=True)
class PreemptionSettings:
    """The settings of preemption.

    ``is_on``: pods are evicted for gangs of higher priority. ``delay_seconds``: how long a gang waits for capacity before pods are evicted
    for it. ``min_runtime_seconds``: how long a gang runs before it may lose pods. ``despite_budgets``: also pods that a disruption budget
    protects, if there is no other way. ``of_kueue``: gangs that Kueue manages preempt, and may lose pods, too. ``others``: also single
    pods of other schedulers may be evicted.
    """

    is_on: bool = True
    delay_seconds: float = 0.0
    min_runtime_seconds: float = 0.0
    despite_budgets: bool = False
    of_kueue: bool = False
    others: bool = False

    @classmethod
    def by(cls, settings: Settings) -> Self:
        """Return the settings of preemption that the operator's settings state."""
        return cls(
            is_on=settings.preemption,
            delay_seconds=settings.preemption_delay_seconds,
            min_runtime_seconds=settings.min_runtime_seconds,
            despite_budgets=settings.preempt_despite_budgets,
            of_kueue=settings.preempt_with_kueue,
            others=settings.preempt_others,
        )


PREEMPTION = PreemptionSettings()
NO_PREEMPTION = PreemptionSettings(is_on=False)


def may_preempt(gang: Gang, settings: PreemptionSettings) -> bool:
    """Return whether pods may be evicted for ``gang``, by the settings and by what its pods state."""
    return settings.is_on and bool(gang.missing) and all(pod.may_preempt for pod in gang.candidates) and _is_ours(gang, settings)


def _is_ours(gang: Gang, settings: PreemptionSettings) -> bool:
    """Return whether this scheduler, and not Kueue, decides about evictions for and from ``gang``."""
    return settings.of_kueue or not any(is_named_by_kueue(name for name, _ in pod.labels) for pod in gang.alive[:1])


def may_lose_pods(gang: Gang, other: Gang, now: float, settings: PreemptionSettings) -> bool:
    """Return whether ``gang`` may lose bound pods for ``other``; ``now`` is in seconds since the epoch.

    A bare pod would be lost for good, so its gang keeps all pods unless the pod's annotation ``recreate`` says that it is made again.
    """
    bound = gang.bound_in_all_runs
    return (
        gang.key != other.key
        and bool(bound)
        and max(gang.priority, *(pod.priority for pod in bound)) < other.priority
        and all(pod.owner is not None or pod.option("recreate") == "true" for pod in bound)
        and _is_ours(gang, settings)
        and now - max(pod.started or now for pod in bound) >= settings.min_runtime_seconds
    )


def foreign_gang_of(pod: Pod) -> Gang | None:
    """Return a bound pod of another scheduler as a gang of one; None if it may not be evicted.

    A pod without a controller would be lost for good. The pod of a DaemonSet, or of the kubelet itself, belongs to its node. The pod of a
    gang isn't evicted alone.
    """
    if not pod.is_alive or not pod.node_name or pod.owner is None or pod.owner.kind in _OF_THEIR_NODE:
        return None
    if pod.group_name or pod.foreign_gang_labels != NONE:
        return None
    key = GangKey(pod.namespace, pod.name, "Pod")
    return Gang(key, 1, (pod,), pod.priority, pod.created, Objective.BINPACK, 0, pod.uid)


def surplus_of(gang: Gang) -> int:
    """Return how many bound pods ``gang`` can lose and stay whole.

    That is none if parts of the gang have minimums of their own, or if pods of several runs are bound. A gang whose pods name a PodGroup
    of Kubernetes itself has no surplus either: its ``disruptionMode`` may ask that all pods go together.
    """
    if gang.role_minimums or gang.missing or len(gang.bound_in_all_runs) > len(gang.bound) or any(pod.group_name for pod in gang.bound):
        return 0
    return max(0, len(gang.bound) - gang.quorum)


class Victim(NamedTuple):
    """A gang and the pods that it loses. ``is_broken``: these are all its bound pods, and not only surplus."""

    gang: Gang
    pods: tuple[Pod, ...]
    is_broken: bool


@dataclass(frozen=True, slots=True, eq=False)
class EvictablePods:
    """The pods that may be evicted, as arrays for the search, and the pods of each batch; those that are evicted first come first."""

    arrays: Evictable
    gangs: Sequence[Gang]
    batches: Sequence[Sequence[Pod]]

    def victims(self, taken: Sequence[int]) -> list[Victim]:
        """Return the gangs that lose pods if ``taken`` pods of each batch are evicted."""
        lost: dict[int, list[Pod]] = {}
        for gang, pods, number in zip(self.arrays.gang.tolist(), self.batches, taken, strict=True):
            if number:
                lost.setdefault(gang, []).extend(pods[:number])
        surplus = self.arrays.surplus.tolist()
        return [Victim(self.gangs[gang], tuple(pods), len(pods) > surplus[gang]) for gang, pods in lost.items()]


async def evictable_pods(
    gang: Gang,
    problem: Problem,
    gangs: Iterable[Gang],
    budgets_of: Callable[[Pod], Sequence[Budget]],
    now: float,
    settings: PreemptionSettings,
) -> EvictablePods:
    """Return the bound pods of ``gangs`` that may be evicted for ``gang``, whose ``problem`` has all nodes on which an eviction may help.

    Other tasks run in between, since there may be thousands of gangs. ``now`` is in seconds since the epoch.
    """
    slices = Slices()
    place = {name: position for position, name in enumerate(problem.nodes)}
    found: list[Gang] = []
    batches: dict[tuple[int, int, int, int, tuple[int, ...]], list[Pod]] = {}
    budgets: dict[Budget, int] = {}
    for other in gangs:
        await slices.give_way()
        if not may_lose_pods(other, gang, now, settings):
            continue
        for pod in sorted(other.bound_in_all_runs, key=_youngest_first):
            protecting = sorted(budgets.setdefault(budget, len(budgets)) for budget in budgets_of(pod))
            key = len(found), place.get(pod.node_name, -1), id(pod.spec), lost_with(pod, now), tuple(protecting)
            batches.setdefault(key, []).append(pod)
        found.append(other)
    await slices.give_way()
    columns = problem.columns[: problem.resources]
    kinds: dict[int, int] = {}  # positions in ``amounts``, by the identity of a spec
    amounts: list[list[int]] = []
    facts = np.zeros((len(batches), 5), dtype=np.int64)
    budgeted = np.zeros((len(budgets), len(batches)), dtype=bool)
    for position, ((gang_number, node, spec, lost, protected), pods) in enumerate(batches.items()):
        if spec not in kinds:
            kinds[spec] = len(amounts)
            requests = dict(pods[0].spec.requests)
            amounts.append([requests.get(column, 0) for column in columns])
        facts[position] = gang_number, node, kinds[spec], lost, len(pods)
        if protected:
            budgeted[list(protected), position] = True
        if position % _SLICE == _SLICE - 1:
            await slices.give_way()
    frees = np.zeros((len(problem.columns), len(batches)), dtype=np.int64)
    if batches:
        frees[: problem.resources] = np.array(amounts, dtype=np.int64)[facts[:, 2]].T
    arrays = Evictable(
        priority=np.array([other.priority for other in found], dtype=np.int64),
        surplus=np.array([surplus_of(other) for other in found], dtype=np.int64),
        gang=facts[:, 0],
        node=facts[:, 1],
        pods=facts[:, 4],
        frees=frees,
        lost=facts[:, 3],
        allowed=np.array([budget.allowed for budget in budgets], dtype=np.int64),
        budgeted=budgeted,
        may_exceed=settings.despite_budgets,
    )
    return EvictablePods(arrays, found, list(batches.values()))


def lost_with(pod: Pod, now: float) -> int:
    """Return the work that is lost with a bound pod: its GPUs times the seconds since its start or its last checkpoint.

    A pod without GPUs counts as one with one GPU.
    """
    saved = parse_time(pod.option("last-checkpoint") or "")
    since = max(pod.started or now, saved if saved <= now else 0.0)
    return max(1, pod.spec.whole_gpus) * max(0, round(now - since))


def _youngest_first(pod: Pod) -> tuple[float, str]:
    return -(pod.started or pod.bound_at), pod.name
