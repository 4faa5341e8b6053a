"""What the scheduler would decide about gangs that are all due at once: by its order, its planner and its last check, without a server.

A gang that is given seats is bound in the view at once, and those behind it are placed around it. Time stands still, so that the same
question has the same answer: nobody owes anything for a search that took long.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from allaboard.binding.outcomes import Assignment, Refused
from allaboard.binding.precheck import checked
from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import VolumeView
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.model.reasons import Code
from allaboard.placement import Plan, SearchSettings
from allaboard.planning.gang_problem import Packings
from allaboard.planning.planner import MOST_PODS, MOST_TOGETHER, Planner, goes_alone
from allaboard.planning.plugin_processes import PluginProcesses
from allaboard.planning.resolve import in_surroundings
from allaboard.planning.search_processes import Searcher
from allaboard.queueing.order import order_of
from allaboard.queueing.search_time import SearchTime
from allaboard.report import messages
from allaboard.report.metrics import Metrics
from allaboard.settings.options import Settings


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a gang.

    ``feasible``: True when its minimum has seats, False when it is known that it can't have them, None when no placement was found.
    ``reason`` is what its PodGroup would say, None when its minimum has seats.
    """

    feasible: bool | None
    message: str
    reason: Code | None = None
    plan: Plan | None = None


class Forecast:
    """Decides about gangs of ``registry``, which hears of every pod of ``view``."""

    def __init__(self, view: ClusterView, registry: GangRegistry, settings: Settings, tell: Callable[[Gang, str], None]) -> None:
        """``tell`` is called when a gang's strategy has failed."""
        self._view = view
        self._registry = registry
        self._levels = settings.levels
        searcher = Searcher(SearchSettings(**settings.search.model_dump()), workers=0)
        plugin_processes = PluginProcesses(settings.strategy_options.by_name, has_processes=False)
        shares, packings = SearchTime(_no_time), Packings.by(settings)
        self._planner = Planner(view, _NoPast(), searcher, Metrics(), _no_time, packings, shares, plugin_processes, tell)
        self._decisions: dict[GangKey, Decision] = {}
        self._left: list[Gang] = []  # for which a short search has found neither seats nor a proof
        self._refused: dict[Pod, Decision] = {}  # by what a pod that is a gang of its own is like, since the last gang was given seats
        self._advice: dict[Pod, str] = {}  # as above

    async def decide(self, gangs: Iterable[Gang]) -> dict[GangKey, Decision]:
        """What ``scheduling.cycle`` would decide if all ``gangs`` were due: those that contend are placed together."""
        self._forget()
        due = deque(sorted(gangs, key=lambda gang: order_of(gang, since=self._registry.since(gang))))
        while due:
            batch = self._due_together(due)
            plans, _ = await self._planner.plan_together(batch)
            among = {gang.key: gang for gang in batch}
            for key in (*plans, *(key for key in among if key not in plans)):
                await self._attempt(among[key], plans.get(key))
        # Long searches go on beside the cycle, and end after it.
        left, self._left = self._left, []
        for gang in _in_turn(left):
            await self._attempt_at_length(gang)
        return self._decisions

    async def advice(self, gang: Gang) -> str:
        """What would help a gang that was refused, all others being where they are now; empty when nothing is known to."""
        known = self._prepared(gang)
        if isinstance(known, Decision) or not known.missing:
            return ""
        like = _likeness(known)
        advice = self._advice.get(like) if like else None
        if advice is None:
            advice = await self._planner.advice(known, self._registry.bound_gangs())
        if like:
            self._advice[like] = advice
        return advice

    def _forget(self) -> None:
        """Forget what was answered about pods that are alike: the cluster has changed."""
        self._refused.clear()
        self._advice.clear()

    def _due_together(self, due: deque[Gang]) -> list[Gang]:
        """Take out the first gang, and those next to it that compete on equal terms; who needs no search is decided about."""
        batch: list[Gang] = []
        pods = 0
        while due and len(batch) < MOST_TOGETHER:
            gang = self._prepared(due[0])
            if isinstance(gang, Decision):
                self._decisions[due.popleft().key] = gang
                continue
            pods += len(gang.candidates)
            if batch and (goes_alone(gang) or pods > MOST_PODS or gang.priority != batch[0].priority):
                break
            batch.append(gang)
            due.popleft()
            if goes_alone(gang):
                break
        return batch

    def _prepared(self, gang: Gang) -> Gang | Decision:
        """The gang as it stands, with what its candidates ask of nodes; what is decided about it when there is nothing to search for."""
        gang = self._registry.gang(gang.key) or gang
        if gang.hold:
            # Whether it would fit if we understood what it asks for isn't known.
            return Decision(None if gang.hold.reason == "Unsupported" else False, gang.hold.message, Code.HELD)
        if not gang.candidates and gang.is_whole:
            return Decision(True, "all members have a node already")
        if gang.members and not gang.alive:
            return Decision(True, "all members have ended")
        for pod in gang.candidates:
            if pod.spec.claims:
                claim = f"PersistentVolumeClaim {gang.key.namespace}/{pod.spec.claims[0]}"
                return Decision(None, f"pod {pod.name}: a plan can't know which nodes {claim} allows", Code.HELD)
        if gang.awaits_pods:
            return Decision(False, messages.members_missing(gang), Code.WAITING)
        placed = in_surroundings(gang, VolumeView(), self._view, self._levels)
        return Decision(None, placed.hold.message, Code.HELD) if placed.hold else placed

    async def _attempt(self, gang: Gang, plan: Plan | None) -> None:
        """Decide about one gang, unless it takes a long search; the ``plan`` is there if it was placed together with others."""
        known = self._prepared(gang)
        if isinstance(known, Decision):
            self._decisions[gang.key] = known
            return
        if plan is None and (like := _likeness(known)) and like in self._refused:
            self._decisions[gang.key] = self._refused[like]
            return
        # In the order of a batch the first may have taken what the others were to have: affinities aren't known to a joint search.
        if plan is None or not self._seats(known, plan):
            plan = await self._planner.plan(known)
        if plan.feasible is None:
            self._left.append(gang)
        else:
            await self._conclude(known, plan)

    async def _attempt_at_length(self, gang: Gang) -> None:
        known = self._prepared(gang)
        if isinstance(known, Decision):
            self._decisions[gang.key] = known
        else:
            await self._conclude(known, await self._planner.plan_at_length(known))

    async def _conclude(self, gang: Gang, plan: Plan) -> None:
        """Bind those who have seats now, or say why nobody has."""
        seats = self._seats(gang, plan)
        if seats:
            self._forget()
        for seat in seats:
            if pod := self._view.pod(seat.pod.key):  # the view's own, which asks for nothing on account of its surroundings
                self._view.upsert_pod(replace(pod, node_name=seat.node_name))
        if not seats and gang.missing:
            why = await self._planner.cause(gang)
            self._decisions[gang.key] = decision = Decision(plan.feasible, messages.refusal(gang, plan, why), why.code, plan)
            if plan.feasible is False and (like := _likeness(gang)):
                self._refused[like] = decision
            return
        there = len(gang.bound) + len(seats)
        pods = "pod" if len(gang.alive) == 1 else "pods"
        head = f"{there} of {len(gang.alive)} {pods} placed" + (f", {len(gang.bound)} of them before" if gang.bound else "")
        self._decisions[gang.key] = Decision(True, head + _left_out(gang, plan), plan=plan)

    def _seats(self, gang: Gang, plan: Plan) -> Sequence[Assignment]:
        """The seats of a plan that is enough to start on, and holds."""
        seats = checked(gang, dict(plan.assignments), self._view) if plan.feasible else ()
        return () if isinstance(seats, Refused) else seats


class _NoPast:
    """No gang has been tried before."""

    def attempts(self, key: GangKey) -> int:
        return 0

    def must_not_be_overtaken(self, key: GangKey) -> bool:
        return False


def _likeness(gang: Gang) -> Pod | None:
    """Return what all pods that are gangs of their own, and are refused alike, are equal to; None for a gang of several pods.

    Of a workload's thousand pods that don't fit, one search tells about all.
    """
    return replace(gang.members[0], name="", uid="", created=0.0) if gang.is_single and len(gang.members) == 1 else None


def _no_time() -> float:
    return 0.0


def _in_turn(gangs: Sequence[Gang]) -> Iterator[Gang]:
    """Long searches are the namespaces' in turn (``planning.long_searches``), each taken to last as long as another."""
    searched: Counter[str] = Counter()
    waiting = list(gangs)
    while waiting:
        gang = min(waiting, key=lambda gang: (searched[gang.key.namespace], order_of(gang)))
        waiting.remove(gang)
        searched[gang.key.namespace] += 1
        yield gang


def _left_out(gang: Gang, plan: Plan) -> str:
    """Why the first of those beyond the minimum who have no seat has none."""
    refusals = messages.surplus_refusals(plan)
    if not refusals:
        return ""
    names = {pod.uid: pod.name for pod in gang.members}
    uid, reason = next(iter(refusals.items()))
    return f", {gang.min_member} needed; pod {names[uid]}: {reason}"
