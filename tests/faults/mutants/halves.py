"""Mutants that break a promise in ways that a judge with a generous excuse would acquit."""

from .mutant import PAUSES, Edit, Mutant
from .turns import PRIORITY_IGNORED

NO_LAST_LOOK = Edit(
    "scheduling/yielding.py",
    "                if needed and await fits_without(()):\n                    return ()\n",
    "",
)

MUTANTS = (
    Mutant(
        "all half gangs yield where one is enough",
        "three_half_gangs",
        "release",
        (
            Edit(
                "scheduling/yielding.py",
                "        needed = blocking[:enough]\n",
                "        return blocking\n",
            ),
        ),
    ),
    Mutant(
        "others yield although seats are about to be free",
        "leaving_half_gang",
        "release",
        (
            Edit(
                "scheduling/yielding.py",
                "for pod in chain(self._leaving(), pods)}",
                "for pod in pods}",
            ),
        ),
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
            Edit("scheduling/yielding.py", "        return needed\n", "        return () if await fits_without(()) else needed\n"),
        ),
    ),
    Mutant(
        "one that others have just made way for makes way itself",
        "served_half_gang",
        "release",
        (Edit("scheduling/yielding.py", " and key not in served\n", "\n"),),
    ),
    Mutant(
        "half gangs yield to whoever is below them",
        "half_above_another",
        "release",
        (Edit("scheduling/yielding.py", "else other.priority <= gang.priority)", "else True)"),),
    ),
    Mutant(
        "who has just made way has others make way",
        "leaving_half_gang",
        "release",
        (
            Edit(
                "scheduling/yielding.py",
                "if not blocking or self._makes_way(gang) or",
                "if not blocking or",
            ),
            NO_LAST_LOOK,
        ),
    ),
    Mutant(
        "a Job is suspended for a gang that has long gone",
        "answered_too_late",
        "release",
        (Edit("binding/job_suspension.py", "if not asked.is_wanted():", "if False:"),),
    ),
    Mutant(
        "whether a Job is to be suspended isn't asked again when that is tried again",
        "suspended_too_late",
        "release",
        (Edit("binding/job_suspension.py", "if not asked.is_wanted():", "if not (was_tried or asked.is_wanted()):"),),
    ),
    Mutant(
        "half gangs make way beside a Job that keeps its pods",
        "half_gang_beside_a_job",
        "release",
        (Edit("scheduling/yielding.py", "for other in needed if not await self._may_go(other)]", "for other in needed if False]"),),
    ),
    Mutant(
        "half gangs make way beside one that a budget keeps",
        "half_gang_beside_a_guarded_one",
        "release",
        (
            Edit(
                "binding/bind.py",
                "            if error.status in (403, 429):\n                return False\n",
                "            if error.status in (403, 429):\n                return True\n",
            ),
        ),
    ),
    Mutant(
        "whoever has only been asked to go counts as leaving",
        "asked_at_the_same_time",
        "release",
        (
            Edit(
                "scheduling/yielding.py",
                "chain(self._leaving(), pods)}",
                "chain(self._leaving(), pods, _bound_of(self._asked_now()))}",
            ),
        ),
    ),
    Mutant(
        "half gangs make way beside one about which something is being done",
        "asked_while_it_is_busy",
        "release",
        (
            Edit(
                "scheduling/act.py",
                "        for other in yielding if not busy else ():\n",
                "        for other in [each for each in yielding if each.key not in busy]:\n",
            ),
        ),
    ),
    Mutant(
        "who refused to yield isn't asked again",
        "refused_to_yield",
        "unresolved",
        (
            Edit(
                "scheduling/opengangs.py",
                ("        if undone.is_unfinished or not undone.released:\n            self.queue.retry(other.key"),
                ("        if False:\n            self.queue.retry(other.key"),
            ),
            Edit("scheduling/opengangs.py", "times += [half.unasked_until, half.asked_until, half.released_until]", "times += []"),
        ),
    ),
    Mutant(
        "the time of a half gang begins anew with each look at it",
        "half_beside_a_small_one",
        "unresolved",
        (
            Edit(
                "scheduling/opengangs.py",
                "gang.owed:\n            self._times_out(gang, self.docket.half(gang.key))\n",
                "gang.owed:\n            self.docket.half(gang.key).expires = self.clock() + gang.timeout_seconds\n",
            ),
        ),
    ),
    Mutant(
        "a gang's time begins while nobody of it is known to be bound",
        "bound_late_in_doubt",
        "release",
        (Edit("scheduling/outcomes.py", "self.open_gangs.suspect(gang)", "self.open_gangs.add(gang)"),),
    ),
    Mutant(
        "a half gang's time is renewed by each attempt",
        "unanswered_for_long",
        "forward",
        (
            Edit(
                "scheduling/opengangs.py",
                "if half is not None and half.deadline is not None and not half.is_renewed:",
                "if half is not None and half.deadline is not None:",
            ),
        ),
    ),
    Mutant(
        "an error that tells nothing is taken for a refusal",
        "errors_for_answers",
        "double",
        (
            Edit(
                "binding/bind.py",
                "if 400 <= error.status < 500 and error.status != 408:",
                "if error.status >= 400 and error.status != 408:",
            ),
        ),
    ),
    Mutant(
        "a commit that fails as a whole is made again one by one",
        "too_many_requests",
        "quorum",
        (
            PAUSES,
            Edit(
                "binding/transaction.py",
                "            replies = await self._bind(seats)\n",
                (
                    "            replies = await self._bind(seats)\n"
                    "            if len(seats) > 1 and not any(reply.is_bound or reply.in_doubt for _, reply in replies):\n"
                    "                replies = []\n"
                    "                for seat in seats:\n"
                    "                    replies += await self._bind([seat])\n"
                    "                    await asyncio.sleep(1.5)\n"
                ),
            ),
        ),
    ),
    Mutant(
        "a half gang is left as it is when its PodGroup goes",
        "half_without_a_group",
        "unresolved",
        (
            Edit(
                "gangs/registry.py",
                "        if group is None and not 0 < len(alive) - len(waiting) < minimum:\n",
                "        if group is None:\n",
            ),
        ),
    ),
    Mutant(
        "a promise that a tenant has forged is believed",
        "forged_promise",
        "release",
        (
            Edit(
                "model/gang.py",
                "        return max(0, self.min_member - max(self.succeeded, self.gone))\n",
                (
                    "        promised = max((pod.promise for pod in self.bound), default=0)\n"
                    "        return max(0, max(self.min_member, promised) - max(self.succeeded, self.gone))\n"
                ),
            ),
            Edit(
                "model/gang.py",
                "        owed = max(0, min(promised, self.required) - self.succeeded - len(self.bound))\n",
                "        owed = max(0, promised - self.succeeded - len(self.bound))\n",
            ),
            Edit(
                "scheduling/past.py",
                "<= len(gang.alive) + gang.succeeded and not _says_whole(gang, group)",
                "and not _says_whole(gang, group)",
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
                "binding/transaction.py",
                "        return self.seats if self._tries_all else list({_template(seat.pod): seat for seat in self.seats}.values())\n",
                (
                    "        now = asyncio.get_running_loop().time()\n"
                    "        seats = self.seats if self._tries_all else {_template(seat.pod): seat for seat in self.seats}.values()\n"
                    "        kinds = {(id(self.view), self.gang.key, _template(seat.pod)): seat for seat in seats}\n"
                    "        old = [kind for kind in kinds if now - _TRIED.get(kind, -60.0) < 60.0]\n"
                    "        _TRIED.update(dict.fromkeys(kinds.keys() - set(old), now))\n"
                    "        return [seat for kind, seat in kinds.items() if kind not in old]\n"
                ),
            ),
            Edit(
                "binding/transaction.py",
                "DryRun = Literal[",
                "_TRIED: dict[object, float] = {}\nDryRun = Literal[",
            ),
        ),
    ),
    Mutant(
        "priorities are ignored, and the rehearsal is long over when members are bound",
        "priorities",
        "priority",
        (
            PAUSES,
            PRIORITY_IGNORED,
            Edit(
                "binding/transaction.py",
                '        if self.dry_run == "none" or len(self.seats) == 1:\n',
                '        if self.dry_run == "none":\n',
            ),
            Edit(
                "binding/transaction.py",
                "            refusals = [(seat, reply) for seat, reply in rehearsal if not reply.is_bound]\n",
                (
                    "            await asyncio.sleep(0.6)\n"
                    "            refusals = [(seat, reply) for seat, reply in rehearsal if not reply.is_bound]\n"
                ),
            ),
        ),
    ),
    Mutant(
        "whoever comes to a whole gang is never bound",
        "late_comers",
        "idle",
        (
            Edit(
                "scheduling/decide.py",
                "    if not gang.candidates and (gang.is_whole or not gang.alive):\n",
                "    if (gang.bound and gang.is_whole) or (not gang.candidates and not gang.alive):\n",
            ),
        ),
    ),
)
