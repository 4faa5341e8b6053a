"""Mutants that break guarantees of partially bound gangs, and that a judge with too generous excuses would acquit."""

from .mutant import PAUSES, Edit, Mutant
from .turns import PRIORITY_IGNORED

NO_LAST_LOOK = Edit(
    "Victims.of",
    """
    if needed and await fits_without(()):
        return ()
""",
    "",
)

MUTANTS = (
    Mutant(
        "all partially bound gangs are released where one is enough",
        "three_partially_bound_gangs",
        "release",
        (Edit("Victims._needed_by", "needed = blocking[:enough]", "return blocking"),),
    ),
    Mutant(
        "other gangs are released although capacity is about to be free",
        "released_gang_that_terminates_slowly",
        "release",
        (Edit("Victims.of", "chain(self._leaving(), pods)", "pods"),),
    ),
    Mutant(
        "a partially bound gang is released although capacity was freed since",
        "capacity_freed_while_victims_are_chosen",
        "release",
        (NO_LAST_LOOK,),
    ),
    Mutant(
        "a partially bound gang is released although capacity was freed during the check",
        "capacity_freed_while_an_eviction_is_checked",
        "release",
        (
            NO_LAST_LOOK,
            Edit("Victims._needed_by", "return needed", "return () if await fits_without(()) else needed"),
        ),
    ),
    Mutant(
        "a gang is released for which others have just been released",
        "released_for_one_that_can_not_be",
        "release",
        (Edit("Victims._blocking", "key not in served", "True"),),
    ),
    Mutant(
        "partially bound gangs are released for gangs of a lower priority",
        "partially_bound_gang_of_a_higher_priority",
        "release",
        (Edit("Victims._blocking", "other.priority <= gang.priority", "True"),),
    ),
    Mutant(
        "other gangs are released for a gang that has just been released",
        "released_gang_that_terminates_slowly",
        "release",
        (
            Edit("Victims._needed_by", "self._is_released_for_another(gang)", "False"),
            NO_LAST_LOOK,
        ),
    ),
    Mutant(
        "a Job is suspended for a gang that no longer waits",
        "release_delayed_by_a_slow_read",
        "release",
        (Edit("JobRestarter._suspend", "not conditions.is_wanted()", "False"),),
    ),
    Mutant(
        "a repeated suspension isn't checked again",
        "release_delayed_by_a_failed_suspension",
        "release",
        (Edit("JobRestarter._suspend", "conditions.is_wanted()", "was_tried or conditions.is_wanted()"),),
    ),
    Mutant(
        "partially bound gangs are released together with a Job that keeps its pods",
        "partially_bound_gang_beside_a_job",
        "release",
        (Edit("Victims.of", "not await self._is_releasable(other)", "False"),),
    ),
    Mutant(
        "partially bound gangs are released together with one that a budget keeps",
        "partially_bound_gang_beside_a_guarded_one",
        "release",
        (
            Edit(
                "Binder.would_go",
                """
    if error.status in (403, 429):
        return False
""",
                """
    if error.status in (403, 429):
        return True
""",
            ),
        ),
    ),
    Mutant(
        "a gang whose release is in progress counts as released",
        "needed_while_a_job_is_released",
        "release",
        (Edit("Victims.of", "chain(self._leaving(), pods)", "chain(self._leaving(), pods, _bound_of(self._in_release()))"),),
    ),
    Mutant(
        "partially bound gangs are released beside one whose release is in progress",
        "needed_while_a_job_is_released_for_long",
        "release",
        (Edit("LongerSearches.release_victims", "victims if not busy else ()", "[each for each in victims if each.key not in busy]"),),
    ),
    Mutant(
        "a gang that couldn't be released isn't tried again",
        "release_refused",
        "unresolved",
        (
            Edit("Executor._release", "undone.is_unfinished or not undone.released", "False"),
            Edit("PartialBind.times_for_others", "(self.no_victim_until, releasing, self.leaving.until, expires)", "(expires,)"),
        ),
    ),
    Mutant(
        "the time-out of a partially bound gang begins again with each attempt",
        "partially_bound_gang_beside_a_small_one",
        "unresolved",
        (
            Edit(
                "PartialBinds.observe",
                "self._start_timeout(gang)",
                "self.of(gang.key).expires = self.gangs.clock() + gang.timeout_seconds",
            ),
        ),
    ),
    Mutant(
        "a gang's time-out begins before a bound member is known",
        "bound_late_in_doubt",
        "release",
        (Edit("Executor.after_bind", "self.partial_binds.suspect(gang.key)", "self.partial_binds.add(gang)"),),
    ),
    Mutant(
        "the time for finishing a partially bound gang is extended by each attempt",
        "unanswered_for_long",
        "forward",
        (Edit("transition", "isinstance(state, Finishing | Left) and (not is_renewed)", "isinstance(state, Finishing | Left)"),),
    ),
    Mutant(
        "an error without a definite answer counts as a refusal",
        "errors_for_answers",
        "double",
        (Edit("_Bind.sending", "400 <= error.status < 500", "error.status >= 400"),),
    ),
    Mutant(
        "the binds of a commit that failed are repeated one by one",
        "too_many_requests",
        "quorum",
        (
            PAUSES,
            Edit(
                "Transaction.commit",
                "replies = await self._bind(assignments)",
                """
    replies = await self._bind(assignments)
    if len(assignments) > 1 and (not any((reply.is_bound or reply.in_doubt for _, reply in replies))):
        replies = []
        for assignment in assignments:
            replies += await self._bind([assignment])
            await asyncio.sleep(1.5)
""",
            ),
        ),
    ),
    Mutant(
        "a partially bound gang isn't finished when its PodGroup is deleted",
        "partially_bound_gang_without_a_group",
        "unresolved",
        (Edit("GangRegistry._hold", "group is None and (not 0 < len(alive) - len(waiting) < minimum)", "group is None"),),
    ),
    Mutant(
        "a forged stamp counts",
        "forged_stamp",
        "release",
        (
            Edit(
                "Gang.quorum",
                "return max(0, self.min_member - max(self.succeeded, self.gone))",
                """
    stamped = max((pod.stamped_min_member for pod in self.bound), default=0)
    return max(0, max(self.min_member, stamped) - max(self.succeeded, self.gone))
""",
            ),
            Edit("Gang.missing_of_stamped", "min(stamped, self.required)", "stamped"),
            Edit(
                "was_cut_off",
                "len(members) + replaced < stamped_min_member <= len(gang.alive) + gang.succeeded",
                "len(members) + replaced < stamped_min_member",
            ),
        ),
    ),
    Mutant(
        "a dry run counts for a minute",
        "evicted_soon",
        "dry run",
        (
            PAUSES,
            Edit(
                "Transaction._for_dry_run",
                """
    if self._dry_runs_all:
        return self.assignments
    return list({_template(assignment.pod): assignment for assignment in self.assignments}.values())
""",
                """
    now = asyncio.get_running_loop().time()
    assignments = self.assignments
    if not self._dry_runs_all:
        assignments = {_template(assignment.pod): assignment for assignment in self.assignments}.values()
    kinds = {(id(self.view), self.gang.key, _template(assignment.pod)): assignment for assignment in assignments}
    old = [kind for kind in kinds if now - _TRIED.get(kind, -60.0) < 60.0]
    _TRIED.update(dict.fromkeys(kinds.keys() - set(old), now))
    return [assignment for kind, assignment in kinds.items() if kind not in old]
""",
            ),
            Edit("transaction:logger", "logger = logging.getLogger(__name__)", "logger = logging.getLogger(__name__)\n_TRIED = {}"),
        ),
    ),
    Mutant(
        "priorities are ignored, and binds come long after the dry run",
        "priorities",
        "priority",
        (
            PAUSES,
            PRIORITY_IGNORED,
            Edit("Transaction._for_dry_run", "len(self.assignments) == 1", "False"),
            Edit(
                "Transaction._dry_run",
                "dry_runs = await self._bind(sample, dry_run=True)",
                """
    dry_runs = await self._bind(sample, dry_run=True)
    await asyncio.sleep(0.6)
""",
            ),
        ),
    ),
    Mutant(
        "surplus members of a whole gang are never bound",
        "surplus_bound_later",
        "idle",
        (
            Edit(
                "_before_search",
                "not gang.candidates and (gang.is_whole or not gang.alive)",
                "gang.bound and gang.is_whole or (not gang.candidates and (not gang.alive))",
            ),
        ),
    ),
)
