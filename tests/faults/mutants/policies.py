"""Mutants that break the guarantees of reservations and preemption."""

from .mutant import Edit, Mutant

_NOTHING_LEAVES = Edit("Preemptions._found", "self._soon(gang).without(leaving)", "self.planner.cluster.snapshot(gang.priority)")
_HELD = Edit("Preemptions.find", "self._is_waiting_for_victims(gang)", "False")
_KEEPS_WAITING = (
    _HELD,
    Edit("Preemptions._below", "[each for each in (marked, others) if each]", "[others] if others else []"),
    _NOTHING_LEAVES,
    Edit("Preemptions._below", "going and (evicted := [pod for pod in other.bound_in_all_runs if pod.uid in going])", "False"),
)

MUTANTS = (
    Mutant(
        "pods are evicted for a gang that doesn't fit in their place",
        "hopeless_gang_of_a_high_priority",
        "preemption",
        (
            Edit(
                "Preemptions._chosen",
                """
if choice is None or not choice.taken.any():
    return None
""",
                """
from types import SimpleNamespace
choice = choice or SimpleNamespace(taken=evictable.arrays.pods)
""",
            ),
            Edit("Preemptions._chosen", "if not (plan.feasible and plan.is_bindable):\n    return None", ""),
        ),
    ),
    Mutant(
        "more pods are evicted than the gang needs",
        "preempted",
        "preemption",
        (Edit("Preemptions._chosen", "evictable.victims(choice.taken.tolist())", "evictable.victims(evictable.arrays.pods.tolist())"),),
    ),
    Mutant(
        "gangs of the same priority are preempted",
        "equals_wait",
        "preemption",
        (
            Edit("Preemptions._below", "other.priority >= gang.priority", "other.priority > gang.priority"),
            Edit(
                "may_lose_pods",
                "max(gang.priority, *(pod.priority for pod in bound)) < other.priority",
                "max(gang.priority, *(pod.priority for pod in bound)) <= other.priority",
            ),
        ),
    ),
    Mutant(
        "pods are evicted although others leave already",
        "capacity_that_leaves_already",
        "preemption",
        (_NOTHING_LEAVES,),
    ),
    Mutant(
        "further pods are evicted while victims are still there",
        "slow_victims",
        "widened",
        _KEEPS_WAITING,
    ),
    Mutant(
        "capacity that is reserved for a higher priority is given to a lower one",
        "reserved_below_a_priority",
        "reserved",
        (
            Edit(
                "Reservation.binds",
                "return self.order < other.order if other.order is not None else self.priority >= other.priority",
                "return False",
            ),
        ),
    ),
    Mutant(
        "gangs behind a reservation take its capacity",
        "promised_start",
        "expected",
        (
            Edit(
                "Reservation.binds",
                "return self.order < other.order if other.order is not None else self.priority >= other.priority",
                "return self.priority > other.priority",
            ),
        ),
    ),
    Mutant(
        "the reservation of a deleted gang stays",
        "waiting_gang_is_deleted",
        "idle",
        (
            Edit(
                "Reservations._recompute",
                """
if gang is None or not gang.can_act or not gang.missing:
    has_ended = True
    continue
""",
                """
if gang is None or not gang.missing:
    kept.append(old)
    continue
""",
            ),
            Edit("Preemptions.give_up", "self.planner.ledger.drop(key)", ""),
        ),
    ),
    Mutant(
        "a reservation ignores the rack of the members that are bound",
        "lost_member_of_a_rack",
        "reason",
        (
            Edit("DueGangs.resolved", "self.gangs.current(key)", "self.gangs.registry.gang(key)"),
            Edit("Reservations.pause", "held is not None and not held.awaited", "False"),
        ),
    ),
)
