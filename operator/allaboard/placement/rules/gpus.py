"""Rules about GPUs that a pod states by labels: number, model, free memory of each GPU, and free memory of all GPUs together.

Each rule is reported by itself: a node that fails several rules is counted under each of these rules, as Genius logged them. ``gpu_rules``
decides for all nodes in arrays; ``refusals_by_gpus`` counts again, GPU by GPU, for the last check of a plan.
"""

from collections.abc import Iterator

import numpy as np

from allaboard.model.arrays import Mask
from allaboard.model.constraints import GpuRequest
from allaboard.model.gpu_inventory import GpuInventory
from allaboard.model.gpunames import matches
from allaboard.model.reasons import Kind, Reason

_UNKNOWN = {
    Kind.GPU_MODEL: Reason(Kind.GPU_MODEL_UNKNOWN),
    Kind.GPU_MEMORY_EACH: Reason(Kind.GPU_MEMORY_UNKNOWN),
    Kind.GPU_MEMORY_TOTAL: Reason(Kind.GPU_MEMORY_UNKNOWN),
}
"""The reason to report if a node fails a rule only because the model or the memory of its GPUs is unknown, by kind of rule."""


def gpu_rules(asked: GpuRequest, gpus: GpuInventory | None, nodes: int) -> Iterator[tuple[Reason, Mask]]:
    """Yield the reason for each rule, with the nodes that meet the rule: bool[nodes]. Without ``gpus`` no node meets any rule.

    The model or the free memory of a GPU may be unknown. So a rule about one of these has two reasons. One is for nodes that can't meet the
    rule, whatever the unknown values are. The other is for nodes that may meet the rule.
    """
    if gpus is None:
        yield from ((reason, np.zeros(nodes, dtype=np.bool_)) for reason in _reasons(asked))
        return
    is_unread = np.isnan(gpus.free)
    unless_unknown: dict[Reason, Mask] = {}
    for reason in _reasons(asked):
        if reason.kind is Kind.GPU_NUMBER:
            yield reason, _enough(asked, gpus, gpus.is_here)
            continue
        if reason.kind is Kind.GPU_MODEL:
            wanted = np.array([*(matches(asked.model, names) for names in gpus.names), False], dtype=np.bool_)
            nameless = np.array([*(not names for names in gpus.names), False], dtype=np.bool_)
            good = wanted[gpus.kind]  # the kind is -1 where there is no card, which selects the last entry
            meets, possible = _enough(asked, gpus, good), _enough(asked, gpus, good | nameless[gpus.kind])
        elif reason.kind is Kind.GPU_MEMORY_EACH:
            good = np.where(is_unread, gpus.policy.unknown_fits, gpus.free > (asked.memory_each or 0))
            meets, possible = _enough(asked, gpus, good), _enough(asked, gpus, good | is_unread)
        else:
            meets = _enough_together(asked, gpus)
            possible = meets | (is_unread & gpus.is_here).any(axis=1)
        yield reason, possible
        why = _UNKNOWN[reason.kind]
        unless_unknown[why] = unless_unknown.get(why, True) & (meets | ~possible)
    yield from ((why, mask) for why, mask in unless_unknown.items() if not mask.all())


def refusals_by_gpus(asked: GpuRequest, gpus: GpuInventory | None, row: int) -> Iterator[Reason]:
    """Yield the reason of each rule that the node in ``row`` doesn't meet. A reason that several rules have in common is yielded once."""
    yield from dict.fromkeys(_refusals(asked, gpus, row))


def _refusals(asked: GpuRequest, gpus: GpuInventory | None, row: int) -> Iterator[Reason]:
    cards = [] if gpus is None else [card for card, kind in enumerate(gpus.kind[row].tolist()) if kind >= 0]
    free = [] if gpus is None else [_whole(float(gpus.free[row, card])) for card in cards]
    fits_unknown = gpus is not None and gpus.policy.unknown_fits
    replicas = 1 if gpus is None else int(gpus.replicas[row])
    for reason in _reasons(asked):
        if reason.kind is Kind.GPU_MEMORY_TOTAL:
            unknown = free.count(None)
            enough = bool(cards) and ((bool(unknown) and fits_unknown) or sum(amount or 0 for amount in free) >= (asked.memory_total or 0))
            may_be_enough = bool(unknown)
        else:
            if reason.kind is Kind.GPU_NUMBER:
                good, unknown = [True for _ in cards], 0
            elif reason.kind is Kind.GPU_MODEL and gpus is not None:
                names = [gpus.names[int(gpus.kind[row, card])] for card in cards]
                good, unknown = [matches(asked.model, each) for each in names], sum(not each for each in names)
            else:
                good = [fits_unknown if amount is None else amount > (asked.memory_each or 0) for amount in free]
                unknown = 0 if fits_unknown else free.count(None)
            enough = sum(good) * replicas >= max(1, asked.number)
            may_be_enough = bool(unknown) and (sum(good) + unknown) * replicas >= max(1, asked.number)
        if not enough:
            yield _UNKNOWN[reason.kind] if may_be_enough else reason


def _reasons(asked: GpuRequest) -> Iterator[Reason]:
    if asked.filters_number:
        yield Reason(Kind.GPU_NUMBER)
    if asked.model:
        yield Reason(Kind.GPU_MODEL)
    if asked.memory_each is not None:
        yield Reason(Kind.GPU_MEMORY_EACH)
    if asked.memory_total is not None:
        yield Reason(Kind.GPU_MEMORY_TOTAL)


def _enough(asked: GpuRequest, gpus: GpuInventory, good: Mask) -> Mask:
    """Return whether each node has enough ``good`` GPUs: bool[nodes]. ``good``: bool[nodes, GPUs of a node]."""
    enough: Mask = np.count_nonzero(good & gpus.is_here, axis=1) * gpus.replicas >= max(1, asked.number)
    return enough


def _enough_together(asked: GpuRequest, gpus: GpuInventory) -> Mask:
    is_unknown = np.isnan(gpus.free) & gpus.is_here
    total = np.where(gpus.is_here & ~is_unknown, gpus.free, 0.0).sum(axis=1)
    enough = total >= (asked.memory_total or 0)
    if gpus.policy.unknown_fits:
        enough = enough | is_unknown.any(axis=1)
    together: Mask = enough & gpus.is_here.any(axis=1)
    return together


def _whole(mebibytes: float) -> float | None:
    return None if np.isnan(mebibytes) else mebibytes
