"""Mutants that break what is promised to those who are bound."""

from .mutant import Edit, Mutant

_ENDS_FIRST = Edit(
    "scheduling/decide.py",
    "    if half is not None and (look is not Look.PLACE or half.was_tried) and (ending",
    "    if half is not None and (ending",
)

MUTANTS = (
    Mutant(
        "undo removed",
        "refused",
        "forward",
        (
            Edit(
                "binding/transaction.py",
                "    releasable = [pod for pod in pods if is_releasable(pod)]\n",
                "    return Undone(tuple(pods))\n",
            ),
        ),
    ),
    Mutant(
        "undo of a running gang",
        "refused_while_it_runs",
        "release",
        (
            Edit(
                "binding/transaction.py",
                ('    if not even_running and any(pod.phase == "Running" for pod in pods):\n        return Undone()\n'),
                "    even_running = True\n",
            ),
        ),
    ),
    Mutant(
        "a release names no version",
        "refused",
        "precondition",
        (
            Edit(
                "binding/bind.py",
                'preconditions = {"uid": pod.uid, "resourceVersion": current["metadata"]["resourceVersion"]}',
                'preconditions = {"uid": pod.uid}',
            ),
        ),
    ),
    Mutant(
        "finishing forward removed: undone at once",
        "refused_for_a_while",
        "forward",
        (
            Edit(
                "scheduling/decide.py",
                "return Reply.UNDO if outcome.is_final else",
                "return Reply.UNDO if outcome.failed else",
            ),
        ),
    ),
    Mutant(
        "Jobs are suspended whose gang was whole",
        "job_that_was_whole",
        "release",
        (
            Edit(
                "scheduling/decide.py",
                "return Found.RESTART_JOBS if half.is_kept_open and gang.undo",
                "return Found.RESTART_JOBS if gang.undo",
            ),
        ),
    ),
    Mutant(
        "Jobs are suspended for pods that were released already",
        "evicted_already",
        "release",
        (
            Edit(
                "scheduling/opengangs.py",
                "for pod in (*before, *undone.released)}\n                kept",
                "for pod in undone.released}\n                kept",
            ),
        ),
    ),
    Mutant(
        "a half gang is left as it is",
        "refused",
        "forward",
        (
            Edit(
                "scheduling/outcomes.py",
                "        elif reply is Reply.FINISH:\n",
                "        elif reply in (Reply.FINISH, Reply.UNDO):\n            self.queue.settle(gang.key)\n        elif False:\n",
            ),
        ),
    ),
    Mutant(
        "bare pods are deleted",
        "bare_lost",
        "kept pod",
        (
            Edit(
                "binding/transaction.py",
                '        return pod.option("recreate") == "true"\n',
                "        return True\n",
            ),
        ),
    ),
    Mutant(
        "pods of Jobs are deleted",
        "job_lost",
        "kept pod",
        (
            Edit(
                "binding/bind.py",
                "        return not pod.is_of_job or",
                "        return True or",
            ),
            Edit(
                "binding/bind.py",
                "send = self._evict if pod.is_of_job or even_running",
                "send = self._evict if even_running",
            ),
        ),
    ),
    Mutant(
        "Jobs stay suspended",
        "suspended",
        "lost",
        (
            Edit(
                "binding/job_suspension.py",
                '            change = {"suspend": False} if job.is_suspended and not job.manager else {}\n',
                "            return\n",
            ),
        ),
    ),
    Mutant(
        "nobody heals",
        "members_lost",
        "unresolved",
        (
            Edit(
                "scheduling/decide.py",
                "    if not gang.candidates and (gang.is_whole or not gang.alive):\n",
                "    if gang.bound and not (half and half.is_finishing):\n",
            ),
        ),
    ),
    Mutant(
        "healing knows no pause",
        "rejected_again_and_again",
        "storm",
        (
            Edit(
                "scheduling/queue.py",
                "        return min(longest, first * 2 ** min(times - 1, 30)) if times else 0.0\n",
                "        return 0.0\n",
            ),
        ),
    ),
    Mutant(
        "surplus knows no pause",
        "surplus_rejected_again_and_again",
        "storm",
        (
            Edit(
                "scheduling/losses.py",
                "lost = lost if gang.missing else min(lost, failed[name] - last.failed)",
                "lost = lost if gang.missing else 0",
            ),
        ),
    ),
    Mutant(
        "asking for the seats of a half gang costs it its turn",
        "asked_for_its_seats_in_vain",
        "unresolved",
        (
            Edit(
                "scheduling/opengangs.py",
                "        if undone.released:\n            self.queue.fail",
                "        if True:\n            self.queue.fail",
            ),
        ),
    ),
    Mutant(
        "a Job is resumed at once",
        "leaving_a_suspended_job",
        "release",
        (
            Edit(
                "binding/job_suspension.py",
                "            await self._until_gone(found.pods)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "a Job that another has suspended is resumed",
        "suspended_by_another",
        "stranger",
        (
            Edit(
                "binding/job_suspension.py",
                "if job.is_suspended and not job.manager else",
                "if job.is_suspended else",
            ),
        ),
    ),
    Mutant(
        "disruption budgets aren't asked",
        "guarded",
        "release",
        (
            Edit(
                "binding/job_suspension.py",
                "                await self._ask_budgets(owner, pod)\n",
                "",
            ),
            Edit(
                "binding/bind.py",
                "            if error.status in (403, 429):\n                return False\n",
                "            if error.status in (403, 429):\n                return True\n",
            ),
        ),
    ),
    Mutant(
        "half gangs never yield",
        "half_gangs",
        "unresolved",
        (
            Edit(
                "scheduling/yielding.py",
                "        blocking = self._in_the_way(gang)\n",
                "        blocking: Sequence[Gang] = ()\n",
            ),
        ),
    ),
    Mutant(
        "who may be suspended isn't looked for seats any more",
        "would_be_suspended",
        "unresolved",
        (
            _ENDS_FIRST,
            Edit(
                "scheduling/opengangs.py",
                "        half.restarts_at, half.was_tried = self.clock() + gang.timeout_seconds, False\n",
                "        half.was_tried = False\n",
            ),
        ),
    ),
    Mutant(
        "it isn't said that a gang is kept open",
        "kept_open",
        "untold",
        (
            Edit(
                "report/status.py",
                "    partial = gang.is_open and not opinion.is_being_bound\n",
                "    partial = False\n",
            ),
        ),
    ),
    Mutant(
        "a Job is suspended, and doesn't say by whom",
        "suspended",
        "journal",
        (
            Edit(
                "binding/job_suspension.py",
                '{SUSPENDED: "true"}, {"suspend": True}',
                '{}, {"suspend": True}',
            ),
        ),
    ),
    Mutant(
        "Jobs are suspended while their pods run",
        "job_half_runs",
        "release",
        (
            Edit(
                "binding/job_suspension.py",
                (
                    "                if pod.uid not in losable:\n"
                    "                    raise JobKeptError(owner.name, f\"can't be suspended while its pod {pod.name} "
                    'runs")\n'
                    "                await self._ask_budgets(owner, pod)\n"
                ),
                "                pass\n",
            ),
        ),
    ),
    Mutant(
        "Jobs are suspended that haven't asked for it",
        "job_lost",
        "release",
        (
            Edit(
                "scheduling/yielding.py",
                "return gang.undo is Undo.SUSPEND and half is not None and half.has_timed_out(now)",
                "return True",
            ),
        ),
    ),
    Mutant(
        "Jobs' pods are never undone, though their Jobs forgive it",
        "forgiving_job_lost",
        "forward",
        (
            Edit(
                "binding/bind.py",
                "        return not pod.is_of_job or await self._retried(partial(ignores_disruption, self._server, pod))\n",
                "        return not pod.is_of_job\n",
            ),
            Edit(
                "scheduling/yielding.py",
                "return gang.undo is Undo.SUSPEND and half is not None and half.has_timed_out(now)",
                "return False",
            ),
        ),
    ),
    Mutant(
        "Jobs' pods are deleted, not evicted",
        "forgiving_job_lost",
        "release",
        (
            Edit(
                "binding/bind.py",
                "send = self._evict if pod.is_of_job or even_running else self._delete",
                "send = self._delete",
            ),
        ),
    ),
    Mutant(
        "whoever is released has no time to end",
        "refused",
        "release",
        (
            Edit(
                "binding/bind.py",
                '"kind": "DeleteOptions", "preconditions": preconditions}',
                '"kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": preconditions}',
            ),
        ),
    ),
    Mutant(
        "a gang whose PodGroup is deleted is evicted",
        "group_deleted",
        "release",
        (
            Edit(
                "scheduling/cycle.py",
                "        look = at_look(",
                (
                    "        if self.registry.group(key) is None and gang.bound and not gang.is_single:\n"
                    "            self._under_way.start(key, self._open.give_up(gang))\n"
                    "            return None\n"
                    "        look = at_look("
                ),
            ),
        ),
    ),
    Mutant(
        "half gangs yield whether that helps or not",
        "too_large_to_yield_to",
        "release",
        (
            Edit(
                "scheduling/yielding.py",
                "        if not await fits_without(_bound_of(blocking)):\n",
                "        if False:\n",
            ),
            Edit(
                "scheduling/yielding.py",
                ("            if await fits_without(_bound_of(rest)):\n                needed = rest\n"),
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "finishing forward takes as long as it likes",
        "refused_for_long",
        "forward",
        (
            Edit(
                "scheduling/opengangs.py",
                "FORWARD_SECONDS = 5.0",
                "FORWARD_SECONDS = 30.0",
            ),
        ),
    ),
    Mutant(
        "members that are leaving count as bound",
        "leaving_members",
        "quorum",
        (
            Edit(
                "model/gang.py",
                "        return tuple(pod for pod in self.alive if pod.node_name)\n",
                "        return tuple(pod for pod in self.members if pod.node_name and not pod.is_terminal)\n",
            ),
            Edit(
                "gangs/runs.py",
                "            is_alive = pod.is_alive\n",
                "            is_alive = not pod.is_terminal\n",
            ),
        ),
    ),
    Mutant(
        "who is kept open isn't looked at again",
        "kept_open",
        "unresolved",
        (
            Edit(
                "scheduling/opengangs.py",
                "            self.queue.fail(gang.key, ANYTHING, seen=self.queue.changes, retry_by=self.clock(), at_least=at_least)\n",
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "all but one are released",
        "last_refused",
        "unresolved",
        (
            Edit(
                "binding/transaction.py",
                "    release = partial(binder.release, even_running=even_running)\n",
                (
                    "    releasable = releasable[: max(1, len(releasable) - 1)]\n"
                    "    release = partial(binder.release, even_running=even_running)\n"
                ),
            ),
        ),
    ),
    Mutant(
        "edits of a PodGroup are ignored",
        "minimum_lowered",
        "idle",
        (
            Edit(
                "gangs/registry.py",
                "        self._groups[group.key] = group\n",
                "        self._groups[group.key] = replace(group, min_member=old.min_member) if old else group\n",
            ),
        ),
    ),
    Mutant(
        "who gives up does nothing else",
        "given_up_in_vain",
        "unresolved",
        (
            _ENDS_FIRST,
            Edit(
                "scheduling/decide.py",
                "    if not (half.has_timed_out(now) and now >= half.restarts_at):\n",
                "    if not half.has_timed_out(now):\n",
            ),
        ),
    ),
    Mutant(
        "nobody gives up",
        "given_up",
        "unresolved",
        (
            Edit(
                "scheduling/decide.py",
                "    if not half.is_finishing and gang.on_member_lost is OnMemberLost.RELEASE:\n",
                "    if False:\n",
            ),
        ),
    ),
    Mutant(
        "a raised minimum is owed to those that run",
        "raised_minimum",
        "release",
        (Edit("model/gang.py", "max(0, min(promised, self.required) - self.succeeded", "max(0, self.required - self.succeeded"),),
    ),
)
