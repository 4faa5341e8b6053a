"""Mutants that break what is promised of terms and their ends."""

from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "sealing removed",
        "killed_with_a_follower",
        "seal",
        (
            Edit(
                "leadership/fencing.py",
                ("        if self._begins_at < 0:\n            return []\n"),
                "        return []\n",
            ),
        ),
    ),
    Mutant(
        "the leader before may still bind: sealing is only pretended",
        "leader_stands_still",
        "late",
        (
            Edit(
                "leadership/fencing.py",
                '                    await self._server.patch(path, {"metadata": metadata})\n',
                "                    pass\n",
            ),
        ),
    ),
    Mutant(
        "a follower takes the lease before it has expired",
        "two_replicas",
        "leader",
        (
            Edit(
                "leadership/lease.py",
                "or self._clock() >= self._seen_at + seen.duration)",
                "or self._clock() >= self._seen_at)",
            ),
        ),
    ),
    Mutant(
        "whoever is stopped waits for nobody",
        "stopped_in_a_commit",
        "open",
        (
            Edit(
                "scheduling/cycle.py",
                "                    await self._under_way.settled()\n",
                "                    pass\n",
            ),
        ),
    ),
    Mutant(
        "recovery blinded",
        "killed_in_a_commit",
        "unresolved",
        (
            Edit(
                "scheduling/past.py",
                "    if not (gang.is_open and gang.owed) or was_whole(gang):\n",
                "    if True:\n",
            ),
        ),
    ),
    Mutant(
        "what was whole is taken for cut off",
        "killed_while_it_heals",
        "release",
        (
            Edit(
                "scheduling/past.py",
                "    return any(pod.was_whole or len(members) >= pod.promise for pod in members)\n",
                "    return False\n",
            ),
        ),
    ),
    Mutant(
        "the lease is ignored",
        "two_replicas",
        "leader",
        (
            Edit(
                "app.py",
                "            await self._lease.acquired.wait()\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "a follower is late to take the lease over",
        "killed_with_a_follower",
        "leader",
        (
            Edit(
                "leadership/lease.py",
                "self._clock() >= self._seen_at + seen.duration)",
                "self._clock() >= self._seen_at + seen.duration + 8)",
            ),
        ),
    ),
    Mutant(
        "the lease is given back before all that was sent has ended",
        "stopped_in_a_commit_with_a_follower",
        "leader",
        (
            Edit(
                "app.py",
                "        if self._deciding is not None:\n            self._deciding.cancel()",
                (
                    "        if self._lease is not None:\n            await self._lease.release()\n"
                    "        if self._deciding is not None:\n            self._deciding.cancel()"
                ),
            ),
        ),
    ),
    Mutant(
        "the lease isn't given back",
        "stopped_with_a_follower",
        "leader",
        (
            Edit(
                "leadership/lease.py",
                ("        self._renewed = None\n        if not self._has_tried:\n"),
                ("        self._renewed = None\n        if True:\n"),
            ),
        ),
    ),
    Mutant(
        "nobody is sealed at first, and no seats are kept",
        "seats_of_the_dead",
        "over-commit",
        (
            Edit(
                "leadership/fencing.py",
                ("        sealed: set[str] = set()\n        tried"),
                ("        return []\n        sealed: set[str] = set()\n        tried"),
            ),
            Edit(
                "app.py",
                "await scheduler.quarantine.begin(unsealed)",
                "pass",
            ),
        ),
    ),
    Mutant(
        "whoever can't be sealed is bound",
        "unsealable",
        "seal",
        (
            Edit(
                "leadership/fencing.py",
                "        self._begins_at = -1\n",
                "        self._begins_at = -1\n        self._refused: set[str] = set()\n",
            ),
            Edit(
                "leadership/fencing.py",
                "            return error\n        return None\n",
                "            self._refused.add(pod.uid)\n            return error\n        return None\n",
            ),
            Edit(
                "leadership/fencing.py",
                "if not is_newer(pod, self._begins_at)]",
                "if not is_newer(pod, self._begins_at) and pod.uid not in self._refused]",
            ),
        ),
    ),
    Mutant(
        "no seats are kept for whoever can't be sealed",
        "seats_of_the_dead",
        "over-commit",
        (Edit("app.py", "await scheduler.quarantine.begin(unsealed)", "pass"),),
    ),
    Mutant(
        "the binds don't say that the gang was whole",
        "killed_while_it_heals",
        "release",
        (
            Edit(
                "binding/transaction.py",
                "was_whole=bool(run) and self.was_whole)",
                "was_whole=False)",
            ),
        ),
    ),
    Mutant(
        "the leader decides for as long as it likes",
        "leader_stands_still",
        "leader",
        (
            Edit(
                "leadership/lease.py",
                ("    if left <= 0:\n        raise LeaseLostError"),
                ("    if False:\n        raise LeaseLostError"),
            ),
            Edit(
                "leadership/lease.py",
                'async with answered_within(None if left == float("inf") else left, ',
                "async with answered_within(None, ",
            ),
        ),
    ),
    Mutant(
        "the time of a gang that was cut off runs from when another leads",
        "looked_at_late",
        "priority",
        (Edit("scheduling/opengangs.py", "self.docket.half(gang.key).deadline = self.clock() + FORWARD_SECONDS", "pass"),),
    ),
)
