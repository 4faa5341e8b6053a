"""Mutants that break the guarantees of leadership: terms, and their ends."""

from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "no fencing",
        "killed_with_a_follower",
        "fence",
        (
            Edit(
                "Term.older",
                """
    if self._first_version < 0:
        return []
""",
                "return []",
            ),
        ),
    ),
    Mutant(
        "pods count as fenced without a write",
        "leader_stands_still",
        "late",
        (Edit("Term.fence_off", "await self._server.patch(path, {'metadata': metadata})", "pass"),),
    ),
    Mutant(
        "a follower takes the lease before it has expired",
        "two_replicas",
        "leader",
        (Edit("Lease._is_free", "self._seen_at + seen.duration", "self._seen_at"),),
    ),
    Mutant(
        "a scheduler that shuts down doesn't wait for its binds",
        "stopped_in_a_commit",
        "open",
        (Edit("Executor.stop", "await self.tasks.wait_until_idle()", "pass"),),
    ),
    Mutant(
        "no recovery: no gang counts as cut off",
        "killed_in_a_commit",
        "unresolved",
        (Edit("was_cut_off", "not (gang.is_partially_bound and gang.missing_of_stamped) or was_whole(gang)", "True"),),
    ),
    Mutant(
        "a gang that was whole counts as cut off",
        "killed_while_it_heals",
        "release",
        (Edit("was_whole", "any((pod.was_whole or len(members) >= pod.stamped_min_member for pod in members))", "False"),),
    ),
    Mutant(
        "the lease is ignored",
        "two_replicas",
        "leader",
        (Edit("App._schedule", "await self._lease.acquired.wait()", "pass"),),
    ),
    Mutant(
        "a follower takes the lease over late",
        "killed_with_a_follower",
        "leader",
        (Edit("Lease._is_free", "self._seen_at + seen.duration", "self._seen_at + seen.duration + 8"),),
    ),
    Mutant(
        "the lease is released before all requests have ended",
        "stopped_in_a_commit_with_a_follower",
        "leader",
        (
            Edit(
                "App.stop",
                """
    if self._deciding is not None:
        self._deciding.cancel()
        await asyncio.gather(self._deciding, return_exceptions=True)
""",
                """
    if self._lease is not None:
        await self._lease.release()
    if self._deciding is not None:
        self._deciding.cancel()
        await asyncio.gather(self._deciding, return_exceptions=True)
""",
            ),
        ),
    ),
    Mutant(
        "the lease isn't released",
        "stopped_with_a_follower",
        "leader",
        (Edit("Lease.release", "not self._has_tried", "True"),),
    ),
    Mutant(
        "pods aren't fenced at first, and no capacity is reserved",
        "binds_of_a_killed_leader_come_late",
        "over-commit",
        (
            Edit(
                "Term.fence_off_all",
                "fenced_off: set[str] = set()",
                """
    return []
    fenced_off: set[str] = set()
""",
            ),
            Edit("App._schedule", "await scheduler.takeover.begin(not_fenced_off)", "pass"),
        ),
    ),
    Mutant(
        "pods that can't be fenced are bound",
        "pods_that_can_not_be_fenced",
        "fence",
        (
            Edit(
                "Term.__init__",
                "self._first_version = -1",
                """
    self._first_version = -1
    self._refused: set[str] = set()
""",
            ),
            Edit(
                "Term.fence_off",
                """
    if error.status not in (404, 409):
        logger.warning("pod %s could not be fenced off: %s; trying again", pod.key, error)
""",
                """
    if error.status not in (404, 409):
        logger.warning("pod %s could not be fenced off: %s; trying again", pod.key, error)
    self._refused.add(pod.uid)
""",
            ),
            Edit(
                "Term.older",
                "not is_newer(pod, self._first_version)",
                "not is_newer(pod, self._first_version) and pod.uid not in self._refused",
            ),
        ),
    ),
    Mutant(
        "no capacity is reserved for pods that can't be fenced",
        "binds_of_a_killed_leader_come_late",
        "over-commit",
        (Edit("App._schedule", "await scheduler.takeover.begin(not_fenced_off)", "pass"),),
    ),
    Mutant(
        "the binds don't say that the gang was whole",
        "killed_while_it_heals",
        "release",
        (Edit("Transaction.stamp", "bool(run) and self.was_whole", "False"),),
    ),
    Mutant(
        "the leader decides after its lease has expired",
        "leader_stands_still",
        "leader",
        (
            Edit("fenced", "left <= 0", "False"),
            Edit("fenced", "None if left == float('inf') else left", "None"),
        ),
    ),
    Mutant(
        "the time for finishing a gang that was cut off begins when the next leader starts",
        "fencing_received_late",
        "priority",
        (Edit("PartialBinds.observe", "self.of(gang.key).move(Event.INHERITED, now)", "pass"),),
    ),
)
