"""Mutants that break the guarantees of bound pods."""

from .mutant import Edit, Mutant

_ENDS_FIRST = Edit("before_search", "decision != Search() or partial.was_tried", "True")

MUTANTS = (
    Mutant(
        "no release",
        "refused",
        "forward",
        (Edit("undo", "releasable = [pod for pod in pods if is_releasable(pod)]", "return Undone(tuple(pods))"),),
    ),
    Mutant(
        "a running gang is released",
        "refused_while_it_runs",
        "release",
        (
            Edit(
                "undo",
                """
    if not even_running and any((pod.phase == 'Running' for pod in pods)):
        return Undone()
""",
                "even_running = True",
            ),
        ),
    ),
    Mutant(
        "a release names no version",
        "refused",
        "precondition",
        (Edit("Binder.release", "{'uid': pod.uid, 'resourceVersion': current['metadata']['resourceVersion']}", "{'uid': pod.uid}"),),
    ),
    Mutant(
        "partially bound gangs are released at once",
        "refused_for_a_while",
        "forward",
        (Edit("after_bind", "outcome.is_final", "outcome.failed"),),
    ),
    Mutant(
        "Jobs of a gang that was whole are suspended",
        "job_that_was_whole",
        "release",
        (Edit("_ending", "partial.is_kept_open and gang.undo is Undo.SUSPEND", "gang.undo is Undo.SUSPEND"),),
    ),
    Mutant(
        "Jobs are suspended for pods that were released already",
        "evicted_already",
        "release",
        (Edit("PartialBinds.release", "{pod.uid for pod in (*before, *undone.released)}", "{pod.uid for pod in undone.released}"),),
    ),
    Mutant(
        "a partially bound gang is neither finished nor released",
        "refused",
        "forward",
        (
            Edit(
                "Executor.after_bind",
                """
    self.partial_binds.add(gang)
    await self._release(attempt, decision)
""",
                "self._requeue(attempt, [Requeue.settled()])",
            ),
            Edit(
                "Executor.after_bind",
                """
    self.partial_binds.add(gang)
    self._requeue(attempt, requeues.of_finish(outcome))
""",
                "self._requeue(attempt, [Requeue.settled()])",
            ),
        ),
    ),
    Mutant(
        "bare pods are deleted",
        "bare_lost",
        "kept pod",
        (Edit("is_releasable", "pod.option('recreate') == 'true'", "True"),),
    ),
    Mutant(
        "pods of Jobs are deleted",
        "job_lost",
        "kept pod",
        (
            Edit("Binder.may_go", "not pod.is_of_job", "True"),
            Edit("Binder.release", "pod.is_of_job or even_running", "even_running"),
        ),
    ),
    Mutant(
        "Jobs stay suspended",
        "suspended",
        "lost",
        (Edit("JobRestarter._resume", "change = {'suspend': False} if job.is_suspended and (not job.manager) else {}", "return"),),
    ),
    Mutant(
        "no gang is healed",
        "members_lost",
        "unresolved",
        (Edit("_before_search", "not gang.candidates and (gang.is_whole or not gang.alive)", "bool(gang.bound)"),),
    ),
    Mutant(
        "healing has no backoff",
        "rejected_again_and_again",
        "storm",
        (Edit("Backoff.after", "min(self.longest, self.initial * 2 ** min(failures - 1, 30)) if failures else 0.0", "0.0"),),
    ),
    Mutant(
        "surplus members have no backoff",
        "surplus_rejected_again_and_again",
        "storm",
        (Edit("Losses.observe_bind", "min(lost, failed[name] - last.failed)", "0"),),
    ),
    Mutant(
        "an attempt to release a partially bound gang delays its finishing",
        "released_in_vain",
        "unresolved",
        (
            Edit(
                "Executor._release",
                "[Requeue.failed(retry_by=facts.now)] if undone.released else []",
                "[Requeue.failed(retry_by=facts.now)]",
            ),
            Edit(
                "PartialBinds.release",
                "partial.released_for, partial.no_victim_until = (None, clock() + NO_VICTIM_SECONDS)",
                "pass",
            ),
        ),
    ),
    Mutant(
        "a Job is resumed at once",
        "leaving_a_suspended_job",
        "release",
        (Edit("JobRestarter._restart", "await self._until_gone(found.pods)", ""),),
    ),
    Mutant(
        "a Job that another controller has suspended is resumed",
        "suspended_by_another",
        "stranger",
        (Edit("JobRestarter._resume", "job.is_suspended and (not job.manager)", "job.is_suspended"),),
    ),
    Mutant(
        "disruption budgets aren't checked",
        "guarded",
        "release",
        (
            Edit("JobRestarter._examine", "await self._check_budgets(owner, pod)", ""),
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
        "partially bound gangs are never released for others",
        "two_partially_bound_gangs",
        "unresolved",
        (Edit("Victims._needed_by", "blocking = self._blocking(gang)", "blocking: Sequence[Gang] = ()"),),
    ),
    Mutant(
        "a gang whose Jobs may be suspended is no longer attempted",
        "suspendable_without_jobs",
        "unresolved",
        (
            _ENDS_FIRST,
            Edit(
                "PartialBinds.pace",
                "partial.restarts_at, partial.was_tried = (self.gangs.clock() + gang.timeout_seconds, False)",
                "partial.was_tried = False",
            ),
        ),
    ),
    Mutant(
        "the status doesn't report that a gang is kept open",
        "kept_open",
        "unreported",
        (Edit("_conditions", "gang.is_partially_bound and (not opinion.is_being_bound)", "False"),),
    ),
    Mutant(
        "a Job is suspended without the label",
        "suspended",
        "journal",
        (Edit("JobRestarter._suspend", "{SUSPENDED: 'true'}", "{}"),),
    ),
    Mutant(
        "Jobs are suspended while their pods run",
        "job_that_runs_in_part",
        "release",
        (
            Edit(
                "JobRestarter._examine",
                """
    if pod.uid not in losable:
        raise JobKeptError(owner.name, f"can't be suspended while its pod {pod.name} runs")
    await self._check_budgets(owner, pod)
""",
                "",
            ),
        ),
    ),
    Mutant(
        "Jobs are suspended whose gang doesn't allow it",
        "job_lost",
        "release",
        (Edit("may_suspend", "gang.undo is Undo.SUSPEND and partial is not None and partial.has_timed_out(now)", "True"),),
    ),
    Mutant(
        "Jobs' pods are never released, although their Jobs don't count it",
        "forgiving_job_lost",
        "forward",
        (
            Edit(
                "Binder.may_go",
                "not pod.is_of_job or await self._retried(partial(ignores_disruption, self._server, pod))",
                "not pod.is_of_job",
            ),
            Edit("may_suspend", "gang.undo is Undo.SUSPEND and partial is not None and partial.has_timed_out(now)", "False"),
        ),
    ),
    Mutant(
        "Jobs' pods are deleted, not evicted",
        "forgiving_job_lost",
        "release",
        (Edit("Binder.release", "self._evict if pod.is_of_job or even_running else self._delete", "self._delete"),),
    ),
    Mutant(
        "released pods have no grace period",
        "refused",
        "release",
        (
            Edit(
                "Binder._delete",
                "{'apiVersion': 'v1', 'kind': 'DeleteOptions', 'preconditions': preconditions}",
                "{'apiVersion': 'v1', 'kind': 'DeleteOptions', 'gracePeriodSeconds': 0, 'preconditions': preconditions}",
            ),
        ),
    ),
    Mutant(
        "a gang whose PodGroup is deleted is evicted",
        "group_deleted",
        "release",
        (
            Edit(
                "DueGangs._attempt",
                "decision = before_search(gang, self.gangs.records.find_partial_bind(key), self.gangs.clock(), self._lost_soon(gang))",
                """
    decision = before_search(gang, self.gangs.records.find_partial_bind(key), self.gangs.clock(), self._lost_soon(gang))
    if self.gangs.registry.group(key) is None and gang.bound and (not gang.is_single):
        from allaboard.binding.reasons import NotReplaced
        from allaboard.scheduling.decide import Release
        decision = Release(gang.bound, NotReplaced(gang.missing, gang.timeout_seconds), force=True)
""",
            ),
        ),
    ),
    Mutant(
        "partially bound gangs are released also where that doesn't help",
        "too_large_to_release_others_for",
        "release",
        (
            Edit("Victims._needed_by", "not await fits_without(_bound_of(blocking))", "False"),
            Edit(
                "Victims._needed_by",
                """
    if await fits_without(_bound_of(rest)):
        needed = rest
""",
                "pass",
            ),
        ),
    ),
    Mutant(
        "finishing a partially bound gang has no deadline",
        "refused_for_long",
        "forward",
        (Edit("FORWARD_SECONDS", "5.0", "30.0"),),
    ),
    Mutant(
        "terminating members count as bound",
        "leaving_members",
        "quorum",
        (
            Edit(
                "Gang.bound",
                "(pod for pod in self.alive if pod.node_name)",
                "(pod for pod in self.members if pod.node_name and (not pod.is_terminal))",
            ),
            Edit("_Census.__init__", "pod.is_alive", "not pod.is_terminal"),
        ),
    ),
    Mutant(
        "a gang that is kept open isn't attempted again",
        "kept_open",
        "unresolved",
        (
            Edit(
                "Executor._release",
                "self._requeue(attempt, after)",
                "self._requeue(attempt, [each for each in after if each.seconds])",
            ),
        ),
    ),
    Mutant(
        "all members but one are released",
        "last_refused",
        "unresolved",
        (
            Edit(
                "undo",
                "releasable = [pod for pod in pods if is_releasable(pod)]",
                """
    releasable = [pod for pod in pods if is_releasable(pod)]
    releasable = releasable[:max(1, len(releasable) - 1)]
""",
            ),
        ),
    ),
    Mutant(
        "edits of a PodGroup are ignored",
        "minimum_lowered",
        "idle",
        (
            Edit(
                "GangRegistry.observe_group",
                "self._groups[group.key] = group",
                "self._groups[group.key] = replace(group, min_member=old.min_member) if old else group",
            ),
        ),
    ),
    Mutant(
        "a gang that asks to be released isn't healed",
        "given_up_in_vain",
        "unresolved",
        (
            _ENDS_FIRST,
            Edit("_ending", "partial.has_timed_out(now) and now >= partial.restarts_at", "partial.has_timed_out(now)"),
        ),
    ),
    Mutant(
        "gangs that ask to be released are kept",
        "given_up",
        "unresolved",
        (Edit("_ending", "not partial.is_finishing and gang.on_member_lost is OnMemberLost.RELEASE", "False"),),
    ),
    Mutant(
        "a raised minimum counts for a running gang",
        "minimum_raised_beyond_the_capacity",
        "release",
        (Edit("Gang.missing_of_stamped", "min(stamped, self.required)", "self.required"),),
    ),
)
