"""Mutants that break what is promised of a commit."""

from .mutant import PAUSES, Edit, Mutant

MUTANTS = (
    Mutant(
        "gang scheduling removed: whoever fits is bound",
        "no_room",
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
        "lost answers are believed to be failures",
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
        "Retry-After is obeyed for ever, with the capacity held",
        "asked_to_wait",
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
        "whoever comes to bound members is bound without rehearsal",
        "denied_beside_bound",
        "rehearsal",
        (
            Edit(
                "Transaction._for_dry_run",
                "self.dry_run == 'none' or len(self.assignments) == 1",
                "self.dry_run == 'none' or len(self.assignments) == 1 or (self._dry_runs_all and self.gang.bound)",
            ),
        ),
    ),
    Mutant(
        "a seat isn't looked at again before a bind is made again",
        "filled_between_tries",
        "node",
        (Edit("spoilt", "found[0] if found else None", "None"),),
    ),
    Mutant(
        "a gang that is held since the rehearsal is bound",
        "group_gone_in_the_rehearsal",
        "journal",
        (Edit("Transaction._rechecked", "gang is None or gang.hold", "gang is None"),),
    ),
    Mutant(
        "no look after the rehearsal",
        "node_lost_in_rehearsal",
        "quorum",
        (
            Edit(
                "Transaction.commit",
                """
    if sample:
        rechecked = self._rechecked(assignments)
        if isinstance(rechecked, Refused):
            return replace(rechecked, retry_after=retry_after)
        assignments = rechecked
""",
                """
    if not assignments:
        rechecked = self._rechecked(assignments)
        if isinstance(rechecked, Refused):
            return replace(rechecked, retry_after=retry_after)
        assignments = rechecked
""",
            ),
        ),
    ),
    Mutant(
        "members that went in the rehearsal are bound with the others",
        "member_lost_in_rehearsal",
        "candidate",
        (Edit("Transaction._rechecked", "gang = self.current_gang()", "gang: Gang | None = self.gang"),),
    ),
    Mutant(
        "whoever is refused is tried again at once",
        "refused_whenever_it_is_bound",
        "storm",
        (Edit("GangQueue._back_off", "self._backoff.longest", "1.0"),),
    ),
    Mutant(
        "no look before a bind is made again",
        "node_lost_meanwhile",
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
        "double bind: an unanswered bind's capacity is free at once, and the pod sent elsewhere",
        "unanswered",
        "double",
        (Edit("Binder.bind", "replace(reply, in_doubt=bind.version) if bind.is_in_doubt and (not certain) else reply", "reply"),),
    ),
    Mutant(
        "stale view: nodes are seen once",
        "node_cordoned_before",
        "node",
        (Edit("ClusterView.upsert_node", "old == node", "old is not None"),),
    ),
    Mutant(
        "others' pods take no room",
        "foreign_room",
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
        "pods that leave take no room",
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
        "asked_to_wait",
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
        "a seat is promised twice",
        "two_at_once",
        "over-commit",
        (Edit("ClusterView.assume_all", "self._note_assumed(pod.uid, node_name, devices.get(pod.uid, ()))", "continue"),),
    ),
    Mutant(
        "success in an earlier run counts",
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
        "the stamp promises too little",
        "no_faults",
        "journal",
        (Edit("Transaction.stamp", "self.gang.required", "1"),),
    ),
    Mutant(
        "nothing is rehearsed",
        "bare_refused",
        "rehearsal",
        (Edit("Transaction._for_dry_run", "self.dry_run == 'none' or len(self.assignments) == 1", "True"),),
    ),
    Mutant(
        "one is rehearsed for all where nothing can be undone",
        "bare_refused",
        "rehearsal",
        (
            Edit(
                "Transaction._dry_runs_all",
                "self.dry_run == 'all' or not all((is_releasable(assignment.pod, at_no_cost=True) for assignment in self.assignments))",
                "self.dry_run == 'all'",
            ),
        ),
    ),
    Mutant(
        "who is gated is bound",
        "gated",
        "candidate",
        (Edit("Pod.is_candidate", "self.is_gated", "False"),),
    ),
    Mutant(
        "what the rehearsal says is ignored",
        "bare_refused",
        "rehearsal",
        (
            Edit(
                "Transaction.commit",
                "refusals = [(assignment, reply) for assignment, reply in dry_runs if not reply.is_bound]",
                """
    refusals = []
    del dry_runs
""",
            ),
        ),
    ),
    Mutant(
        "dead watches aren't noticed, and stale facts are good enough",
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
        "group_gone",
        "quorum",
        (Edit("GangRegistry._hold", "group is None and (not 0 < len(alive) - len(waiting) < minimum)", "False"),),
    ),
    Mutant(
        "nobody hears that a PodGroup is deleted",
        "group_gone",
        "quorum",
        (Edit("GangRegistry.forget_group", "group is not None and group.version <= version", "False"),),
    ),
    Mutant(
        "Retry-After is ignored",
        "asked_to_wait",
        "haste",
        (Edit("retry:_seconds", "otherwise if asked is None else min(asked, LONGEST_SECONDS)", "otherwise"),),
    ),
    Mutant(
        "Retry-After is forgotten when a gang is undone",
        "undone_with_patience",
        "haste",
        (Edit("Executor._release", "Facts(self.gangs.clock(), pause=release.pause)", "Facts(self.gangs.clock())"),),
    ),
    Mutant(
        "Retry-After is forgotten from one attempt to the next",
        "finished_with_patience",
        "haste",
        (
            Edit("of_finish", "outcome.retry_after > 0", "False"),
            Edit("of_whole", "Requeue.failed(retry_by=now, at_least=outcome.retry_after)", "Requeue.failed(retry_by=now)"),
        ),
    ),
    Mutant(
        "whoever isn't admitted beyond the quorum isn't left alone when the others are finished",
        "finished_with_patience_for_the_surplus",
        "haste",
        (Edit("Committed.retry_after", "(*self.failed, *self.dropped)", "self.failed"),),
    ),
    Mutant(
        "a PodGroup says for ever that it is half bound",
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
        "nobody is rehearsed where binds can be taken back",
        "no_faults",
        "rehearsal",
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
        "roles_with_capacity",
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
        "late binds are forgotten after five seconds",
        "unanswered",
        "double",
        (Edit("UnresolvedBinds._await", "CARRIED_OUT_SECONDS", "5"),),
    ),
)
