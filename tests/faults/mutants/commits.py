"""Mutants that break what is promised of a commit."""

from .mutant import PAUSES, Edit, Mutant

MUTANTS = (
    Mutant(
        "gang scheduling removed: whoever fits is bound",
        "no_room",
        "quorum",
        (
            Edit(
                "scheduling/planner.py",
                "problem_of(gang, gang.least,",
                "problem_of(gang, 1,",
            ),
            Edit(
                "binding/precheck.py",
                "    if not seats or gang.missing_once_bound({seat.pod.uid for seat in seats}):\n",
                "    if not seats:\n",
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
                "binding/transaction.py",
                "            replies = await self._bind(seats)\n",
                (
                    "            half = len(seats) // 2\n"
                    "            replies = await self._bind(seats[half:])\n"
                    "            await asyncio.sleep(1)\n"
                    "            replies += await self._bind(seats[:half])\n"
                ),
            ),
        ),
    ),
    Mutant(
        "no version is named",
        "no_faults",
        "precondition",
        (
            Edit(
                "binding/bind.py",
                '                "resourceVersion": bind.version,\n',
                "",
            ),
        ),
    ),
    Mutant(
        "no UID is named",
        "no_faults",
        "precondition",
        (
            Edit(
                "binding/bind.py",
                '                "uid": pod.uid,\n',
                "",
            ),
        ),
    ),
    Mutant(
        "verification removed",
        "filled_while_searching",
        "node",
        (
            Edit(
                "binding/precheck.py",
                "    if violations:\n",
                "    if False:\n",
            ),
            Edit(
                "binding/bind.py",
                "        if problem := bind.look():\n",
                "        if problem := None:\n",
            ),
        ),
    ),
    Mutant(
        "taints and cordons are ignored",
        "node_cordoned_before",
        "node",
        (
            Edit(
                "model/node.py",
                '        is_unschedulable=boolean(spec, "unschedulable", "spec."),\n',
                "",
            ),
            Edit(
                "model/node.py",
                'for path, taint in items(spec, "taints", "spec.")',
                'for path, taint in items(spec, "none", "spec.")',
            ),
        ),
    ),
    Mutant(
        "lost answers are believed to be failures",
        "refused_after_a_lost_answer",
        "release",
        (
            Edit(
                "binding/bind.py",
                "        if otherwise.result is Result.SPOILT and not bind.is_in_doubt:\n",
                "        if True:\n",
            ),
            Edit(
                "binding/bind.py",
                "if bind.is_in_doubt and not certain else reply\n",
                "if False else reply\n",
            ),
        ),
    ),
    Mutant(
        "the next wave starts in part",
        "second_wave",
        "quorum",
        (
            Edit(
                "gangs/runs.py",
                "if is_first or pod.created < run.began]",
                "if True]",
            ),
        ),
    ),
    Mutant(
        "Retry-After is obeyed for ever, with the seats held",
        "asked_to_wait",
        "idle",
        (
            Edit(
                "binding/bind.py",
                "bind), attempts, self._sleep, patience=patience, turn=turn)",
                "bind), attempts, self._sleep, turn=turn)",
            ),
            Edit(
                "kube/retry.py",
                "min(asked, LONGEST_SECONDS)",
                "asked",
            ),
        ),
    ),
    Mutant(
        "whoever comes to bound members is bound without rehearsal",
        "denied_beside_bound",
        "rehearsal",
        (
            Edit(
                "binding/transaction.py",
                'if self.dry_run == "none" or len(self.seats) == 1:',
                'if self.dry_run == "none" or len(self.seats) == 1 or (self._tries_all and self.gang.bound):',
            ),
        ),
    ),
    Mutant(
        "a seat isn't looked at again before a bind is made again",
        "filled_between_tries",
        "node",
        (Edit("binding/precheck.py", "return found[0] if found else None", "return None"),),
    ),
    Mutant(
        "a gang that is held since the rehearsal is bound",
        "group_gone_in_the_rehearsal",
        "journal",
        (Edit("binding/transaction.py", "if gang is None or gang.hold:", "if gang is None:"),),
    ),
    Mutant(
        "no look after the rehearsal",
        "node_lost_in_rehearsal",
        "quorum",
        (
            Edit(
                "binding/transaction.py",
                "            if rehearsed:\n",
                "            if not seats:\n",
            ),
        ),
    ),
    Mutant(
        "members that went in the rehearsal are bound with the others",
        "member_lost_in_rehearsal",
        "candidate",
        (
            Edit(
                "binding/transaction.py",
                "        gang = self.look()\n",
                "        gang: Gang | None = self.gang\n",
            ),
        ),
    ),
    Mutant(
        "whoever is refused is tried again at once",
        "refused_whenever_it_is_bound",
        "storm",
        (
            Edit(
                "scheduling/queue.py",
                "min(self._backoff[1], max(at_least, self.backoff(max(1",
                "min(1.0, max(at_least, self.backoff(max(1",
            ),
        ),
    ),
    Mutant(
        "no look before a bind is made again",
        "node_lost_meanwhile",
        "node",
        (
            Edit(
                "binding/bind.py",
                "        if problem := bind.look():\n",
                "        if problem := None:\n",
            ),
        ),
    ),
    Mutant(
        "all go to one node",
        "no_faults_spread",
        "idle",
        (
            Edit(
                "binding/precheck.py",
                "Seat(pods[uid], node_name) for uid, node_name in assignments.items()",
                "Seat(pods[uid], min(assignments.values())) for uid in assignments",
            ),
        ),
    ),
    Mutant(
        "node selectors are ignored",
        "pools",
        "node",
        (
            Edit(
                "model/constraints.py",
                'return tuple(sorted(labels(spec, "nodeSelector", "spec.", SELECTORS).items()))',
                "return ()",
            ),
        ),
    ),
    Mutant(
        "double bind: an unanswered bind's seat is free at once, and the pod sent elsewhere",
        "unanswered",
        "double",
        (
            Edit(
                "binding/bind.py",
                "        return replace(reply, in_doubt=bind.version) if bind.is_in_doubt and not certain else reply\n",
                "        return reply\n",
            ),
        ),
    ),
    Mutant(
        "stale view: nodes are seen once",
        "node_cordoned_before",
        "node",
        (
            Edit(
                "cluster/view.py",
                ("        if old == node:\n            return\n"),
                ("        if old is not None:\n            return\n"),
            ),
        ),
    ),
    Mutant(
        "others' pods take no room",
        "foreign_room",
        "node",
        (
            Edit(
                "cluster/view.py",
                "        node_name = pod.node_name if pod.is_bound else self._assumed.get(pod.uid)\n",
                (
                    '        node_name = pod.node_name if pod.is_bound and pod.scheduler_name == "allaboard" else '
                    "self._assumed.get(pod.uid)\n"
                ),
            ),
        ),
    ),
    Mutant(
        "pods that leave take no room",
        "leaving",
        "node",
        (
            Edit(
                "model/pod.py",
                "        return bool(self.node_name) and not self.is_terminal\n",
                "        return bool(self.node_name) and not self.is_terminal and not self.is_terminating\n",
            ),
        ),
    ),
    Mutant(
        "seats leak when a commit is refused",
        "asked_to_wait",
        "idle",
        (
            Edit(
                "binding/transaction.py",
                ("            for seat in free.values():\n                self.view.forget(seat.pod)\n"),
                "            pass\n",
            ),
        ),
    ),
    Mutant(
        "a seat is promised twice",
        "two_at_once",
        "over-commit",
        (
            Edit(
                "cluster/view.py",
                "            self._promise(pod.uid, node_name, devices.get(pod.uid, ()))\n            self._devices.add",
                "            continue\n            self._devices.add",
            ),
        ),
    ),
    Mutant(
        "success in an earlier run counts",
        "second_run",
        "quorum",
        (
            Edit(
                "model/gang.py",
                '        if not any(pod.phase == "Succeeded" for pod in self.members):\n',
                '        if not any(pod.phase == "Succeeded" for pod in self.everybody):\n',
            ),
            Edit(
                "model/gang.py",
                "for pod in self.of_this_run() if pod.has_succeeded",
                "for pod in self.everybody if pod.has_succeeded",
            ),
        ),
    ),
    Mutant(
        "binds carry no stamp",
        "no_faults",
        "journal",
        (
            Edit(
                "binding/bind.py",
                "{**bind.annotations, STAMP: bind.stamp}",
                "{**bind.annotations}",
            ),
        ),
    ),
    Mutant(
        "the stamp promises too little",
        "no_faults",
        "journal",
        (
            Edit(
                "binding/transaction.py",
                "self.gang.required, was_whole",
                "1, was_whole",
            ),
        ),
    ),
    Mutant(
        "nothing is rehearsed",
        "bare_refused",
        "rehearsal",
        (
            Edit(
                "binding/transaction.py",
                '        if self.dry_run == "none" or len(self.seats) == 1:\n',
                "        if True:\n",
            ),
        ),
    ),
    Mutant(
        "one is rehearsed for all where nothing can be undone",
        "bare_refused",
        "rehearsal",
        (
            Edit(
                "binding/transaction.py",
                ('return self.dry_run == "all" or not all(is_releasable(seat.pod, at_no_cost=True) for seat in self.seats)'),
                'return self.dry_run == "all"',
            ),
        ),
    ),
    Mutant(
        "who is gated is bound",
        "gated",
        "candidate",
        (
            Edit(
                "model/pod.py",
                "        return not (self.node_name or self.is_terminating or self.is_gated or self.is_terminal)\n",
                "        return not (self.node_name or self.is_terminating or self.is_terminal)\n",
            ),
        ),
    ),
    Mutant(
        "what the rehearsal says is ignored",
        "bare_refused",
        "rehearsal",
        (
            Edit(
                "binding/transaction.py",
                "            refusals = [(seat, reply) for seat, reply in rehearsal if not reply.is_bound]\n",
                ("            refusals = []\n            del rehearsal\n"),
            ),
        ),
    ),
    Mutant(
        "dead watches aren't noticed, and stale facts are good enough",
        "silent_watches",
        "stale",
        (
            Edit(
                "app.py",
                ("return all(reflector.age_seconds < self.settings.stale_seconds for reflector in self._reflectors.values())"),
                "return True",
            ),
            Edit(
                "kube/reflector.py",
                "        longest = _WATCH_SECONDS + _GRACE_SECONDS\n",
                "        longest = _WATCH_SECONDS + 60.0\n",
            ),
        ),
    ),
    Mutant(
        "dead watches aren't noticed for a minute",
        "silent_watches",
        "stale",
        (
            Edit(
                "kube/reflector.py",
                "        longest = _WATCH_SECONDS + _GRACE_SECONDS\n",
                "        longest = _WATCH_SECONDS + 60.0\n",
            ),
        ),
    ),
    Mutant(
        "a gang without a PodGroup is scheduled",
        "group_gone",
        "quorum",
        (
            Edit(
                "gangs/registry.py",
                "if group is None and not 0 < len(alive) - len(waiting) < minimum:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "nobody hears that a PodGroup is deleted",
        "group_gone",
        "quorum",
        (
            Edit(
                "gangs/registry.py",
                "if group is not None and group.version <= version:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "Retry-After is ignored",
        "asked_to_wait",
        "haste",
        (
            Edit(
                "kube/retry.py",
                "    return otherwise if asked is None else min(asked, LONGEST_SECONDS)",
                "    return otherwise",
            ),
        ),
    ),
    Mutant(
        "Retry-After is forgotten when a gang is undone",
        "undone_with_patience",
        "haste",
        (
            Edit(
                "scheduling/opengangs.py",
                "await self.undo(gang, pods, messages.not_bound(outcome), at_least=outcome.retry_after)",
                "await self.undo(gang, pods, messages.not_bound(outcome))",
            ),
        ),
    ),
    Mutant(
        "Retry-After is forgotten from one attempt to the next",
        "finished_with_patience",
        "haste",
        (
            Edit(
                "scheduling/opengangs.py",
                "is_firm=retry_after > 0)",
                "is_firm=False)",
            ),
            Edit(
                "scheduling/outcomes.py",
                "retry_by=self.clock(), at_least=outcome.retry_after)\n        elif",
                "retry_by=self.clock())\n        elif",
            ),
        ),
    ),
    Mutant(
        "whoever isn't admitted beyond the quorum isn't left alone when the others are finished",
        "finished_with_patience_for_the_surplus",
        "haste",
        (Edit("binding/outcomes.py", "for _, reply in (*self.failed, *self.dropped)), default", "for _, reply in self.failed), default"),),
    ),
    Mutant(
        "a PodGroup says for ever that it is half bound",
        "groups",
        "status",
        (
            Edit(
                "report/status.py",
                "    partial = gang.is_open and not opinion.is_being_bound\n",
                "    partial = gang.is_open or bool(gang.bound)\n",
            ),
        ),
    ),
    Mutant(
        "a PodGroup miscounts its members",
        "groups",
        "status",
        (
            Edit(
                "report/status.py",
                '"scheduled": len(gang.bound_in_all_runs),',
                '"scheduled": len(gang.bound_in_all_runs) + 7,',
            ),
        ),
    ),
    Mutant(
        "minimums of roles are ignored",
        "roles",
        "quorum",
        (
            Edit(
                "gangs/registry.py",
                "            role_minimums=still_possible(minimums, run),\n",
                "            role_minimums=(),\n",
            ),
        ),
    ),
    Mutant(
        "pods without a gang are never scheduled",
        "singles",
        "idle",
        (
            Edit(
                "scheduling/cycle.py",
                "        if self._sealing.awaits_news(gang):\n",
                "        if gang.is_single or self._sealing.awaits_news(gang):\n",
            ),
        ),
    ),
    Mutant(
        "taints are ignored",
        "node_tainted",
        "node",
        (
            Edit(
                "model/node.py",
                'for path, taint in items(spec, "taints", "spec.")',
                'for path, taint in items(spec, "none", "spec.")',
            ),
        ),
    ),
    Mutant(
        "nobody is rehearsed where binds can be taken back",
        "no_faults",
        "rehearsal",
        (
            Edit(
                "binding/transaction.py",
                "else list({_template(seat.pod): seat for seat in self.seats}.values())",
                "else ()",
            ),
        ),
    ),
    Mutant(
        "binds are sent one after the other",
        "no_faults",
        "quorum",
        (
            Edit(
                "binding/transaction.py",
                "        replies = await in_slices(bind, seats)\n",
                ("        replies = []\n        for each in seats:\n            replies += await in_slices(bind, [each])\n"),
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
                "binding/transaction.py",
                "            replies = await self._bind(seats)\n",
                (
                    '            is_new = seats[0].pod.label("scheduling.x-k8s.io/pod-group")\n'
                    "            half = len(seats) // 2 if is_new else 0\n"
                    "            replies = await self._bind(seats[half:])\n"
                    "            if half:\n"
                    "                await asyncio.sleep(0.5)\n"
                    "            replies += await self._bind(seats[:half])\n"
                ),
            ),
        ),
    ),
    Mutant(
        "the role with a minimum is bound a moment after the others",
        "roles_with_room",
        "quorum",
        (
            PAUSES,
            Edit(
                "binding/transaction.py",
                "            replies = await self._bind(seats)\n",
                (
                    "            needed = dict(self.gang.role_minimums)\n"
                    "            later = [seat for seat in seats if seat.pod.role in needed]\n"
                    "            replies = await self._bind([seat for seat in seats if seat not in later])\n"
                    "            await asyncio.sleep(0.1)\n"
                    "            replies += await self._bind(later)\n"
                ),
            ),
        ),
    ),
    Mutant(
        "late binds are forgotten after five seconds",
        "unanswered",
        "double",
        (
            Edit(
                "scheduling/sealing.py",
                "        pause, until = _FIRST_PAUSE, self.clock() + CARRIED_OUT_SECONDS\n",
                "        pause, until = _FIRST_PAUSE, self.clock() + 5\n",
            ),
        ),
    ),
)
