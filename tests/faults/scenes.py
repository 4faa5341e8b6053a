"""Random schedules of scenes: several acts in a row, on gangs that need the same capacity."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from allaboard_sandbox import Fault

from .draws import acts, gangs, numbers, pauses
from .gangs import HIGH_PRIORITY, GangSpec, Kind, Role
from .schedules import Schedules
from .simulation import NODE_CPU, NODES

_ALONE = 0.5
"""Probability that a scene begins by deleting all other gangs."""


def plain(gang: GangSpec, size: int, **changes: Any) -> GangSpec:
    """Return a gang of one role that fits on nodes of either pool, two members on each."""
    return replace(gang, **{"size": size, "minimum": size, "cpu": 3, "gpus": 0, "others": (), "pool": "", "is_single": False, **changes})


class Scenes(Schedules):
    """Random schedules of scenes and single acts, in which the scheduler is never stopped or killed."""

    def clear_stage(self) -> None:
        """Begin a scene; with probability ``_ALONE`` delete all other gangs and repair everything first."""
        if self.w.chance.random() < _ALONE:
            self.w.end_gangs()
            self.after("all deleted", 3.0)

    def stage(self, nodes: int = 1) -> Sequence[int]:
        """Begin a scene with free capacity on ``nodes`` nodes only; return their numbers."""
        self.clear_stage()
        return self.w.leave_capacity(nodes)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, pause=pauses)
    def a_kubelet_rejects_surplus_members(self, gang: GangSpec, pause: float) -> None:
        """Play a whole gang on the only node with capacity, where a surplus member is rejected and recreated again and again."""
        [node] = self.stage()
        self.arrive(plain(gang, 3, minimum=2, cpu=2, least=0, kind="controlled"), [], 2.0)
        self.w.reject_every_pod(node)
        self.w.reject(self.w.gangs[-1], 2)
        self.after("rejected surplus", 20.0)
        self.after("rejected surplus", pause)

    @precondition(Schedules.has_place)
    @rule(
        gang=gangs,
        kind=st.sampled_from(["job", "job", "controlled", "bare"]),
        suspends=st.booleans(),
        nth=st.integers(2, 4),
        has_retry_after=st.booleans(),
        loses_group=st.booleans(),
        pause=st.sampled_from([6.0, 40.0, 40.0]),
    )
    def a_gang_is_refused_in_part(
        self, gang: GangSpec, kind: Kind, suspends: bool, nth: int, has_retry_after: bool, loses_group: bool, pause: float
    ) -> None:
        """Play a gang of which some members can't be bound, although the dry run succeeds."""
        self.clear_stage()
        faults = [Fault("bind", "pods", nth=nth, times=40, status=403, dry_run=False)]
        if has_retry_after:  # one bind is refused for good, and the others get a Retry-After
            name = f"gang-{len(self.w.gangs)}-*"
            throttled = Fault("bind", "pods", name, nth=nth + 1, times=20, status=429, retry_after=300, dry_run=False)
            faults = [replace(faults[0], name=name, times=1), throttled]
        size = max(gang.size, nth + has_retry_after)
        forgives = gang.forgives and not suspends
        gang = replace(gang, kind=kind, size=size, minimum=max(gang.minimum, size), suspends=suspends, forgives=forgives)
        self.arrive(replace(gang, has_group=gang.has_group or loses_group), faults, 0.5)
        if loses_group:
            self.w.delete_group(self.w.gangs[-1])
        self.after("refused in part", pause)

    @precondition(Schedules.has_place)
    @rule(
        kind=st.sampled_from(["job", "job", "controlled"]),
        suspends=st.booleans(),
        status=st.sampled_from([403, 503]),
        rival=st.sampled_from([4, 4, 6]),
        is_filled=st.booleans(),
        is_guarded=st.sampled_from([False, False, True]),
        priority=st.sampled_from([0, 0, HIGH_PRIORITY]),
        is_seen_late=st.booleans(),
        pause=pauses,
    )
    def others_need_the_capacity_of_a_partially_bound_gang(
        self,
        kind: Kind,
        suspends: bool,
        status: int,
        rival: int,
        is_filled: bool,
        is_guarded: bool,
        priority: int,
        is_seen_late: bool,
        pause: float,
    ) -> None:
        """Play a partially bound gang that lacks a member.

        A rival needs all of its capacity or more, and the binds of another gang are always refused.
        """
        self.stage()
        fault = Fault("bind", "pods", f"gang-{len(self.w.gangs)}-*", nth=3, times=12, status=status, dry_run=False)
        half = GangSpec("half", kind, size=3, minimum=3, cpu=2, suspends=suspends, priority=priority, forgives=is_seen_late)
        self.arrive(half, [fault], 8.0)
        if is_filled:
            self.w.fill()
        if is_guarded:
            self.w.guard(self.w.gangs[-1])
        self.after("partially bound gang", 27.0)
        self.arrive(GangSpec("sick", size=1, minimum=1), [], 0.0)
        self.w.refuse_for_good(self.w.gangs[-1], "bind", 403, None)
        if is_seen_late:  # the watch shows members of a released gang as bound when they are gone
            self.w.lag("pods", 8.0)
        self.arrive(GangSpec("rival", size=rival, minimum=rival, cpu=2), [], 60.0)
        self.after("rival", pause)

    more_need_the_capacity_of_a_partially_bound_gang = others_need_the_capacity_of_a_partially_bound_gang

    @precondition(Schedules.has_place)
    @rule(
        kind=st.sampled_from(["job", "controlled"]),
        search=st.sampled_from([0.4, 0.6]),
        later=st.sampled_from([1.3, 1.4, 1.5]),
        pause=pauses,
    )
    def resources_are_freed_while_victims_are_chosen(self, kind: Kind, search: float, later: float, pause: float) -> None:
        """Play a partially bound, running gang and a rival that needs its capacity.

        Searches are long, and other capacity is freed meanwhile.
        """
        self.stage()
        fault = Fault("bind", "pods", f"gang-{len(self.w.gangs)}-*", nth=3, times=80, status=503, dry_run=False)
        self.arrive(GangSpec("half", kind, size=3, minimum=3, cpu=2, suspends=kind == "job"), [fault], 8.0)
        self.w.fill()
        self.after("partially bound gang", 35.0)
        self.w.slow_down(search)
        self.arrive(GangSpec("rival", size=1, minimum=1, cpu=3), [], later * search)
        self.w.remove_foreign()
        self.after("capacity", 6.0)
        self.w.slow_down(0.0)
        self.after("capacity", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, pause=pauses)
    def a_minimum_is_raised_beyond_the_capacity(self, gang: GangSpec, pause: float) -> None:
        """Play a whole gang that asks to be released when it loses members, and raise its minimum beyond the capacity."""
        self.stage()
        self.arrive(plain(gang, 3, minimum=2, least=0, kind="controlled", has_group=True, gives_up=True), [], 3.0)
        self.w.set_minimum(self.w.gangs[-1], 3)
        self.after("minimum raised", 40.0)
        self.after("minimum raised", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, pause=pauses)
    def a_gang_is_given_up_in_vain(self, gang: GangSpec, pause: float) -> None:
        """Play a gang that asks to be released when it can't be healed, and loses a bare member: it may not be released.

        Later another pod comes.
        """
        self.clear_stage()
        self.arrive(plain(gang, 3, cpu=1, least=0, kind="bare", gives_up=True), [], 3.0)
        self.w.delete_member(self.w.gangs[-1], 0, grace=0)
        self.after("member lost", 45.0)
        self.after("given up in vain", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, pause=pauses)
    def a_node_goes_before_its_pods_and_another_comes(self, gang: GangSpec, pause: float) -> None:
        """Play the deletion of a node, and the arrival of another before the watch reports that the first node's pods are gone."""
        [node] = self.stage()
        other = (node + 1) % NODES
        self.w.delete_node(other)
        self.arrive(plain(gang, 2, least=0, kind="controlled"), [], 6.0)
        self.w.lag("pods", 5.0)
        self.w.delete_node(node)
        self.after("node deleted", 0.3)
        self.w.recreate_node(other, NODE_CPU)
        self.after("node is back", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, pause=pauses)
    def the_binds_of_some_members_are_never_answered(self, gang: GangSpec, pause: float) -> None:
        """Play a partially bound gang whose missing members' binds get no answer for a minute."""
        self.clear_stage()
        silence = Fault("bind", "pods", f"gang-{len(self.w.gangs)}-*", nth=3, times=2000, drop=True, dry_run=False)
        self.arrive(plain(gang, max(3, gang.size), cpu=1, kind="controlled", least=0), [silence], 40.0)
        self.after("no answers", pause)

    @precondition(Schedules.has_gangs)
    @rule(gang=numbers, pause=st.sampled_from([2.0, 20.0]))
    def members_take_their_time_to_go(self, gang: int, pause: float) -> None:
        """Play the eviction of all members of a gang while finalizers hold them; only some of the new ones fit."""
        spec = self.gang(gang)
        self.w.hold(spec)
        self.w.fill()
        self.w.lose_all_bound(spec)
        self.after("held eviction", 3.0)
        self.w.remove_foreign()
        for node in range(4):
            self.w.bind_foreign(node, 2)
        self.after("held eviction", pause)
        self.w.remove_finalizers(f"{spec.name}-")
        self.after("let go", pause)

    @precondition(Schedules.has_place)
    @rule(first=gangs, second=gangs, pause=pauses)
    def two_priorities_need_the_same_capacity(self, first: GangSpec, second: GangSpec, pause: float) -> None:
        """Play full nodes, a waiting gang of priority 0 and then one of a high priority; then capacity for one of them is freed."""
        [node] = self.stage()
        self.w.fill()
        self.arrive(plain(first, 2, priority=0, is_single=first.is_single), [], 2.0)
        self.arrive(plain(second, 2, priority=HIGH_PRIORITY, is_single=second.is_single), [], 2.0)
        self.w.empty(node)
        self.after("capacity for one", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, rival=gangs, delay=st.sampled_from([0.0, 20.0, 70.0]), is_fenced=st.booleans(), pause=pauses)
    def binds_come_late_where_a_rival_needs_the_capacity(
        self, gang: GangSpec, rival: GangSpec, delay: float, is_fenced: bool, pause: float
    ) -> None:
        """Play a gang whose binds arrive late without an answer, or get indefinite errors; soon a rival needs the capacity."""
        self.stage()
        faults = [Fault("bind", "pods", f"gang-{len(self.w.gangs)}-*", times=40, status=0 if delay else 503, delay=delay, dry_run=False)]
        if not is_fenced:
            faults.append(Fault("patch", "pods", f"gang-{len(self.w.gangs)}-*", times=40, status=503))
        self.arrive(plain(gang, 2), faults, 6.0)
        self.arrive(plain(rival, 2), [], delay + 10.0)
        self.after("late binds", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, again=st.booleans(), pause=pauses)
    def a_run_ends_and_the_next_finds_less_capacity(self, gang: GangSpec, again: bool, pause: float) -> None:
        """Play a Job's next wave, or recreated bare pods, of which only some fit."""
        self.clear_stage()
        size = max(3, gang.size)
        self.arrive(plain(gang, size, kind="bare" if again else "job", completions=12), [], 6.0)
        spec = self.w.gangs[-1]
        for number in range(size if again else size - 1):  # the last pod of a Job's wave runs on
            self.w.finish(spec, number)
        self.w.leave_capacity()
        if again:
            self.w.run_again(spec)
        self.after("less capacity", pause)

    the_next_run_finds_less_capacity = a_run_ends_and_the_next_finds_less_capacity

    @precondition(Schedules.has_place)
    @rule(gang=gangs, act=acts.filter(lambda act: act.startswith("node ")), is_after=st.booleans(), pause=pauses)
    def a_node_is_lost_in_a_dry_run(self, gang: GangSpec, act: str, is_after: bool, pause: float) -> None:
        """Play a gang that needs both nodes with capacity; one of them changes during the dry run."""
        node, _ = self.stage(2)
        self.w.act_at("bind", 1, lambda: self.act_on_node(act.removeprefix("node "), node, 0), after=is_after, is_dry_run=True)
        self.arrive(plain(gang, 4), [], 20.0)
        self.after("node lost", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, waits=st.sampled_from([20.0, 40.0, 80.0]), pause=pauses)
    def a_gang_that_has_waited_for_long_is_placed(self, gang: GangSpec, waits: float, pause: float) -> None:
        """Play a gang that waits beyond its time-out; then one event frees capacity, and nothing else happens."""
        [node] = self.stage()
        self.w.fill()
        self.arrive(plain(gang, 2), [], waits)
        self.w.empty(node)
        self.after("capacity at last", 40.0)
        self.after("capacity at last", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, pause=pauses)
    def resources_are_freed_that_no_watch_reports(self, gang: GangSpec, pause: float) -> None:
        """Play capacity that is freed while the watches are broken and the history is forgotten: only a list can show it."""
        [node] = self.stage()
        self.w.fill()
        self.arrive(plain(gang, 2), [], 3.0)
        self.w.drop_watches()
        self.w.empty(node)
        self.w.compact()
        self.after("unreported capacity", 40.0)
        self.after("unreported capacity", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, status=st.sampled_from([403, 429, 503]), times=st.sampled_from([1, 4, 40]), pause=pauses)
    def one_role_is_refused_in_the_dry_run(self, gang: GangSpec, status: int, times: int, pause: float) -> None:
        """Play a gang of which all members of one role are refused in the dry run."""
        self.clear_stage()
        name = f"gang-{len(self.w.gangs)}-ps-*"
        refusal = Fault("bind", "pods", name, times=times, status=status, dry_run=True)
        spec = replace(plain(gang, 3, cpu=1, kind="controlled"), others=(Role("ps", 2),), minimum=5, least=min(gang.least, 1))
        self.arrive(spec, [refusal], 20.0)
        self.after("role refused", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, kind=st.sampled_from(["controlled", "bare", "job"]), cpu=st.sampled_from([2, 9, 9]), pause=pauses)
    def a_role_is_needed_that_may_not_fit(self, gang: GangSpec, kind: Kind, cpu: int, pause: float) -> None:
        """Play a gang with a minimum for a role whose members may not fit; without the role it has enough members."""
        self.clear_stage()
        spec = plain(gang, 4, cpu=1, kind=kind, minimum=2, completions=0, others=(Role("ps", 1, cpu),), least=1)
        self.arrive(spec, [], 20.0)
        self.after("no capacity for a role", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, waits=st.sampled_from([3.0, 80.0]), pause=pauses)
    def a_pod_group_goes_while_its_gang_waits(self, gang: GangSpec, waits: float, pause: float) -> None:
        """Play a waiting gang whose PodGroup is deleted; capacity is freed soon, or long afterwards."""
        [node] = self.stage()
        self.w.fill()
        self.arrive(plain(gang, 2, has_group=True), [], 3.0)
        self.w.delete_group(self.w.gangs[-1])
        self.after("PodGroup deleted", waits)
        self.w.empty(node)
        self.after("capacity without a PodGroup", 20.0)
        self.after("capacity without a PodGroup", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, kind=st.sampled_from(["bare", "job"]), member=numbers, is_group=st.booleans(), pause=pauses)
    def a_member_is_lost_in_a_dry_run(self, gang: GangSpec, kind: Kind, member: int, is_group: bool, pause: float) -> None:
        """Play a gang that loses a member after the dry run, or its PodGroup during it."""
        self.stage(2)
        spec = plain(gang, 4, kind=kind, has_group=is_group)

        def lose() -> None:
            if is_group:
                self.w.delete_group(self.w.gangs[-1])
            else:
                self.w.delete_member(self.w.gangs[-1], member, grace=0)

        self.w.act_at("bind", 1 if is_group else spec.size, lose, after=not is_group, is_dry_run=True)
        self.arrive(spec, [], 20.0)
        self.after("member lost", pause)

    @precondition(Schedules.has_place)
    @rule(low=gangs, high=gangs, pause=pauses)
    def a_gang_heals_where_a_higher_one_waits(self, low: GangSpec, high: GangSpec, pause: float) -> None:
        """Play a gang that has lost a member beside one of a higher priority that needs all of the freed capacity."""
        [node] = self.stage()
        self.arrive(plain(low, 4, cpu=1, priority=0, kind="controlled"), [], 5.0)
        self.w.fill()
        self.w.delete_member(self.w.gangs[-1], 0, grace=0)
        self.w.fill()
        self.after("healing", 3.0)
        self.arrive(plain(high, 5, cpu=1, priority=HIGH_PRIORITY), [], 20.0)
        self.w.empty(node)
        self.after("capacity for one", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, sick=st.integers(1, 3), pause=pauses)
    def a_gang_waits_beside_refused_gangs(self, gang: GangSpec, sick: int, pause: float) -> None:
        """Play gangs whose binds are refused for good and one without faults, which all wait for the same capacity."""
        [node] = self.stage()
        self.w.fill()
        for _ in range(sick):
            self.arrive(plain(gang, 2), [], 0.0)
            self.w.refuse_for_good(self.w.gangs[-1], "bind", 403, None)
        self.arrive(plain(gang, 2), [], 2.0)
        self.w.empty(node)
        self.after("capacity for one", 15.0)
        self.after("capacity for one", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, kind=st.sampled_from(["bare", "recreated"]), pause=st.sampled_from([2.0, 20.0]))
    def a_gang_waits_behind_a_gate(self, gang: GangSpec, kind: Kind, pause: float) -> None:
        self.arrive(replace(gang, kind=kind, is_gated=True, is_single=False), [], pause)
        self.w.open_gates(self.w.gangs[-1])
        self.after("gate", pause)
