"""Mutants that break the guarantees of a commit."""

from .mutant import PAUSES, Edit, Mutant

MUTANTS = (
    Mutant(
        "no gang scheduling: each pod that fits is bound",
        "no_capacity",
        "quorum",
        (
            Edit(
                "Planner._problem",
                "problem_of(gang, gang.least, snapshot, self._filters, self.packings.of(gang))",
                "problem_of(gang, 1, snapshot, self._filters, self.packings.of(gang))",
            ),
            Edit(
                "checked",
                "not assignments or gang.missing_once_bound({assignment.pod.uid for assignment in assignments})",
                "not assignments",
            ),
        ),
    ),
    Mutant(
        "half of the quorum is bound first",
        "no_faults",
        "quorum",
        (
            PAUSES,
            Edit(
                "Transaction.commit",
                "replies = await self._bind(assignments)",
                """
    half = len(assignments) // 2
    replies = await self._bind(assignments[half:])
    await asyncio.sleep(1)
    replies += await self._bind(assignments[:half])
""",
            ),
        ),
    ),
    Mutant(
        "no version is named",
        "no_faults",
        "precondition",
        (Edit("Binder._post", "bind.version", "None"),),
    ),
    Mutant(
        "no UID is named",
        "no_faults",
        "precondition",
        (Edit("Binder._post", "pod.uid", "None"),),
    ),
    Mutant(
        "verification removed",
        "filled_while_searching",
        "node",
        (
            Edit(
                "checked",
                """
    if violations:
        return Refused(violations[0])
""",
                """
    if False:
        return Refused(violations[0])
""",
            ),
            Edit("Binder._post", "bind.check()", "None"),
        ),
    ),
    Mutant(
        "taints and cordons are ignored",
        "node_cordoned_before",
        "node",
        (
            Edit("node_from", "boolean(spec, 'unschedulable', 'spec.')", "False"),
            Edit("node_from", "'taints'", "'none'"),
        ),
    ),
    Mutant(
        "a bind whose answer is lost counts as failed",
        "refused_after_a_lost_answer",
        "release",
        (
            Edit("Binder._after_failure", "otherwise.result is Result.SPOILT and (not bind.is_in_doubt)", "True"),
            Edit("Binder.bind", "bind.is_in_doubt and (not certain)", "False"),
        ),
    ),
    Mutant(
        "the next wave starts in part",
        "second_wave",
        "quorum",
        (Edit("_Census._assign", "is_first or pod.created < run.began", "True"),),
    ),
    Mutant(
        "Retry-After is obeyed without a limit, with the capacity assumed",
        "long_retry_after",
        "idle",
        (
            Edit(
                "Binder._bind",
                "retried(partial(self._post, bind), attempts, self._sleep, patience=patience, turn=turn)",
                "retried(partial(self._post, bind), attempts, self._sleep, turn=turn)",
            ),
            Edit("retry:_seconds", "min(asked, LONGEST_SECONDS)", "asked"),
        ),
    ),
    Mutant(
        "members that join bound ones are bound without a dry run",
        "denied_beside_bound",
        "dry run",
        (
            Edit(
                "Transaction._for_dry_run",
                "len(self.assignments) == 1",
                "(len(self.assignments) == 1 or (self._dry_runs_all and self.gang.bound))",
            ),
        ),
    ),
    Mutant(
        "a repeated bind isn't checked against current capacity",
        "filled_between_tries",
        "node",
        (Edit("spoilt", "found[0] if found else None", "None"),),
    ),
    Mutant(
        "a gang that is held since its dry run is bound",
        "group_deleted_in_dry_run",
        "journal",
        (Edit("Transaction._rechecked", "gang is None or gang.hold", "gang is None"),),
    ),
    Mutant(
        "no check after the dry run",
        "node_lost_in_dry_run",
        "quorum",
        (
            Edit(
                "Transaction.commit",
                """
    if sample or volumes is not None:
        rechecked = self._rechecked(assignments)
        if isinstance(rechecked, Refused):
            return replace(rechecked, retry_after=_pause_after(refusals))
        assignments = rechecked
""",
                """
    if not assignments:
        rechecked = self._rechecked(assignments)
        if isinstance(rechecked, Refused):
            return replace(rechecked, retry_after=_pause_after(refusals))
        assignments = rechecked
""",
            ),
        ),
    ),
    Mutant(
        "members that are gone since the dry run are bound with the others",
        "member_lost_in_dry_run",
        "candidate",
        (Edit("Transaction._rechecked", "gang = self.current_gang()", "gang: Gang | None = self.gang"),),
    ),
    Mutant(
        "a refused gang is attempted again at once",
        "refused_at_every_bind",
        "storm",
        (Edit("GangQueue._back_off", "self._backoff.longest", "1.0"),),
    ),
    Mutant(
        "no check before a bind is repeated",
        "node_lost_between_tries",
        "node",
        (Edit("Binder._post", "bind.check()", "None"),),
    ),
    Mutant(
        "all go to one node",
        "no_faults_spread",
        "idle",
        (
            Edit(
                "checked",
                "[Assignment(pods[uid], node_name) for uid, node_name in node_names.items() if uid in pods]",
                "[Assignment(pods[uid], min(node_names.values())) for uid in node_names if uid in pods]",
            ),
        ),
    ),
    Mutant(
        "node selectors are ignored",
        "pools",
        "node",
        (Edit("_node_selector", "tuple(sorted(labels(spec, 'nodeSelector', 'spec.', SELECTORS).items()))", "()"),),
    ),
    Mutant(
        "the capacity of an unanswered bind is free at once, and the pod sent elsewhere",
        "unanswered",
        "double",
        (Edit("Binder.bind", "replace(reply, in_doubt=bind.version) if bind.is_in_doubt and (not certain) else reply", "reply"),),
    ),
    Mutant(
        "stale view: later events of nodes are ignored",
        "node_cordoned_before",
        "node",
        (Edit("ClusterView.upsert_node", "old == node", "old is not None"),),
    ),
    Mutant(
        "pods of other schedulers take no capacity",
        "capacity_taken_by_another_scheduler",
        "node",
        (
            Edit(
                "ClusterView._charge_of",
                "pod.node_name if pod.is_bound else self._assumed.get(pod.uid)",
                "pod.node_name if pod.is_bound and pod.scheduler_name == 'allaboard' else self._assumed.get(pod.uid)",
            ),
        ),
    ),
    Mutant(
        "terminating pods take no capacity",
        "leaving",
        "node",
        (
            Edit(
                "Pod.is_bound",
                "bool(self.node_name) and (not self.is_terminal)",
                "bool(self.node_name) and (not self.is_terminal) and (not self.is_terminating)",
            ),
        ),
    ),
    Mutant(
        "slots leak when a commit is refused",
        "long_retry_after",
        "idle",
        (
            Edit(
                "Transaction.commit",
                """
    for assignment in to_forget.values():
        self.view.forget(assignment.pod)
""",
                "pass",
            ),
        ),
    ),
    Mutant(
        "capacity is assumed twice",
        "two_at_once",
        "over-commit",
        (Edit("ClusterView.assume_all", "self._note_assumed(current, node_name, devices.get(pod.uid, ()), unit)", "continue"),),
    ),
    Mutant(
        "successes of an earlier run count",
        "second_run",
        "quorum",
        (
            Edit("Gang._successes", "self.members", "self.all_pods"),
            Edit("Gang._successes", "self.members_bound_in_run()", "self.all_pods"),
        ),
    ),
    Mutant(
        "binds carry no stamp",
        "no_faults",
        "journal",
        (Edit("Binder._post", "{**bind.annotations, STAMP: bind.stamp}", "{**bind.annotations}"),),
    ),
    Mutant(
        "the stamp has too small a minimum",
        "no_faults",
        "journal",
        (Edit("Transaction.stamp", "self.gang.required", "1"),),
    ),
    Mutant(
        "nothing is dry-run",
        "bare_refused",
        "dry run",
        (Edit("Transaction._for_dry_run", "len(self.assignments) == 1", "True"),),
    ),
    Mutant(
        "one pod is dry-run for all where binds can't be undone",
        "bare_refused",
        "dry run",
        (
            Edit(
                "Transaction._dry_runs_all",
                "self.dry_run == 'all' or not all((is_releasable(assignment.pod, at_no_cost=True) for assignment in self.assignments))",
                "self.dry_run == 'all'",
            ),
        ),
    ),
    Mutant(
        "gated pods are bound",
        "gated",
        "candidate",
        (Edit("Pod.is_candidate", "self.is_gated", "False"),),
    ),
    Mutant(
        "refusals of the dry run are ignored",
        "bare_refused",
        "dry run",
        (
            Edit(
                "Transaction._dry_run",
                "refusals = [(assignment, reply) for assignment, reply in dry_runs if not reply.is_bound]",
                """
    refusals = []
    del dry_runs
""",
            ),
        ),
    ),
    Mutant(
        "dead watches aren't noticed, and decisions rest on stale state",
        "silent_watches",
        "stale",
        (
            Edit(
                "App.is_fresh",
                "all((reflector.age_seconds < self.settings.stale_seconds for reflector in self._reflectors.values()))",
                "True",
            ),
            Edit("Reflector._watch", "_GRACE_SECONDS", "60.0"),
        ),
    ),
    Mutant(
        "dead watches aren't noticed for a minute",
        "silent_watches",
        "stale",
        (Edit("Reflector._watch", "_GRACE_SECONDS", "60.0"),),
    ),
    Mutant(
        "a gang without a PodGroup is scheduled",
        "group_deleted_while_waiting",
        "quorum",
        (Edit("GangRegistry._hold", "group is None and (not 0 < len(alive) - len(waiting) < minimum)", "False"),),
    ),
    Mutant(
        "the deletion of a PodGroup is ignored",
        "group_deleted_while_waiting",
        "quorum",
        (Edit("GangRegistry.forget_group", "group is not None and group.version <= version", "False"),),
    ),
    Mutant(
        "Retry-After is ignored",
        "long_retry_after",
        "haste",
        (Edit("retry:_seconds", "otherwise if asked is None else min(asked, LONGEST_SECONDS)", "otherwise"),),
    ),
    Mutant(
        "Retry-After is forgotten when a gang is released",
        "released_before_retry_after_ends",
        "haste",
        (Edit("Executor._release", "Facts(self.gangs.clock(), pause=release.pause)", "Facts(self.gangs.clock())"),),
    ),
    Mutant(
        "Retry-After is forgotten from one attempt to the next",
        "finished_after_retry_after",
        "haste",
        (
            Edit("of_finish", "outcome.retry_after > 0", "False"),
            Edit("of_whole", "Requeue.failed(retry_by=now, at_least=outcome.retry_after)", "Requeue.failed(retry_by=now)"),
        ),
    ),
    Mutant(
        "Retry-After of a refused surplus member is forgotten when the gang is finished",
        "finished_with_a_refused_surplus_member",
        "haste",
        (Edit("Committed.retry_after", "(*self.failed, *self.dropped)", "self.failed"),),
    ),
    Mutant(
        "a PodGroup stays PartiallyBound for ever",
        "groups",
        "status",
        (Edit("_conditions", "gang.is_partially_bound and (not opinion.is_being_bound)", "gang.is_partially_bound or bool(gang.bound)"),),
    ),
    Mutant(
        "a PodGroup miscounts its members",
        "groups",
        "status",
        (Edit("pod_group_status", "len(gang.bound_in_all_runs)", "len(gang.bound_in_all_runs) + 7"),),
    ),
    Mutant(
        "minimums of roles are ignored",
        "roles",
        "quorum",
        (Edit("GangRegistry._gang_of", "creatable_minimums(minimums, run)", "()"),),
    ),
    Mutant(
        "pods without a gang are never scheduled",
        "singles",
        "idle",
        (Edit("DueGangs._attempt", "self.unresolved.is_behind(gang)", "gang.is_single or self.unresolved.is_behind(gang)"),),
    ),
    Mutant(
        "taints are ignored",
        "node_tainted",
        "node",
        (Edit("node_from", "'taints'", "'none'"),),
    ),
    Mutant(
        "nothing is dry-run where members can be released",
        "no_faults",
        "dry run",
        (
            Edit(
                "Transaction._for_dry_run",
                "list({_template(assignment.pod): assignment for assignment in self.assignments}.values())",
                "()",
            ),
        ),
    ),
    Mutant(
        "binds are sent one after the other",
        "no_faults",
        "quorum",
        (
            Edit(
                "Transaction._bind",
                "replies = await in_slices(bind, assignments)",
                """
    replies = []
    for each in assignments:
        replies += await in_slices(bind, [each])
""",
            ),
        ),
    ),
    Mutant(
        "half of a gang with a new PodGroup is bound first",
        "groups",
        "quorum",
        (
            PAUSES,
            Edit(
                "Transaction.commit",
                "replies = await self._bind(assignments)",
                """
    is_new = assignments[0].pod.label('scheduling.x-k8s.io/pod-group')
    half = len(assignments) // 2 if is_new else 0
    replies = await self._bind(assignments[half:])
    if half:
        await asyncio.sleep(0.5)
    replies += await self._bind(assignments[:half])
""",
            ),
        ),
    ),
    Mutant(
        "the role with a minimum is bound a moment after the others",
        "roles_that_fit",
        "quorum",
        (
            PAUSES,
            Edit(
                "Transaction.commit",
                "replies = await self._bind(assignments)",
                """
    needed = dict(self.gang.role_minimums)
    later = [assignment for assignment in assignments if assignment.pod.role in needed]
    replies = await self._bind([assignment for assignment in assignments if assignment not in later])
    await asyncio.sleep(0.1)
    replies += await self._bind(later)
""",
            ),
        ),
    ),
    Mutant(
        "unresolved binds are forgotten after five seconds",
        "unanswered",
        "double",
        (Edit("UnresolvedBinds._await", "CARRIED_OUT_SECONDS", "5"),),
    ),
)
