"""Builds the scheduling cycle from its parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allaboard.binding.bind import Binder
from allaboard.binding.job_suspension import JobRestarter
from allaboard.binding.preempting import Evictions
from allaboard.binding.requester import Requester
from allaboard.binding.transaction import DryRun, Transactions
from allaboard.binding.volume_binding import VolumeBinder
from allaboard.cluster.budgets import Budget
from allaboard.leadership.fencing import Term
from allaboard.model.gang import GangKey
from allaboard.model.pod import Pod
from allaboard.planning.advice import Advisor
from allaboard.planning.advice_finder import AdviceFinder
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.long_searches import LongSearches
from allaboard.planning.planner import Planner
from allaboard.planning.policy import POLICY, Policy
from allaboard.planning.preemption import Preemptions
from allaboard.planning.reservations import Reservations
from allaboard.planning.round import Round
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.ranks import Ranks
from allaboard.queueing.requeue import Returned
from allaboard.queueing.search_time import SearchTime
from allaboard.records.backoff import Backoff
from allaboard.report.reporter import Reporter
from allaboard.scheduling.cycle import Cycle
from allaboard.scheduling.due import DueGangs
from allaboard.scheduling.execute import Executor
from allaboard.scheduling.longer import LongerSearches
from allaboard.scheduling.partial_binds import PartialBinds
from allaboard.scheduling.provisioning import REQUEST_BACKOFF, Provisionings
from allaboard.scheduling.tasks import GangTasks
from allaboard.scheduling.unresolved_binds import UnresolvedBinds
from allaboard.scheduling.victims import Victims


@dataclass(frozen=True, slots=True)
class Writers:
    """The objects that write binds, releases, suspensions of Jobs and fences to the API server.

    ``dry_run`` says for which members the bind is dry-run first: one of each role, all, or none. ``requester`` asks an autoscaler for
    nodes; None if none is asked. ``request_backoff`` has the pauses after requests that brought no nodes. ``volumes`` binds the volumes of
    claims that wait for the nodes of their pods; None if no volumes are bound. ``may_refuse`` returns whether admission may refuse binds in
    a namespace.
    """

    binder: Binder
    restarter: JobRestarter
    term: Term
    dry_run: DryRun = "role"
    requester: Requester | None = None
    request_backoff: Backoff = REQUEST_BACKOFF
    volumes: VolumeBinder | None = None
    may_refuse: Callable[[str], bool] = lambda namespace: True


def cycle_of(
    gangs: KnownGangs,
    queue: GangQueue,
    ranks: Ranks,
    planner: Planner,
    reporter: Reporter,
    writers: Writers,
    policy: Policy = POLICY,
    budgets_of: Callable[[Pod], Sequence[Budget]] = lambda pod: (),
    is_fresh: Callable[[], bool] = lambda: True,
) -> Cycle:
    """Return a scheduling cycle that is built from these parts.

    ``policy`` says which gangs may start before others. ``budgets_of`` returns the disruption budgets that protect a pod. ``is_fresh``
    returns whether the cached cluster state is recent enough to decide by.
    """
    records, clock = gangs.records, gangs.clock
    long = LongSearches(records, clock, SearchTime(clock))
    planner.costs.metrics.gauge("long_searches_waiting", lambda: len(long))
    finder = AdviceFinder(gangs, planner, reporter)
    advisor = Advisor(records, finder.find, finder.report, clock)
    partial_binds = PartialBinds(gangs, writers.binder, writers.restarter)
    unresolved = UnresolvedBinds(gangs.view, writers.term, clock)
    tasks = GangTasks(records, queue)
    transactions = Transactions(gangs.view, writers.binder, writers.dry_run, writers.volumes, writers.may_refuse)

    def waited(key: GangKey) -> float:
        return clock() - wait.since if (wait := gangs.waits.find(key)) else 0.0

    reservations = Reservations(planner, waited, policy.reservations, on_end=lambda: queue.observe(Returned()))

    def end_reservation(key: GangKey) -> None:
        """Make a gang due whose last living member is gone, so that its reservation ends now and not after the gang's backoff."""
        if planner.ledger.find(key) is not None and gangs.registry.first_member(key) is None:
            queue.wake(key)

    gangs.registry.listen(end_reservation)
    registry = gangs.registry
    preemptions = Preemptions(
        planner, registry.bound_gangs, waited, policy.preemption, budgets_of, gangs.foreign_pods, registry.tolerates_eviction
    )
    evictions = Evictions(writers.binder, policy.preemption.despite_budgets)
    provisionings = Provisionings(gangs, writers.requester, writers.request_backoff)
    provisionings.requests.on_change = queue.wake
    executor = Executor(
        gangs,
        queue,
        reporter,
        partial_binds,
        transactions,
        unresolved,
        advisor,
        tasks,
        planner.ledger,
        preemptions,
        evictions,
        provisionings,
    )
    due = DueGangs(gangs, queue, ranks, tasks, long, unresolved, executor)
    queue.ready = reservations.owners_with_free_capacity
    planning_round = Round(planner, records, reservations, preemptions)
    victims = Victims(gangs, writers.binder, planner, unresolved)
    longer = LongerSearches(gangs, planning_round, long, due, victims, executor, is_fresh)
    return Cycle(queue, ranks, due, planning_round, longer, executor, advisor, is_fresh)
