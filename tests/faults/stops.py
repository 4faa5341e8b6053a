"""Random schedules in which the scheduler is stopped, killed or stands still at any moment."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from allaboard_sandbox import Fault

from .draws import gangs, numbers, pauses, standstills
from .gangs import HIGH_PRIORITY, STAMP, GangSpec, Kind
from .scenes import Scenes, plain
from .schedules import Schedules


class SchedulesWithRestarts(Scenes):
    """Scenes in which the scheduler is also shut down or killed at any moment, and restarts without memory."""

    def cut_off(self, gang: GangSpec, sizes: Sequence[int], highest: int | None = None, last: Kind = "controlled") -> Sequence[GangSpec]:
        """Kill the scheduler when two members of each of some gangs are bound, fill the nodes, and return the gangs.

        The gang with the number ``highest`` has a high priority, and the last gang is of the kind ``last``.
        """
        self.stage(2)
        for number, size in enumerate(sizes):
            self.w.hold_binds(f"gang-{len(self.w.gangs)}-*", nth=3)
            kind = last if number == len(sizes) - 1 else "controlled"
            priority = HIGH_PRIORITY if number == highest else 0
            self.arrive(plain(gang, size, cpu=1, kind=kind, least=0, priority=priority, completions=0), [], 0.0)
        halves = self.w.gangs[-len(sizes) :]
        self.after("cut off", 1.0)
        self.w.crash(1.0)
        self.w.fill()
        return halves

    @rule(down=st.sampled_from([0.0, 1.0, 10.0]), pause=pauses)
    def the_scheduler_is_restarted(self, down: float, pause: float) -> None:
        self.w.restart(down)
        self.after("restart", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, delay=st.sampled_from([1.0, 4.0]), pause=pauses)
    def the_scheduler_is_stopped_in_a_commit(self, gang: GangSpec, delay: float, pause: float) -> None:
        """Shut the scheduler down while its binds are slow."""
        self.stage(2)
        slow = Fault("bind", "pods", f"gang-{len(self.w.gangs)}-*", times=8, status=0, delay=delay, dry_run=False)
        self.arrive(plain(gang, 4, cpu=2), [slow], 0.5)
        self.w.restart(1.0)
        self.after("stop in a commit", pause)

    @rule(down=st.sampled_from([0.0, 1.0, 10.0]), pause=pauses)
    def the_scheduler_is_killed(self, down: float, pause: float) -> None:
        self.w.crash(down)
        self.after("kill", pause)

    @precondition(Schedules.has_gangs)
    @rule(gang=numbers, losses=st.integers(1, 2), is_full=st.booleans(), pause=pauses)
    def members_are_lost_while_no_scheduler_runs(self, gang: int, losses: int, is_full: bool, pause: float) -> None:
        spec = self.gang(gang)
        self.w.kill_all()
        for member in range(losses):
            self.w.delete_member(spec, member, grace=0)
        if is_full:
            self.w.fill()
        self.w.advance(3.0)
        self.w.start_all()
        self.after("losses unseen", 20.0)
        self.after("losses unseen", pause)

    @rule(
        request=st.sampled_from([("bind", "pods"), ("bind", "pods"), ("delete", "pods"), ("patch", "*"), ("create", "*"), ("get", "*")]),
        nth=st.integers(1, 6),
        is_after=st.booleans(),
        down=st.sampled_from([0.0, 1.0, 10.0]),
        pause=pauses,
    )
    def the_scheduler_will_be_killed(self, request: tuple[str, str], nth: int, is_after: bool, down: float, pause: float) -> None:
        self.w.crash_at(*request, nth, after=is_after, down_seconds=down)
        self.after("kill at a request", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, nth=st.integers(1, 5), is_after=st.booleans(), is_full=st.booleans(), pause=pauses)
    def the_scheduler_is_killed_in_a_commit(self, gang: GangSpec, nth: int, is_after: bool, is_full: bool, pause: float) -> None:
        self.stage(2)
        self.w.crash_at("bind", "pods", nth, after=is_after, down_seconds=5.0)
        self.arrive(plain(gang, max(4, gang.size), cpu=2), [], 1.0)
        if is_full:
            # the gang that is partially bound can't be finished now
            self.w.fill()
        self.after("kill in a commit", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, losses=st.sampled_from([1, 2, 2]), nth=st.sampled_from([2, 3, 3, 4]), pause=pauses)
    def the_scheduler_is_killed_while_a_gang_heals(self, gang: GangSpec, losses: int, nth: int, pause: float) -> None:
        """Play a gang that isn't whole again when the next scheduler starts, beside another that needs its freed capacity."""
        [node] = self.stage()
        self.arrive(plain(gang, 4, cpu=2, kind="controlled"), [], 5.0)
        self.w.crash_at("bind", "pods", nth, after=False, down_seconds=2.0)
        for _ in range(losses):
            self.w.delete_member(self.w.gangs[-1], 0, grace=0)
        self.after("kill while healing", 1.0)
        self.w.bind_foreign(node, 2)
        self.arrive(plain(gang, 3, cpu=2), [], 80.0)
        self.after("kill while healing", pause)

    @precondition(Schedules.has_place)
    @rule(
        gang=gangs,
        sizes=st.sampled_from([(4, 4, 4), (4, 4, 4), (4, 4, 4), (3, 4, 5), (5, 4, 3)]),
        highest=st.sampled_from([None, None, None, 0, 1, 2]),
        is_held=st.booleans(),
        refusals=st.sampled_from([0, 0, 4]),
        pause=pauses,
    )
    def gangs_are_cut_off_and_need_each_others_capacity(
        self, gang: GangSpec, sizes: tuple[int, ...], highest: int | None, is_held: bool, refusals: int, pause: float
    ) -> None:
        """Play partially bound gangs on full nodes, where the capacity of one would finish another.

        Members of released gangs may terminate slowly, or their eviction may be refused at first.
        """
        halves = self.cut_off(gang, sizes, highest)
        if refusals:
            self.w.fault(Fault("evict", "pods", times=refusals, status=403))
        if is_held:
            for half in halves:
                self.w.hold(half)
        self.after("cut off", 50.0)
        if is_held:
            self.arrive(plain(gang, 2, cpu=1), [], 20.0)
            for half in halves:
                self.w.remove_finalizers(f"{half.name}-")
        self.after("cut off", 40.0 if refusals else 0.0)
        self.after("cut off", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, size=st.sampled_from([2, 6, 6]), pause=pauses)
    def one_gang_is_released_for_another_that_can_not_be(self, gang: GangSpec, size: int, pause: float) -> None:
        """Play three partially bound gangs of which the first can't be released, and a gang that needs more capacity."""
        first, *others = self.cut_off(gang, (4, 4, 4))
        self.w.refuse_for_good(first, "evict", 500, None)
        for other in others:
            self.w.hold(other)
        self.arrive(plain(gang, size, cpu=1, priority=0), [], 50.0)
        for other in others:
            self.w.remove_finalizers(f"{other.name}-")
        self.after("released for another", pause)

    @precondition(Schedules.has_place)
    @rule(
        gang=gangs,
        last=st.sampled_from(["job", "job", "controlled"]),
        suspends=st.sampled_from([True, True, False]),
        highest=st.sampled_from([None, None, 1]),
        trouble=st.sampled_from(["none", "slow", "refused", "refused for good", "guarded"]),
        rival=st.sampled_from([2, 4]),
        ends=st.booleans(),
        pause=pauses,
    )
    def gangs_that_are_cut_off_are_released_in_vain(
        self, gang: GangSpec, last: Kind, suspends: bool, highest: int | None, trouble: str, rival: int, ends: bool, pause: float
    ) -> None:
        """Play two partially bound gangs beside one that needs the capacity of one or both, where not all can be released."""
        halves = self.cut_off(replace(gang, suspends=suspends, forgives=False), (4, 4), highest, last)
        match trouble:
            case "refused":
                self.w.fault(Fault("evict", "pods", times=4, status=403))
            case "refused for good":
                for half in halves:  # the dry run of the eviction succeeds
                    self.w.fault(Fault("evict", "pods", f"{half.name}-*", times=400, status=403))
            case "guarded":
                self.w.guard(halves[-1])
        self.after("cut off", 26.0)
        if trouble == "slow":
            self.w.fault(Fault("get", "jobs", status=0, delay=12.0))
        self.arrive(plain(gang, rival, cpu=1, kind="controlled", least=0, priority=0), [], 50.0)
        if ends:
            self.w.remove_foreign()
        self.after("released in vain", 60.0)
        self.after("released in vain", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, minimum=st.integers(7, 99), pause=pauses)
    def a_tenant_forges_stamps_before_a_restart(self, gang: GangSpec, minimum: int, pause: float) -> None:
        """Forge the stamp of a whole gang before a restart: without PodGroups only its pods state a minimum."""
        self.stage()
        self.arrive(plain(gang, 4, cpu=1, kind="controlled", least=0), [], 0.5)
        self.w.annotate(self.w.gangs[-1], {STAMP: f"deadbeef/{minimum}"})
        self.w.crash(0.5)
        self.after("forged stamp", 40.0)
        self.after("forged stamp", pause)

    # These rules are listed several times, so that they are drawn more often than others.
    killed_in_another_commit = killed_in_a_third_commit = the_scheduler_is_killed_in_a_commit
    others_are_lost_while_no_scheduler_runs = members_are_lost_while_no_scheduler_runs
    others_are_released_in_vain = gangs_that_are_cut_off_are_released_in_vain
    others_are_cut_off = gangs_are_cut_off_and_need_each_others_capacity
    killed_while_another_heals = killed_while_a_third_heals = the_scheduler_is_killed_while_a_gang_heals


class SchedulesWithWebhooks(SchedulesWithRestarts):
    """Random schedules in which binds are dry-run only from when a webhook matches them, which may come at any moment."""

    watches_admission = True


class SchedulesWithLeaders(SchedulesWithRestarts):
    """Scenes with two replicas; the leader also stands still at any moment, and goes on when the other has taken over."""

    replicas = 2

    @rule(seconds=standstills, pause=pauses)
    def the_leader_stands_still(self, seconds: float, pause: float) -> None:
        self.w.stall(seconds)
        self.after("standstill", pause)

    @rule(
        request=st.sampled_from([("bind", "pods"), ("delete", "pods"), ("evict", "pods"), ("patch", "*"), ("update", "leases")]),
        nth=st.integers(1, 6),
        is_after=st.booleans(),
        seconds=standstills,
        pause=pauses,
    )
    def the_leader_will_stand_still(self, request: tuple[str, str], nth: int, is_after: bool, seconds: float, pause: float) -> None:
        self.w.stall_at(*request, nth, after=is_after, seconds=seconds)
        self.after("standstill at a request", pause)

    @precondition(Schedules.has_place)
    @rule(gang=gangs, nth=st.integers(1, 5), rival=gangs, is_full=st.booleans(), seconds=standstills, pause=pauses)
    def the_leader_stands_still_in_a_commit(
        self, gang: GangSpec, nth: int, rival: GangSpec, is_full: bool, seconds: float, pause: float
    ) -> None:
        """Stop the leader in a commit; its binds arrive when another leader may have assigned the capacity to the ``rival``."""
        self.w.stall_at("bind", "pods", nth, after=False, seconds=seconds)
        self.arrive(gang, [], 1.0)
        if is_full:
            self.w.fill()
        self.arrive(rival, [], pause)

    @precondition(Schedules.has_place)
    @rule(
        gang=gangs, nth=st.integers(5, 7), rival=gangs, is_fenced=st.booleans(), seconds=st.sampled_from([25.0, 40.0, 60.0]), pause=pauses
    )
    def binds_of_an_earlier_leader_come_late(
        self, gang: GangSpec, nth: int, rival: GangSpec, is_fenced: bool, seconds: float, pause: float
    ) -> None:
        """Only one of two gangs fits: stop the leader between two binds until the next leader may have bound the rival."""
        self.stage()
        self.w.stall_at("bind", "pods", nth, after=False, seconds=seconds)
        faults = [] if is_fenced else [Fault("patch", "pods", f"gang-{len(self.w.gangs)}-*", times=400, status=503)]
        self.arrive(plain(gang, 4, cpu=2, kind="bare", has_group=False), faults, 20.0)
        self.arrive(plain(rival, 2, cpu=2), [], seconds)
        self.after("late binds", pause)

    stands_still_in_another_commit = stands_still_in_a_third_commit = the_leader_stands_still_in_a_commit
