"""Random schedules of faults: hypothesis draws what happens and when, the ``World`` plays it, the ``Judge`` judges.

A schedule that fails is shrunk and printed with a seed; ``make faults SEED=…`` plays exactly that schedule again.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from allaboard_sandbox import Fault

from .draws import acts, bind_faults, gangs, numbers, pauses, possible, rollouts, watched
from .gangs import STAMP, Body, GangSpec
from .simulation import CRDS
from .world import World, demand

SCHEDULES, SAMPLE = 1000, 100
"""Schedules played by ``make faults``, and by the tests."""
STEPS = 12
GANGS_AT_MOST = 6
_WEBHOOK_SECONDS = 90.0


@dataclass(slots=True)
class Tally:
    """Counts of the results of a run's schedules."""

    begun: int = 0
    schedules: int = 0
    gangs: int = 0
    whole: int = 0
    absent: int = 0
    kept_open: Counter[str] = field(default_factory=Counter)
    happenings: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        kept = ", ".join(f"{count} because {reason}" for reason, count in sorted(self.kept_open.items())) or "none"
        return f"{self.schedules} schedules, {self.gangs} gangs: {self.whole} whole, {self.absent} absent, kept open: {kept}"


TALLY = Tally()


class Schedules(RuleBasedStateMachine):
    """Random schedules of single acts, in which the scheduler is never stopped or killed."""

    replicas = 1
    watches_admission = False

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        seed=st.integers(0, 2**32 - 1),
        startup_delay=st.sampled_from([0.05, 2.0, 3600.0]),
        gang=gangs,
        faults=st.lists(bind_faults, max_size=2),
        pause=pauses,
        crd=st.sampled_from(["ours", "ours", *CRDS]),
        page=st.sampled_from([0, 0, 3]),
        shares_gpus=st.sampled_from([False, False, True]),
        has_policies=st.booleans(),
    )
    def begin(
        self,
        seed: int,
        startup_delay: float,
        gang: GangSpec,
        faults: list[Fault],
        pause: float,
        crd: str,
        page: int,
        shares_gpus: bool,
        has_policies: bool,
    ) -> None:
        TALLY.begun += 1
        self.world = World(
            seed,
            startup_delay=startup_delay,
            replicas=self.replicas,
            crd=crd,
            page=page,
            shares_gpus=shares_gpus,
            has_policies=has_policies,
            watches_admission=self.watches_admission,
        )
        if self.watches_admission:
            chance = random.Random(seed)
            self.world.let_webhook_come(chance.uniform(0, _WEBHOOK_SECONDS), chance.choice(["never", "seen", "silent", "unreadable"]))
        team = GangSpec("theirs", size=2, minimum=2, namespace="team")
        self.world.add(team)
        self.world.advance(3)
        assert len(self.world.judge.bound(team)) == 2
        self.arrive(gang, faults, pause)

    @property
    def w(self) -> World:
        assert self.world is not None
        return self.world

    def gang(self, number: int) -> GangSpec:
        own = self.w.present[1:]
        return own[number % len(own)]

    def after(self, what: str, pause: float) -> None:
        TALLY.happenings[what] += 1
        self.w.advance(pause)

    def has_gangs(self) -> bool:
        return self.world is not None and len(self.world.present) > 1

    def has_place(self) -> bool:
        """Return whether another gang may come."""
        return self.world is not None and len(self.world.present) <= GANGS_AT_MOST

    @precondition(has_place)
    @rule(gang=gangs, faults=st.lists(bind_faults, max_size=2), pause=pauses)
    def a_gang_arrives(self, gang: GangSpec, faults: list[Fault], pause: float) -> None:
        self.arrive(gang, faults, pause)

    def arrive(self, gang: GangSpec, faults: list[Fault], pause: float) -> None:
        """Add the faults and then the gang, renamed, and with options that don't fit together removed."""
        for fault in faults:
            self.w.fault(fault)
        named = replace(gang, name=f"gang-{len(self.w.gangs)}", minimum=min(gang.minimum, gang.whole_size))
        if gang.is_single:
            named = replace(named, kind="bare", size=1, minimum=1, others=(), has_group=False)
        if not (self.w.shares_gpus and named.gpus):
            named = replace(named, percent=0)
        named = replace(named, least=min(named.least, named.roles[-1].size) if named.others else 0)
        if named.kind == "job":
            named = replace(named, completions=max(gang.completions, gang.size) if gang.completions else 0)
        self.w.add(replace(named, has_group=named.has_group and self.w.serves_groups))
        self.after("arrival", pause)

    @rule(fault=bind_faults, pause=pauses)
    def binds_will_fail(self, fault: Fault, pause: float) -> None:
        self.w.fault(fault)
        self.after("bind error", pause)

    @rule(
        request=st.sampled_from(
            [("get", "pods"), ("delete", "pods"), ("patch", "*"), ("create", "*"), ("list", "*"), ("watch", "pods"), ("evict", "pods")]
        ),
        status=st.sampled_from([403, 404, 409, 429, 500, 503]),
        times=st.integers(1, 6),
        drop=st.booleans(),
        is_after=st.booleans(),
        pause=pauses,
    )
    def other_requests_will_fail(self, request: tuple[str, str], status: int, times: int, drop: bool, is_after: bool, pause: float) -> None:
        self.w.fault(possible(Fault(*request, times=times, status=status, drop=drop, after=is_after)))
        self.after("other error", pause)

    @rule(resource=st.sampled_from([None, "pods", "nodes"]), pause=pauses)
    def watches_break(self, resource: str | None, pause: float) -> None:
        self.w.drop_watches(resource)
        self.after("watch drop", pause)

    @rule(pause=pauses)
    def watches_expire(self, pause: float) -> None:
        self.w.compact()
        self.after("410", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, member=numbers, is_at_once=st.booleans(), pause=pauses)
    def a_member_is_deleted(self, gang: int, member: int, is_at_once: bool, pause: float) -> None:
        self.w.delete_member(self.gang(gang), member, grace=0 if is_at_once else None)
        self.after("deletion", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, member=numbers, pause=pauses)
    def a_member_is_replaced(self, gang: int, member: int, pause: float) -> None:
        self.w.replace_member(self.gang(gang), member)
        self.after("replacement", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, member=numbers, pause=pauses)
    def a_kubelet_rejects(self, gang: int, member: int, pause: float) -> None:
        self.w.reject(self.gang(gang), member)
        self.after("rejection", pause)

    @rule(node=numbers, pause=pauses)
    def a_kubelet_rejects_every_pod(self, node: int, pause: float) -> None:
        self.w.reject_every_pod(node)
        self.after("rejections", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, minimum=st.integers(7, 99), pause=pauses)
    def a_tenant_forges_stamps(self, gang: int, minimum: int, pause: float) -> None:
        self.w.annotate(self.gang(gang), {STAMP: f"deadbeef/{minimum}"})
        self.after("forged stamp", pause)

    @rule(node=numbers, cpu=st.integers(1, 6), pause=pauses)
    def another_scheduler_binds(self, node: int, cpu: int, pause: float) -> None:
        self.w.bind_foreign(node, cpu)
        self.after("other scheduler", pause)

    @rule(pause=pauses)
    def another_scheduler_fills_all_nodes(self, pause: float) -> None:
        self.w.fill()
        self.after("full nodes", pause)

    @rule(pause=pauses)
    def what_another_scheduler_bound_ends(self, pause: float) -> None:
        self.w.remove_foreign()
        self.after("freed capacity", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, minimum=st.integers(1, 8), pause=pauses)
    def the_minimum_is_edited(self, gang: int, minimum: int, pause: float) -> None:
        self.w.set_minimum(self.gang(gang), minimum)
        self.after("minimum", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, pause=pauses)
    def a_pod_group_is_deleted(self, gang: int, pause: float) -> None:
        self.w.delete_group(self.gang(gang))
        self.after("PodGroup deleted", pause)

    @rule(node=numbers, is_cordoned=st.booleans(), pause=pauses)
    def a_node_is_cordoned(self, node: int, is_cordoned: bool, pause: float) -> None:
        self.w.cordon(node, is_cordoned=is_cordoned)
        self.after("cordon", pause)

    @rule(
        request=st.sampled_from(
            [("bind", True), ("bind", True), ("bind", False), ("bind", False), ("get", None), ("delete", None), ("patch", None)]
        ),
        nth=st.integers(1, 4),
        is_after=st.booleans(),
        act=acts,
        number=numbers,
        member=numbers,
        gang=gangs,
        pause=pauses,
    )
    @precondition(has_place)
    def something_happens_while_a_request_is_in_flight(
        self, request: tuple[str, bool | None], nth: int, is_after: bool, act: str, number: int, member: int, gang: GangSpec, pause: float
    ) -> None:
        """Add a gang, and do an act at one step of its commit, dry runs included."""
        verb, is_dry_run = request
        self.arrive(gang, [], 0.0)
        spec = self.w.gangs[-1]
        self.w.act_at(verb, nth, lambda: self.act(act, spec, number, member), after=is_after, is_dry_run=is_dry_run)
        self.after(f"{act} while {verb}", pause)

    def act(self, what: str, spec: GangSpec, number: int, member: int) -> None:
        """Do the act ``what``, one of ``acts``."""
        w = self.w
        if what.startswith("node"):
            self.act_on_node(what.removeprefix("node "), number, member)
        match what:
            case "nodes filled":
                w.fill()
            case "member deleted":
                w.delete_member(spec, member, grace=0)
            case "member replaced":
                w.replace_member(spec, member)
            case "member finished":
                w.finish(spec, member)
            case "minimum edited":
                w.set_minimum(spec, 1 + member)
            case "PodGroup deleted":
                w.delete_group(spec)
            case "Job suspended":
                w.suspend(spec, is_suspended=True)
            case "watches dropped":
                w.compact()
            case "watches silent":
                w.silence("nodes")

    def act_on_node(self, what: str, number: int, member: int) -> None:
        """Do the act ``what``, one of ``acts`` that happen to a node."""
        w = self.w
        match what:
            case "deleted":
                w.delete_node(number)
            case "cordoned":
                w.cordon(number, is_cordoned=True)
            case "tainted":
                w.taint(number, is_tainted=True)
            case "not ready":
                w.unready(number, is_ready=False)
            case "shrunk":
                w.shrink(number, 1)
            case "re-created":
                w.recreate_node(number, 1 + member)

    @rule(act=acts, gang=numbers, number=numbers, member=numbers, pause=pauses)
    @precondition(has_gangs)
    def something_happens(self, act: str, gang: int, number: int, member: int, pause: float) -> None:
        self.act(act, self.gang(gang), number, member)
        self.after(act, pause)

    @rule(node=numbers, pause=pauses)
    def a_node_comes_back(self, node: int, pause: float) -> None:
        self.w.unready(node, is_ready=True)
        self.w.recreate_node(node, 8)
        self.after("node back", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, is_all=st.booleans(), again=st.booleans(), cpu=st.integers(0, 6), pause=pauses)
    def members_succeed(self, gang: int, is_all: bool, again: bool, cpu: int, pause: float) -> None:
        """Let a run end in part or whole; the next run may begin, with less capacity."""
        spec = self.gang(gang)
        self.w.finish(spec, None if is_all else gang)
        for node in range(4) if cpu else ():
            self.w.bind_foreign(node, cpu)
        if again:
            self.w.run_again(spec)
        self.after("success", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, member=numbers, pause=pauses)
    def a_member_fails(self, gang: int, member: int, pause: float) -> None:
        self.w.finish(self.gang(gang), member, phase="Failed")
        self.after("failure", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, replicas=st.integers(0, 8), pause=pauses)
    def a_workload_is_scaled(self, gang: int, replicas: int, pause: float) -> None:
        self.w.scale(self.gang(gang), replicas)
        self.after("scaling", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, verb=st.sampled_from(["bind", "patch", "delete", "evict"]), status=st.sampled_from([500, 403, 429]), pause=pauses)
    def something_of_a_gang_is_refused_for_good(self, gang: int, verb: str, status: int, pause: float) -> None:
        """Refuse one verb for a gang's pods for good, as a webhook that is down or a quota does."""
        self.w.refuse_for_good(self.gang(gang), verb, status, 300 if status == 429 else None)
        self.after("lasting refusal", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, member=numbers, pause=pauses)
    def a_member_is_preempted(self, gang: int, member: int, pause: float) -> None:
        self.w.preempt(self.gang(gang), member)
        self.after("preemption", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, pause=pauses)
    def all_of_a_gang_are_evicted(self, gang: int, pause: float) -> None:
        self.w.lose_all_bound(self.gang(gang))
        self.after("eviction", pause)

    @rule(plural=watched, pause=pauses)
    def a_watch_is_silent(self, plural: str, pause: float) -> None:
        self.w.silence(plural)
        self.after("silent watch", pause)

    @rule(plural=watched, seconds=st.sampled_from([0.5, 3.0, 12.0]), pause=pauses)
    def a_watch_lags(self, plural: str, seconds: float, pause: float) -> None:
        self.w.lag(plural, seconds)
        self.after("late watch", pause)

    @rule(pause=pauses)
    def a_list_expires(self, pause: float) -> None:
        self.w.expire_pages()
        self.after("expired list", pause)

    @rule(seconds=st.sampled_from([0.0, 0.5, 5.0, 15.0]), pause=pauses)
    def searches_take_long(self, seconds: float, pause: float) -> None:
        self.w.slow_down(seconds)
        self.after("long searches", pause)

    @precondition(has_place)
    @precondition(has_gangs)
    @rule(gang=numbers, pause=pauses)
    def a_job_is_submitted_again(self, gang: int, pause: float) -> None:
        self.w.submit_again(self.gang(gang))
        self.after("another run", pause)

    @precondition(has_gangs)
    @rule(gang=numbers, change=rollouts, pause=pauses)
    def a_workload_is_rolled_out(self, gang: int, change: Body, pause: float) -> None:
        self.w.roll_out(self.gang(gang), change)
        self.after("rollout", pause)

    @rule(number=st.integers(0, 99), pause=pauses)
    def a_tenant_is_hostile(self, number: int, pause: float) -> None:
        self.w.make_hostile(number)
        self.after("hostile object", pause)

    def teardown(self) -> None:
        if self.world is None:
            return
        try:
            self._conclude(self.world)
        finally:
            self.world.close()

    def _conclude(self, world: World) -> None:
        judge = world.judge
        judge.check()
        world.settle()
        demand(judge.over_committed(), judge.suspended(), world.leaked())
        TALLY.schedules += 1
        for spec in world.present[1:]:
            TALLY.gangs += 1
            if not judge.bound(spec):
                TALLY.absent += 1
            elif not judge.missing(spec):
                TALLY.whole += 1
        for spec in judge.kept_open():
            TALLY.kept_open[judge.excuse(spec).partition(", since")[0]] += 1
        world.add_capacity()
        world.settle()
        demand(judge.incomplete(), judge.over_committed(), judge.suspended(), world.leaked())


def options(schedules: int, *, shrinks: bool = True, is_fixed: bool = False) -> settings:
    """Return Hypothesis's settings to play ``schedules`` schedules: different schedules each time, or with ``is_fixed`` the same ones."""
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if shrinks else [])]
    return settings(
        max_examples=schedules,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.normal,
        derandomize=is_fixed,
    )
