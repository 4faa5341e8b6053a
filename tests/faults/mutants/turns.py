"""Mutants that break what is promised to those who wait."""

from .mutant import Edit, Mutant

_PLACE = "Order(-gang.priority, not (is_first and may_go_first), standing, usage, created, gang.key, (group, own))"
PRIORITY_IGNORED = Edit(
    "order_of",
    _PLACE,
    _PLACE.replace("-gang.priority", "0"),
)

NO_RETELLING = Edit("MessageRefresh._first", "min(found, default=None)", "None")
"""Waiting gangs aren't looked at again because their message is old: such a look would find what the mutant has missed."""

MUTANTS = (
    Mutant(
        "stale view: deletions are not heard",
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
        "healing goes before every priority",
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
        "nobody is woken",
        "room_comes_free",
        "idle",
        (Edit("GangQueue.observe", "self._unschedulable.wake(resources, is_only=change.is_only)", "return"),),
    ),
    Mutant(
        "the reason is wrong: one resource is named for another",
        "two_kinds_of_room",
        "reason",
        (Edit("_REASONS", "'Insufficient {subject}'", "'Insufficient x{subject}'"),),
    ),
    Mutant(
        "the reason is wrong: nodes are miscounted",
        "two_kinds_of_room",
        "reason",
        (Edit("fit_error", "f'0/{total_nodes} nodes are available'", "f'0/{total_nodes + 1} nodes are available'"),),
    ),
    Mutant(
        "pauses let lower priorities pass",
        "priority_in_its_pause",
        "priority",
        (
            NO_RETELLING,
            Edit("GangQueue._next", "compared and self._in_backoff.first().standing_key < min(compared).standing_key", "False"),
        ),
    ),
    Mutant(
        "nobody is let in for whom there is room by count",
        "others_end",
        "idle",
        (NO_RETELLING, Edit("GangQueue._admit", "admitted = list(self._unschedulable.admitted(_SLICE))", "admitted: list[GangKey] = []")),
    ),
    Mutant(
        "room that comes while somebody is looked at is theirs, whoever waits above them",
        "room_while_those_below_are_looked_at",
        "priority",
        (Edit("GangQueue.outranks", "self._admit()", ""),),
    ),
    Mutant(
        "room that others leave wakes nobody",
        "others_end",
        "idle",
        (
            NO_RETELLING,
            Edit("ClusterEvents.observe_pod", "old.freed(new)", "[each for each in old.freed(new) if each not in ('cpu', 'pods')]"),
        ),
    ),
    Mutant(
        "slots that are given back let nobody look again soon",
        "refused_beside_another",
        "idle",
        (
            NO_RETELLING,
            Edit(
                "GangQueue._return_capacity",
                """
    self._last_return = self.changes
    self._forgive()
""",
                "",
            ),
        ),
    ),
    Mutant(
        "a node that comes takes over what was counted for one that went",
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
