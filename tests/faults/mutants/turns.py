"""Mutants that break the guarantees of waiting gangs."""

from .mutant import Edit, Mutant

_PLACE = "Order(-gang.priority, not (is_first and may_go_first), standing, usage, share, created, gang.key, (group, own))"
PRIORITY_IGNORED = Edit(
    "order_of",
    _PLACE,
    _PLACE.replace("-gang.priority", "0"),
)

NO_RETELLING = Edit("MessageRefresh._first", "min(found, default=None)", "None")
"""Prevents attempts at waiting gangs that only refresh their message: such an attempt would hide what the mutant omits."""

MUTANTS = (
    Mutant(
        "stale view: deletions are ignored",
        "relisted",
        "idle",
        (
            Edit(
                "Reflector._list",
                """
    for key in [key for key in self._store.known() if key not in seen]:
        self._store.remove(key)
""",
                "",
            ),
        ),
    ),
    Mutant(
        "priority is ignored",
        "priorities",
        "priority",
        (PRIORITY_IGNORED,),
    ),
    Mutant(
        "healing precedes gangs of a higher priority",
        "healing_below_a_priority",
        "priority",
        (
            Edit(
                "order_of",
                _PLACE,
                _PLACE.replace("-gang.priority", "-2 ** 31 + 1 if heals else -gang.priority"),
            ),
        ),
    ),
    Mutant(
        "no gang is woken",
        "capacity_is_freed",
        "idle",
        (Edit("GangQueue.observe", "self._unschedulable.wake(resources, is_only=change.is_only)", "return"),),
    ),
    Mutant(
        "the message names the wrong resource",
        "two_roles_that_do_not_fit",
        "reason",
        (Edit("_REASONS", "'Insufficient {subject}'", "'Insufficient x{subject}'"),),
    ),
    Mutant(
        "the message miscounts nodes",
        "two_roles_that_do_not_fit",
        "reason",
        (Edit("fit_error", "f'0/{total_nodes} nodes are available'", "f'0/{total_nodes + 1} nodes are available'"),),
    ),
    Mutant(
        "backoff lets lower priorities pass",
        "priority_in_backoff",
        "priority",
        (
            NO_RETELLING,
            Edit("GangQueue._next", "waiting.standing_key < min(compared).standing_key", "False"),
        ),
    ),
    Mutant(
        "a gang isn't admitted although its resources are free by count",
        "other_schedulers_pods_end",
        "idle",
        (NO_RETELLING, Edit("GangQueue._admit", "admitted = list(self._unschedulable.admitted(_SLICE))", "admitted: list[GangKey] = []")),
    ),
    Mutant(
        "capacity freed during a search goes to the searched gang, whatever ranks before it",
        "capacity_freed_during_a_search_below",
        "priority",
        (Edit("GangQueue.outranks", "self._admit()", ""),),
    ),
    Mutant(
        "capacity freed by other schedulers wakes no gang",
        "other_schedulers_pods_end",
        "idle",
        (
            NO_RETELLING,
            Edit("ClusterEvents.observe_pod", "old.freed(new)", "[each for each in old.freed(new) if each not in ('cpu', 'pods')]"),
        ),
    ),
    Mutant(
        "returned capacity doesn't end the backoff of other gangs",
        "refused_beside_another",
        "idle",
        (
            NO_RETELLING,
            Edit("GangQueue._return_capacity", "self._returned_at = self._clock()", "pass"),
        ),
    ),
    Mutant(
        "a new node takes over the usage of a node that is gone",
        "node_gone_before_its_pods",
        "idle",
        (
            Edit(
                "Usage.release",
                """
    if not self._used[row].any():
        del self._rows[node_name]
        self._ports.pop(row, None)
        self._vacant.append(row)
""",
                """
    del self._rows[node_name]
    self._ports.pop(row, None)
    self._vacant.append(row)
""",
            ),
        ),
    ),
)
