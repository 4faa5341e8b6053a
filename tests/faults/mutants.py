"""Schedulers that break one promise each: does the judge notice?

A mutant is a patch with a name: what stands in a module of the scheduler, and what takes its place in a copy of the tree. Each has a
directed schedule that convicts it at once, which CI plays; ``make faults`` plays random ones until one does.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 300
"""Schedules within which each mutant must be found."""


@dataclass(frozen=True, slots=True)
class Edit:
    """``before`` stands once in ``module``, a path below the package."""

    module: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """``directed`` names the schedule in ``directed`` that convicts it."""

    name: str
    directed: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a hunt: ``rule`` is empty when nothing was found in as many schedules as were ``played``."""

    mutant: Mutant
    played: int
    rule: str
    found: str


def _mutant(name: str, directed: str, module: str, before: str, after: str) -> Mutant:
    return Mutant(name, directed, (Edit(module, before, after),))


_TRANSACTION, _OPEN, _BIND = "scheduling/transaction.py", "scheduling/opengangs.py", "cluster/bind.py"

MUTANTS = (
    Mutant(
        "gang scheduling removed: whoever fits is bound",
        "no_room",
        (
            Edit("scheduling/planner.py", "problem_of(gang, gang.least,", "problem_of(gang, 1,"),
            Edit(_TRANSACTION, "    if not seats or gang.missing_once_bound({seat.pod.uid for seat in seats}):\n", "    if not seats:\n"),
        ),
    ),
    _mutant(
        "half of the quorum is bound first",
        "no_faults",
        _TRANSACTION,
        "            replies = await self._bind(seats)\n",
        "            half = len(seats) // 2\n            replies = await self._bind(seats[half:])\n"
        "            await asyncio.sleep(1)\n            replies += await self._bind(seats[:half])\n",
    ),
    _mutant(
        "undo removed",
        "refused",
        _TRANSACTION,
        "    releasable = [pod for pod in pods if is_releasable(pod)]\n",
        "    return Undone(tuple(pods))\n",
    ),
    _mutant(
        "undo of a running gang",
        "refused_while_it_runs",
        _TRANSACTION,
        '    if not even_running and any(pod.phase == "Running" for pod in pods):\n        return Undone()\n',
        "    even_running = True\n",
    ),
    _mutant("no version is named", "no_faults", _BIND, '                "resourceVersion": bind.version,\n', ""),
    _mutant("no UID is named", "no_faults", _BIND, '                "uid": pod.uid,\n', ""),
    _mutant(
        "a release names no version",
        "refused",
        _BIND,
        'preconditions = {"uid": pod.uid, "resourceVersion": current["metadata"]["resourceVersion"]}',
        'preconditions = {"uid": pod.uid}',
    ),
    _mutant(
        "sealing removed",
        "killed_with_a_follower",
        "cluster/epoch.py",
        "        if self._begins_at < 0:\n            return []\n",
        "        return []\n",
    ),
    _mutant(
        "the leader before may still bind: sealing is only pretended",
        "leader_stands_still",
        "cluster/epoch.py",
        '                        await self._server.patch(path, {"metadata": metadata})\n',
        "                        pass\n",
    ),
    Mutant(
        "verification removed",
        "filled_while_searching",
        (
            Edit(_TRANSACTION, "    if violations:\n", "    if not violations and False:\n"),
            Edit(_BIND, "            if problem := bind.look():\n", '            if problem := "":\n'),
        ),
    ),
    Mutant(
        "taints and cordons are ignored",
        "node_cordoned_before",
        (
            Edit("model/node.py", '        is_unschedulable=boolean(spec, "unschedulable", "spec."),\n', ""),
            Edit("model/node.py", 'for path, taint in items(spec, "taints", "spec.")', 'for path, taint in items(spec, "none", "spec.")'),
        ),
    ),
    Mutant(
        "lost answers are believed to be failures",
        "refused_after_a_lost_answer",
        (
            Edit(_BIND, "        if otherwise.result is Result.SPOILT and not bind.is_in_doubt:\n", "        if True:\n"),
            Edit(_BIND, "if bind.is_in_doubt and not certain else reply\n", "if False else reply\n"),
        ),
    ),
    _mutant(
        "a follower takes the lease before it has expired",
        "two_replicas",
        "cluster/lease.py",
        "or self._clock() >= self._seen_at + seen.duration)",
        "or self._clock() >= self._seen_at)",
    ),
    Mutant(
        "the next wave starts in part",
        "second_wave",
        (
            Edit(
                "model/gang.py",
                "        if len(self.bound) + len(chosen) < self.required:\n            for uid",
                "        if False:\n            for uid",
            ),
            Edit("model/gang.py", "return max(1, self.required - len(self.bound)) if wave and", "return 1 if wave and"),
        ),
    ),
    Mutant(
        "Retry-After is obeyed for ever, with the seats held",
        "asked_to_wait",
        (
            Edit(_BIND, "bind), attempts, self._sleep, patience=patience)", "bind), attempts, self._sleep)"),
            Edit("cluster/retry.py", "min(asked, LONGEST_SECONDS)", "asked"),
        ),
    ),
    _mutant(
        "no look after the rehearsal", "node_lost_in_rehearsal", _TRANSACTION, "            if rehearsed:\n", "            if not seats:\n"
    ),
    _mutant(
        "no look before a bind is made again",
        "node_lost_meanwhile",
        _BIND,
        "            if problem := bind.look():\n",
        '            if problem := "":\n',
    ),
    _mutant(
        "recovery blinded",
        "killed_in_a_commit",
        "scheduling/past.py",
        "    if not (gang.is_open and gang.owed) or was_whole(gang):\n",
        "    if True:\n",
    ),
    _mutant(
        "what was whole is taken for cut off",
        "killed_while_it_heals",
        "scheduling/past.py",
        "    return any(pod.was_whole or len(members) >= pod.promise for pod in members)\n",
        "    return False\n",
    ),
    _mutant(
        "finishing forward removed: undone at once",
        "refused_for_a_while",
        _OPEN,
        "        if outcome.is_final:\n",
        "        if outcome.failed:\n",
    ),
    _mutant(
        "a half gang is left as it is",
        "refused",
        "scheduling/outcomes.py",
        "            await self.open_gangs.finish_forward(gang, outcome, attempt.changes)\n",
        "            self.queue.settle(gang.key)\n",
    ),
    _mutant(
        "all go to one node",
        "no_faults_spread",
        _TRANSACTION,
        "Seat(pods[uid], node_name) for uid, node_name in assignments.items()",
        "Seat(pods[uid], min(assignments.values())) for uid in assignments",
    ),
    _mutant(
        "node selectors are ignored",
        "pools",
        "model/constraints.py",
        'return tuple(sorted(labels(spec, "nodeSelector", "spec.", SELECTORS).items()))',
        "return ()",
    ),
    _mutant(
        "double bind: an unanswered bind's seat is free at once, and the pod sent elsewhere",
        "unanswered",
        _BIND,
        "        return replace(reply, in_doubt=bind.version) if bind.is_in_doubt and not certain else reply\n",
        "        return reply\n",
    ),
    _mutant("the lease is ignored", "two_replicas", "app.py", "            await self._lease.acquired.wait()\n", "            pass\n"),
    _mutant(
        "stale view: nodes are seen once",
        "node_cordoned_before",
        "cluster/view.py",
        "        if old == node:\n            return\n",
        "        if old is not None:\n            return\n",
    ),
    _mutant(
        "stale view: deletions are not heard",
        "relisted",
        "cluster/reflector.py",
        "        for key in [key for key in self._store.known() if key not in seen]:\n            self._store.remove(key)\n",
        "",
    ),
    _mutant(
        "others' pods take no room",
        "foreign_room",
        "cluster/view.py",
        "        node_name = pod.node_name if pod.is_bound else self._assumed.get(pod.uid)\n",
        '        node_name = pod.node_name if pod.is_bound and pod.scheduler_name == "allaboard" else self._assumed.get(pod.uid)\n',
    ),
    _mutant(
        "pods that leave take no room",
        "leaving",
        "model/pod.py",
        "        return bool(self.node_name) and not self.is_terminal\n",
        "        return bool(self.node_name) and not self.is_terminal and not self.is_terminating\n",
    ),
    _mutant(
        "seats leak when a commit is refused",
        "asked_to_wait",
        _TRANSACTION,
        "            for seat in free.values():\n                self.view.forget(seat.pod)\n",
        "            pass\n",
    ),
    _mutant(
        "a seat is promised twice",
        "two_at_once",
        "cluster/view.py",
        "            self._assumed[pod.uid] = node_name\n            specs[id(current.spec)]",
        "            continue\n            specs[id(current.spec)]",
    ),
    _mutant(
        "priority is ignored",
        "priorities",
        "scheduling/queue.py",
        "    return (-gang.priority, not is_first,",
        "    return (0, not is_first,",
    ),
    _mutant(
        "healing goes before every priority",
        "healing_below_a_priority",
        "scheduling/queue.py",
        "    return (-gang.priority, not is_first,",
        "    return (-(2**31) + 1 if heals else -gang.priority, not is_first,",
    ),
    _mutant(
        "nobody is woken",
        "room_comes_free",
        "scheduling/queue.py",
        "        self.changes += 1\n        if freed is None:\n",
        "        self.changes += 1\n        return\n        if freed is None:\n",
    ),
    _mutant(
        "the reason is wrong: one resource is named for another",
        "two_kinds_of_room",
        "placement/filters.py",
        'f"Insufficient {resource}"',
        'f"Insufficient x{resource}"',
    ),
    _mutant(
        "the reason is wrong: nodes are miscounted",
        "two_kinds_of_room",
        "report/words.py",
        'return f"0/{total_nodes} nodes are available"',
        'return f"0/{total_nodes + 1} nodes are available"',
    ),
    _mutant(
        "bare pods are deleted",
        "bare_lost",
        _TRANSACTION,
        '        return pod.option("recreate") == "true"\n',
        "        return True\n",
    ),
    _mutant(
        "pods of Jobs are deleted",
        "job_lost",
        _BIND,
        "        of_job = pod.owner is not None and pod.owner.is_batch_job\n",
        "        of_job = False\n",
    ),
    _mutant(
        "Jobs stay suspended",
        "suspended",
        "cluster/restart.py",
        '            change = {"suspend": False} if job.is_suspended and not job.manager else {}\n',
        "            return\n",
    ),
    _mutant(
        "success in an earlier run counts",
        "second_run",
        "model/gang.py",
        '        return tuple(pod for pod in self.of_this_run() if pod.phase == "Succeeded")\n',
        '        return tuple(pod for pod in self.members if pod.phase == "Succeeded")\n',
    ),
    _mutant(
        "nobody heals",
        "members_lost",
        "scheduling/cycle.py",
        "        elif not gang.candidates and (gang.is_whole or not gang.alive):\n",
        "        elif gang.bound and key not in self._open:\n",
    ),
    _mutant(
        "healing knows no pause",
        "rejected_again_and_again",
        "scheduling/queue.py",
        "        return min(longest, first * 2 ** min(times - 1, 30)) if times else 0.0\n",
        "        return 0.0\n",
    ),
    _mutant(
        "half gangs never yield",
        "half_gangs",
        _OPEN,
        "        blocking = self._in_the_way(gang)\n        for count",
        "        blocking: Sequence[Gang] = ()\n        for count",
    ),
    _mutant(
        "who may be suspended isn't looked for seats any more",
        "would_be_suspended",
        _OPEN,
        "        self._restarts[gang.key] = self.clock() + gang.timeout_seconds\n        await self.undo",
        "        await self.undo",
    ),
    _mutant(
        "it isn't said that a gang is kept open",
        "kept_open",
        "report/conditions.py",
        "    partial = gang.is_open\n",
        "    partial = False\n",
    ),
    _mutant("binds carry no stamp", "no_faults", _BIND, '                "annotations": {STAMP: bind.stamp},\n', ""),
    _mutant(
        "the stamp promises too little",
        "no_faults",
        _TRANSACTION,
        "self.gang.required, was_whole",
        "1, was_whole",
    ),
    _mutant(
        "nothing is rehearsed",
        "bare_refused",
        _TRANSACTION,
        '        if self.dry_run == "none" or len(self.seats) == 1:\n',
        "        if True:\n",
    ),
    _mutant(
        "one is rehearsed for all where nothing can be undone",
        "bare_refused",
        _TRANSACTION,
        'return self.dry_run == "all" or not all(is_releasable(seat.pod, at_no_cost=True) for seat in self.seats)',
        'return self.dry_run == "all"',
    ),
    _mutant(
        "who is gated is bound",
        "gated",
        "model/pod.py",
        "        return not (self.node_name or self.is_terminating or self.is_gated or self.is_terminal)\n",
        "        return not (self.node_name or self.is_terminating or self.is_terminal)\n",
    ),
)


def plant(mutant: Mutant, folder: Path) -> None:
    """Copy the scheduler below ``folder`` with the patch in it. Raises ``ValueError`` when it doesn't fit the code any more."""
    shutil.copytree(ROOT / "operator", folder / "operator", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for beside in ("crds", "examples", "setup.cfg"):
        (folder / beside).symlink_to(ROOT / beside)
    for edit in mutant.edits:
        module = folder / "operator" / "allaboard" / edit.module
        text = module.read_text()
        if text.count(edit.before) != 1:
            raise ValueError(f"{mutant.name}: {edit.before!r} stands {text.count(edit.before)} times in {edit.module}")
        module.write_text(text.replace(edit.before, edit.after))


async def hunt(mutant: Mutant | None, *how: str) -> Verdict:
    """Play schedules with a mutant, or with the scheduler as it is: ``directed NAME`` or ``random MOST SEED``."""
    with tempfile.TemporaryDirectory(prefix="allaboard-mutant-") as folder:
        subject = mutant or Mutant("as it is", "", ())
        plant(subject, Path(folder))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.hunt",
            *how,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{folder}/operator{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complaints = await process.communicate()
    if process.returncode:
        return Verdict(subject, 0, "it doesn't start", complaints.decode(errors="replace")[-2000:])
    answer = json.loads(said.splitlines()[-1])
    return Verdict(subject, answer["played"], answer["rule"], answer["found"])


async def hunt_all(
    mutants: Sequence[Mutant], on_verdict: Callable[[Verdict], None], *, most: int = MOST, seed: int = 1, at_once: int = 2
) -> list[Verdict]:
    """Hunt each by random schedules, a few at once; ``on_verdict`` hears of each that has come to its end."""
    turns = asyncio.Semaphore(at_once)

    async def one(mutant: Mutant) -> Verdict:
        async with turns:
            verdict = await hunt(mutant, "random", str(most), str(seed))
            on_verdict(verdict)
            return verdict

    return list(await asyncio.gather(*map(one, mutants)))
