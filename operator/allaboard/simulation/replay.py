"""Replays one workload with one strategy: gangs arrive, start or wait, run and finish.

The replay keeps the state of the cluster; the strategy doesn't. It checks each assignment that the strategy returns, and starts a gang
whole or not at all.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from allaboard.simulation.fragmentation import Fragmentation, TargetMix
from allaboard.simulation.player import Assignments, Player
from allaboard.simulation.state import BadAssignmentError, ClusterState, Started
from allaboard.simulation.waits import PlacedGang
from allaboard.simulation.workload import WHOLE_GPU_MILLI, Arrival, Workload

SAMPLES = 200
"""Approximate number of samples in a timeline, besides a first sample that is taken before the first arrival."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment.

    ``arrived_percent``: GPUs requested by all gangs that have arrived, as a percentage of all GPUs. ``allocated_percent``: allocated GPUs,
    as a percentage of all GPUs. Both are of cpu if there are no GPUs. ``fragmentation_percent``: expected fragmented GPUs, as a percentage
    of all GPUs. ``gangs_waiting``: the gangs in the queue. ``waiting_seconds``: mean wait of the gangs placed so far; in the last sample,
    the mean of the whole replay.
    """

    at_seconds: float
    arrived_percent: float
    allocated_percent: float
    fragmentation_percent: float
    gangs_placed: int
    pods_failed: int
    waiting_seconds: float
    gangs_waiting: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """The figures of one replay.

    If tasks stay for ever, percentages are those at the end. If gangs run and finish, percentages are means over the time from the first
    arrival to the last finish. ``pods_failed`` is the number of pods that were never placed. ``gangs`` are the gangs that were placed, if
    gangs wait.
    """

    gpus_total: int
    gpus_unallocated_percent: float
    pods_failed: int
    fragmentation_percent: float
    gangs_placed: int
    gangs_failed: int
    waiting_seconds_mean: float
    makespan_seconds: float
    timeline: tuple[Sample, ...]
    gangs: tuple[PlacedGang, ...] = ()
    gangs_preempted: int = 0
    lost_seconds: float = 0.0
    reserved_idle_percent: float = 0.0


def replay(workload: Workload, strategy: Player, mix: TargetMix, *, batch: int = 1, samples: int = SAMPLES) -> Replay:
    """Return the figures of a replay of ``workload``. Raises ``BadAssignmentError``.

    If gangs don't wait, ``batch`` gangs arrive at a time. If gangs wait, all gangs that are due are offered to ``strategy`` at once.
    """
    run = _Run(workload, strategy, mix, batch, samples)
    return run.in_time() if workload.waits else run.in_order()


class _Run:
    def __init__(self, workload: Workload, strategy: Player, mix: TargetMix, batch: int, samples: int) -> None:
        self.workload = workload
        self.strategy = strategy
        self.batch = batch
        self.state = ClusterState(workload.nodes, workload.classes)
        self.fragmentation = Fragmentation(mix, self.state)
        self.now = 0.0
        self.queue: list[Arrival] = []
        self.running: list[tuple[float, int]] = []  # (end, number) of each gang that ends; a number that was evicted is skipped
        self.arrivals: dict[int, Arrival] = {}  # by the number of a gang that runs
        self.gangs_preempted, self.lost_seconds = 0, 0.0
        self.arrived = self.gangs_placed = self.pods_failed = 0
        self.waited_seconds = 0.0
        self.timeline: list[Sample] = []
        self.placed: dict[int, PlacedGang] = {}
        self.started = 0
        self._every = max(1, len(workload.arrivals) // samples)

    def in_order(self) -> Replay:
        """Replay tasks that don't wait, one batch after another. Tasks that don't fit are dropped."""
        self._sample()
        arrivals = self.workload.arrivals
        sampled = 0
        for first in range(0, len(arrivals), self.batch):
            batch = arrivals[first : first + self.batch]
            self._arrive(batch)
            for arrival in self._offer(batch):
                self.pods_failed += len(arrival.members)
            if first >= sampled:
                self._sample()
                sampled += self._every
        self._sample()
        last = self.timeline[-1]
        return self._outcome(last.allocated_percent, last.fragmentation_percent)

    def in_time(self) -> Replay:
        """Replay gangs that wait until they fit, and that release their capacity when they finish.

        1. Advance to the next moment at which a gang arrives or finishes, and release the gangs that finish.
        2. Queue the gangs that arrive: by priority, then by arrival.
        3. Offer all waiting gangs to the strategy if capacity was released, otherwise only the gangs that have just arrived.
        4. Evict the pods that the strategy names, queue their gangs again, and offer all waiting gangs, until it names none.
        """
        arrivals = sorted(self.workload.arrivals, key=lambda arrival: arrival.at_seconds)
        self.now = self.state.now = start = arrivals[0].at_seconds if arrivals else 0.0
        self._sample()
        position = sampled = 0
        allocated = fragmented = idle = 0.0
        while position < len(arrivals) or self.running:
            coming = arrivals[position].at_seconds if position < len(arrivals) else inf
            moment = min(coming, self.running[0][0] if self.running else inf)
            allocated += (moment - self.now) * self._allocated_percent()
            fragmented += (moment - self.now) * self._fragmentation_percent()
            idle += (moment - self.now) * self.strategy.reserved_gpus() * 100.0 * WHOLE_GPU_MILLI / max(1, self.state.gpu_milli)
            self.now = self.state.now = moment
            has_freed = self._finish()
            if not has_freed and moment < coming:
                continue  # a gang would have ended that was evicted
            first = position
            while position < len(arrivals) and arrivals[position].at_seconds <= self.now:
                position += 1
            self._arrive(arrivals[first:position])
            self.queue += arrivals[first:position]
            self._sort()
            newcomers = {id(arrival) for arrival in arrivals[first:position]}
            tried = self.queue if has_freed else [arrival for arrival in self.queue if id(arrival) in newcomers]
            self._place(tried)
            while self._evict():
                self._place(self.queue)
            if position >= sampled:
                self._sample()
                sampled = position + self._every if position < len(arrivals) else position
        self.pods_failed += sum(len(arrival.members) for arrival in self.queue)
        span = self.now - start
        if span:
            return self._outcome(allocated / span, fragmented / span, span, idle / span)
        last = self.timeline[-1]
        return self._outcome(last.allocated_percent, last.fragmentation_percent)

    def _sort(self) -> None:
        self.queue.sort(key=lambda arrival: (-arrival.priority, arrival.at_seconds))

    def _place(self, tried: Sequence[Arrival]) -> None:
        """Offer waiting gangs to the strategy, and take those from the queue that it places."""
        left = {id(arrival) for arrival in self._offer(tried)}
        gone = {id(arrival) for arrival in tried} - left
        self.queue = [arrival for arrival in self.queue if id(arrival) not in gone]

    def _evict(self) -> bool:
        """Evict the pods that the strategy names, and queue the gangs again that lack members then. Return whether it names any."""
        evictions = self.strategy.evictions()
        for number, lost in evictions:
            gang = self.state.started[number]
            for pod in sorted(lost):
                member, assignment = gang.taken[pod]
                self.state.release(member, assignment)
                gpus = self.workload.classes[member].gpu_total_milli / WHOLE_GPU_MILLI
                self.lost_seconds += max(1.0, gpus) * (self.now - gang.at_seconds)
            left = {pod: taken for pod, taken in gang.taken.items() if pod not in lost}
            if left:
                self.state.started[number] = replace(gang, taken=left)
                self.pods_failed += len(lost)
                continue
            placed, arrival = self.placed.pop(number), self.arrivals.pop(number)
            del self.state.started[number]
            self.gangs_preempted += 1
            self.gangs_placed -= 1
            self.waited_seconds -= placed.waited
            self.queue.append(arrival)
        self._sort()
        return bool(evictions)

    def _arrive(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            for member in arrival.members:
                task = self.workload.classes[member]
                self.arrived += task.gpu_total_milli if self.state.gpu_milli else task.cpu_milli

    def _offer(self, pending: Sequence[Arrival]) -> list[Arrival]:
        """Offer ``pending`` to the strategy and start the gangs that it places. Return the gangs that it doesn't place."""
        found = self.strategy.place(self.state, pending) if pending else []
        if len(found) != len(pending):
            raise BadAssignmentError(f"the strategy returned answers for {len(found)} of {len(pending)} gangs")
        left = []
        for arrival, assignments in zip(pending, found, strict=True):
            if assignments is None:
                left.append(arrival)
            else:
                self._start(arrival, assignments)
        return left

    def _start(self, arrival: Arrival, assignments: Assignments) -> None:
        if len(assignments) != len(arrival.members):
            raise BadAssignmentError(
                f"the strategy returned {len(assignments)} assignments for the {len(arrival.members)} members of {arrival.name}"
            )
        taken = tuple(
            (member, assignment) for member, assignment in zip(arrival.members, assignments, strict=True) if assignment is not None
        )
        if len(taken) < arrival.minimum:
            raise BadAssignmentError(f"the strategy assigns {len(taken)} members of {arrival.name}, which needs {arrival.minimum}")
        for member, assignment in taken:
            self.state.take(member, assignment)
        self.gangs_placed += 1
        self.started += 1
        self.pods_failed += len(assignments) - len(taken)
        self.waited_seconds += self.now - arrival.at_seconds if self.workload.waits else 0.0
        if self.workload.waits:
            gpus = self.workload.gpu_milli_of(arrival) / WHOLE_GPU_MILLI
            expected = self.strategy.expected_start(arrival.name)
            self.placed[self.started] = PlacedGang(
                arrival.name, gpus, arrival.priority, arrival.at_seconds, self.now, arrival.run_seconds, expected, arrival.namespace
            )
        walltime = arrival.walltime_seconds if arrival.run_seconds is not None else inf
        self.state.started[self.started] = Started(
            self.now, walltime, dict(enumerate(taken)), arrival.priority, arrival.minimum, arrival.namespace
        )
        self.arrivals[self.started] = arrival
        if arrival.run_seconds is not None:
            heapq.heappush(self.running, (self.now + arrival.run_seconds, self.started))

    def _finish(self) -> bool:
        has_freed = False
        while self.running and self.running[0][0] <= self.now:
            _, number = heapq.heappop(self.running)
            gang = self.state.started.pop(number, None)
            self.arrivals.pop(number, None)
            for member, assignment in gang.taken.values() if gang else ():
                self.state.release(member, assignment)
                has_freed = True
        return has_freed

    def _allocated_percent(self) -> float:
        state = self.state
        free, total = (state.free_gpu_milli, state.gpu_milli) if state.gpu_milli else (state.free_cpu_milli, state.cpu_milli)
        return 100.0 * (total - free) / max(1, total)

    def _fragmentation_percent(self) -> float:
        return 100.0 * self.fragmentation.gpu_milli() / max(1, self.state.gpu_milli)

    def _waited_seconds_mean(self) -> float:
        return self.waited_seconds / max(1, self.gangs_placed)

    def _sample(self) -> None:
        total = self.state.gpu_milli or self.state.cpu_milli
        sample = Sample(
            at_seconds=self.now,
            arrived_percent=100.0 * self.arrived / max(1, total),
            allocated_percent=self._allocated_percent(),
            fragmentation_percent=self._fragmentation_percent(),
            gangs_placed=self.gangs_placed,
            pods_failed=self.pods_failed,
            waiting_seconds=self._waited_seconds_mean(),
            gangs_waiting=len(self.queue),
        )
        self.timeline.append(sample)

    def _outcome(self, allocated_percent: float, fragmentation_percent: float, span: float = 0.0, idle_percent: float = 0.0) -> Replay:
        placed = self.gangs_placed
        return Replay(
            gpus_total=self.state.gpu_milli // WHOLE_GPU_MILLI,
            gpus_unallocated_percent=100.0 - allocated_percent if self.state.gpu_milli else 0.0,
            pods_failed=self.pods_failed,
            fragmentation_percent=fragmentation_percent,
            gangs_placed=placed,
            gangs_failed=len(self.workload.arrivals) - placed,
            waiting_seconds_mean=self._waited_seconds_mean(),
            makespan_seconds=span,
            timeline=tuple(self.timeline),
            gangs=tuple(self.placed.values()),
            gangs_preempted=self.gangs_preempted,
            lost_seconds=self.lost_seconds,
            reserved_idle_percent=idle_percent,
        )
