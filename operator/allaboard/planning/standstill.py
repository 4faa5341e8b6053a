"""Runs planning rounds for gangs that are all due at one moment, for ``allaboard plan`` and for each moment of a simulation.

In the scheduler's cycle time passes: long searches end beside the cycle, and gangs whose surplus found no capacity are attempted again
later. Here these steps follow each other until no gang is left.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing

from allaboard.cluster.reservations import Ledger
from allaboard.cluster.running import RunningPods
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.placement import SearchSettings
from allaboard.planning.answers import Answer, Placed, SearchLonger
from allaboard.planning.gang_problem import Packings
from allaboard.planning.planner import SEED, Cluster, Planner
from allaboard.planning.plugin_processes import Arguments, PluginProcesses
from allaboard.planning.policy import POLICY, Policy
from allaboard.planning.preemption import Preemptions
from allaboard.planning.prepared import PreparedGang
from allaboard.planning.reservations import Reservations
from allaboard.planning.round import Round
from allaboard.planning.search_costs import SearchCosts
from allaboard.planning.search_processes import Searcher
from allaboard.queueing.fair_share import FairShare
from allaboard.queueing.search_time import SearchTime
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order
from allaboard.report.metrics import Metrics


class Standstill(ABC):
    """Gangs that are all due at one moment. No namespace has used search time, and no gang becomes due later.

    ``running`` are the pods that run in ``cluster``. Searches and plug-ins run in this process. ``arguments`` are the plug-ins' keyword
    arguments.
    """

    def __init__(
        self,
        cluster: Cluster,
        running: RunningPods,
        search: SearchSettings,
        packings: Packings,
        arguments: Arguments | None = None,
        seed: int = SEED,
        policy: Policy = POLICY,
    ) -> None:
        self._records = GangRecords()
        self._shares = FairShare(policy.fair_share, self.now)
        costs, plugin_processes = SearchCosts(Metrics(), SearchTime(_no_time), _no_time), PluginProcesses(arguments, has_processes=False)
        searcher = Searcher(search, workers=0)
        ledger = Ledger(running, self.place, self.now, policy.backfill)
        self._planner = Planner(cluster, self._records, searcher, costs, packings, ledger, plugin_processes, seed)
        self._reservations = Reservations(self._planner, self.waited, policy.reservations)
        self._preemptions = Preemptions(
            self._planner, self.running, self.waited, policy.preemption, foreign=self.foreign, tolerates=self.tolerates
        )
        self._round = Round(self._planner, self._records, self._reservations, self._preemptions)
        self._waiting: deque[GangKey] = deque()

    @abstractmethod
    def gang(self, key: GangKey) -> Gang | None:
        """Return a gang, whether or not it can be planned; None if it is gone."""

    def resolved(self, key: GangKey) -> Gang | None:
        """Return a gang with the requirements of other objects in its pods' specs; None if it is gone."""
        return self.gang(key)

    @abstractmethod
    def prepared(self, key: GangKey) -> PreparedGang | None:
        """Return the gang's current state for a search; None if the gang needs no plan."""

    @abstractmethod
    def place(self, key: GangKey) -> Order:
        """Return the gang's position in the queue."""

    @abstractmethod
    def now(self) -> float:
        """Return the moment at which the gangs are due, in seconds since the epoch."""

    @abstractmethod
    def waited(self, key: GangKey) -> float:
        """Return for how many seconds a gang has waited for capacity."""

    def running(self) -> Iterable[Gang]:
        """Return the gangs with bound pods, which may be evicted for gangs of higher priority."""
        return ()

    def foreign(self) -> Iterable[Pod]:
        """Return the pods of other schedulers, which may be evicted, too, if the settings allow that."""
        return ()

    def tolerates(self, pod: Pod) -> bool:
        """Return whether the owner of a pod tolerates its eviction."""
        return True

    @abstractmethod
    def answered(self, answer: Answer, *, is_again: bool) -> None:
        """Carry out an answer of the round, so that the next gang is planned around this gang.

        ``is_again``: the gang was placed before, and the answer is about its surplus members.
        """

    async def run(self, keys: Iterable[GangKey]) -> None:
        """Plan gangs until nothing more can be placed. Raises what ``answered`` raises."""
        undecided: list[GangKey] = []
        surplus: list[GangKey] = []
        await self._rounds(keys, undecided, surplus, is_again=False)
        for key in _in_turn(sorted(undecided, key=self.place)):
            if (gang := self.prepared(key)) is not None:
                answer = await self._round.conclude(self.current, gang, await self._planner.plan_at_length(gang))
                self._carry_out(answer, surplus, is_again=False)
        # Gangs with surplus members are planned again: gangs that were placed later may have left capacity.
        await self._rounds(surplus, [], [], is_again=True)

    async def _rounds(self, keys: Iterable[GangKey], undecided: list[GangKey], surplus: list[GangKey], *, is_again: bool) -> None:
        self._waiting = deque(sorted(keys, key=self.place))
        while self._waiting:
            async with aclosing(self._round.answers(self)) as answers:
                async for answer in answers:
                    if isinstance(answer, SearchLonger):
                        undecided.append(answer.gang.key)
                    self._carry_out(answer, surplus, is_again=is_again)

    def _carry_out(self, answer: Answer | None, surplus: list[GangKey], *, is_again: bool) -> None:
        if answer is not None:
            self.answered(answer, is_again=is_again)
        if isinstance(answer, Placed) and len(answer.assignments) < len(answer.gang.candidates):
            surplus.append(answer.gang.key)

    async def next(self) -> GangKey | None:
        """Return the first gang that is due, and remove it; None if none is due."""
        return self._waiting.popleft() if self._waiting else None

    def current(self, gang: PreparedGang) -> PreparedGang | None:
        """Return the gang's current state after its search; None if the gang no longer needs a plan."""
        return self.prepared(gang.key)

    def failed(self, key: GangKey, error: Exception) -> None:
        """Raise ``error``, a defect that concerns one gang."""
        raise error

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """Make gangs due again that were not planned."""
        self._waiting.extendleft(reversed(list(keys)))

    def usage(self, namespace: str) -> int:
        """Return 0: no namespace has used search time."""
        return 0

    def wake(self, key: GangKey) -> None:  # noqa: B027  # nothing to do, here as in subclasses
        """Do nothing: all gangs are due at once."""

    def is_preceded(self, key: GangKey) -> bool:
        """Return False: no gang that ranks before ``key`` has become due, since no gang becomes due during a round."""
        return False


def _no_time() -> float:
    return 0.0


def _in_turn(keys: Sequence[GangKey]) -> Iterator[GangKey]:
    """Yield gangs in the order of their long searches: the namespaces take turns, as if all searches took equally long."""
    searched: Counter[str] = Counter()
    waiting = list(keys)
    while waiting:
        key = min(waiting, key=lambda key: searched[key.namespace])
        waiting.remove(key)
        searched[key.namespace] += 1
        yield key
