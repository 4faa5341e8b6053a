"""Mutants that break what is promised to those who wait."""

from .mutant import Edit, Mutant

PRIORITY_IGNORED = Edit(
    "scheduling/order.py",
    "        -gang.priority, not (is_first and may_go_first), standing,",
    "        0, not (is_first and may_go_first), standing,",
)

NO_RETELLING = Edit("scheduling/retelling.py", "        return min(found, default=None)\n", "        return None\n")
"""Waiting gangs aren't looked at again because their message is old: such a look would find what the mutant has missed."""

MUTANTS = (
    Mutant(
        "stale view: deletions are not heard",
        "relisted",
        "idle",
        (
            Edit(
                "kube/reflector.py",
                ("        for key in [key for key in self._store.known() if key not in seen]:\n            self._store.remove(key)\n"),
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
                "scheduling/order.py",
                "        -gang.priority, not (is_first and may_go_first), standing,",
                "        -(2**31) + 1 if heals else -gang.priority, not (is_first and may_go_first), standing,",
            ),
        ),
    ),
    Mutant(
        "nobody is woken",
        "room_comes_free",
        "idle",
        (
            Edit(
                "scheduling/queue.py",
                "        self._parked.wake(freed)\n",
                "        return\n",
            ),
        ),
    ),
    Mutant(
        "the reason is wrong: one resource is named for another",
        "two_kinds_of_room",
        "reason",
        (
            Edit(
                "report/messages.py",
                '"Insufficient {subject}"',
                '"Insufficient x{subject}"',
            ),
        ),
    ),
    Mutant(
        "the reason is wrong: nodes are miscounted",
        "two_kinds_of_room",
        "reason",
        (
            Edit(
                "report/messages.py",
                'return f"0/{total_nodes} nodes are available"',
                'return f"0/{total_nodes + 1} nodes are available"',
            ),
        ),
    ),
    Mutant(
        "pauses let lower priorities pass",
        "priority_in_its_pause",
        "priority",
        (
            NO_RETELLING,
            Edit(
                "scheduling/queue.py",
                "            if served and self._pausing.first().claim < min(served).claim:\n",
                "            if False:\n",
            ),
        ),
    ),
    Mutant(
        "nobody is let in for whom there is room by count",
        "others_end",
        "idle",
        (NO_RETELLING, Edit("scheduling/queue.py", "admitted = list(self._parked.admitted(_SLICE))", "admitted: list[GangKey] = []")),
    ),
    Mutant(
        "room that comes while somebody is looked at is theirs, whoever waits above them",
        "room_while_those_below_are_looked_at",
        "priority",
        (Edit("scheduling/queue.py", "        self._admit()\n        line = self._next(key)\n", "        line = self._next(key)\n"),),
    ),
    Mutant(
        "room that others leave wakes nobody",
        "others_end",
        "idle",
        (
            NO_RETELLING,
            Edit(
                "scheduling/cycle.py",
                "        if old is not None and (freed := old.freed(new)):\n",
                '        if old is not None and (freed := [each for each in old.freed(new) if each not in ("cpu", "pods")]):\n',
            ),
        ),
    ),
    Mutant(
        "seats that are given back let nobody look again soon",
        "refused_beside_another",
        "idle",
        (
            NO_RETELLING,
            Edit(
                "scheduling/queue.py",
                ("        self._given_back = self.changes\n        self._spare()\n"),
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
                "cluster/usage.py",
                "        if not self._used[row].any():\n            del self._rows[node_name]\n            self._ports.pop(row, None)\n"
                "            self._vacant.append(row)",
                "        del self._rows[node_name]\n        self._ports.pop(row, None)\n        self._vacant.append(row)",
            ),
        ),
    ),
)
