"""Mutants that break a promise in ways that a judge with a generous excuse would acquit."""

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
        "all half gangs yield where one is enough",
        "three_half_gangs",
        "release",
        (Edit("Victims._needed_by", "needed = blocking[:enough]", "return blocking"),),
    ),
    Mutant(
        "others yield although slots are about to be free",
        "leaving_half_gang",
        "release",
        (Edit("Victims.of", "chain(self._leaving(), pods)", "pods"),),
    ),
    Mutant(
        "a half gang yields though there has been room since",
        "room_while_it_was_looked",
        "release",
        (NO_LAST_LOOK,),
    ),
    Mutant(
        "a half gang yields though room has come while it was asked",
        "room_while_it_was_asked",
        "release",
        (
            NO_LAST_LOOK,
            Edit("Victims._needed_by", "return needed", "return () if await fits_without(()) else needed"),
        ),
    ),
    Mutant(
        "one that others have just made way for makes way itself",
        "served_half_gang",
        "release",
        (Edit("Victims._blocking", "key not in served", "True"),),
    ),
    Mutant(
        "half gangs yield to whoever is below them",
        "half_above_another",
        "release",
        (Edit("Victims._blocking", "other.priority <= gang.priority", "True"),),
    ),
    Mutant(
        "who has just made way has others make way",
        "leaving_half_gang",
        "release",
        (
            Edit("Victims._needed_by", "self._is_released_for_another(gang)", "False"),
            NO_LAST_LOOK,
        ),
    ),
    Mutant(
        "a Job is suspended for a gang that has long gone",
        "answered_too_late",
        "release",
        (Edit("JobRestarter._suspend", "not conditions.is_wanted()", "False"),),
    ),
    Mutant(
        "whether a Job is to be suspended isn't asked again when that is tried again",
        "suspended_too_late",
        "release",
        (Edit("JobRestarter._suspend", "conditions.is_wanted()", "was_tried or conditions.is_wanted()"),),
    ),
    Mutant(
        "half gangs make way beside a Job that keeps its pods",
        "half_gang_beside_a_job",
        "release",
        (Edit("Victims.of", "not await self._is_releasable(other)", "False"),),
    ),
    Mutant(
        "half gangs make way beside one that a budget keeps",
        "half_gang_beside_a_guarded_one",
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
        "whoever has only been asked to go counts as leaving",
        "asked_at_the_same_time",
        "release",
        (Edit("Victims.of", "chain(self._leaving(), pods)", "chain(self._leaving(), pods, _bound_of(self._in_release()))"),),
    ),
    Mutant(
        "half gangs make way beside one about which something is being done",
        "asked_while_it_is_busy",
        "release",
        (Edit("LongerSearches.release_victims", "victims if not busy else ()", "[each for each in victims if each.key not in busy]"),),
    ),
    Mutant(
        "who refused to yield isn't asked again",
        "refused_to_yield",
        "unresolved",
        (
            Edit("Executor._release", "undone.is_unfinished or not undone.released", "False"),
            Edit("PartialBind.times_for_others", "(self.no_victim_until, releasing, self.leaving.until, expires)", "(expires,)"),
        ),
    ),
    Mutant(
        "the time of a half gang begins anew with each look at it",
        "half_beside_a_small_one",
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
        "a gang's time begins while nobody of it is known to be bound",
        "bound_late_in_doubt",
        "release",
        (Edit("Executor.after_bind", "self.partial_binds.suspect(gang.key)", "self.partial_binds.add(gang)"),),
    ),
    Mutant(
        "a half gang's time is renewed by each attempt",
        "unanswered_for_long",
        "forward",
        (Edit("transition", "isinstance(state, Finishing | Left) and (not is_renewed)", "isinstance(state, Finishing | Left)"),),
    ),
    Mutant(
        "an error that tells nothing is taken for a refusal",
        "errors_for_answers",
        "double",
        (Edit("_Bind.sending", "400 <= error.status < 500", "error.status >= 400"),),
    ),
    Mutant(
        "a commit that fails as a whole is made again one by one",
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
        "a half gang is left as it is when its PodGroup goes",
        "half_without_a_group",
        "unresolved",
        (Edit("GangRegistry._hold", "group is None and (not 0 < len(alive) - len(waiting) < minimum)", "group is None"),),
    ),
    Mutant(
        "a promise that a tenant has forged is believed",
        "forged_promise",
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
        "a rehearsal is good for a minute",
        "evicted_soon",
        "rehearsal",
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
        "priorities are ignored, and the rehearsal is long over when members are bound",
        "priorities",
        "priority",
        (
            PAUSES,
            PRIORITY_IGNORED,
            Edit("Transaction._for_dry_run", "self.dry_run == 'none' or len(self.assignments) == 1", "self.dry_run == 'none'"),
            Edit(
                "Transaction.commit",
                "dry_runs = await self._bind(sample, dry_run=True)",
                """
    dry_runs = await self._bind(sample, dry_run=True)
    await asyncio.sleep(0.6)
""",
            ),
        ),
    ),
    Mutant(
        "whoever comes to a whole gang is never bound",
        "late_comers",
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
