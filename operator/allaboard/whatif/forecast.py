"""Returns what the scheduler would decide about gangs that are all due at once, without a server: by the planning round of its cycle.

A gang that is placed has its pods assigned in the view at once, and the gangs behind it are planned around them. Time stands still, so
that the same question has the same answer: no namespace goes behind the others for search time that it has used.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import VolumeView
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.model.reasons import Cause, Code
from allaboard.placement import Plan, SearchSettings
from allaboard.planning.answers import Answer, Failed, Outdated, Placed, Refused, warning_of
from allaboard.planning.gang_problem import Packings
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.planning.resolve import resolve
from allaboard.planning.standstill import Standstill
from allaboard.queueing.order import order_of
from allaboard.records.sort_key import Order
from allaboard.report import messages
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


class Forecast(Standstill):
    """Decides about gangs of ``registry``, which observes every pod of ``view``.

    ``warn`` is called with a gang and what its user should know of the way to its plan, such as that its strategy has failed.
    """

    def __init__(self, view: ClusterView, registry: GangRegistry, settings: Settings, warn: Callable[[Gang, str], None]) -> None:
        self._view = view
        self._registry = registry
        self._levels = settings.levels
        self._warn = warn
        search = SearchSettings(**settings.search.model_dump())
        super().__init__(view, search, Packings.by(settings), settings.strategy_options.by_name)
        self._asked: dict[GangKey, Gang] = {}
        self._decisions: dict[GangKey, Decision] = {}
        self._refused: dict[Pod, Decision] = {}  # by what a pod that is a gang of its own is like, since the last gang was placed
        self._advice: dict[Pod, str] = {}  # as above

    async def decide(self, gangs: Iterable[Gang]) -> dict[GangKey, Decision]:
        """Return what the scheduler's cycle would decide if all ``gangs`` were due."""
        self._forget()
        self._asked = {gang.key: gang for gang in gangs}
        await self.run(self._asked)
        return self._decisions

    def gang(self, key: GangKey) -> Gang | None:
        """Implement ``planning.round.Due``."""
        return self._registry.gang(key) or self._asked.get(key)

    def prepared(self, key: GangKey) -> PreparedGang | None:
        """Implement ``planning.round.Due``."""
        known = self._prepared(self._asked[key])
        if isinstance(known, Decision):
            self._decisions[key] = known
            return None
        if (like := _likeness(known)) and like in self._refused:
            self._decisions[key] = self._refused[like]
            return None
        return known

    def place(self, key: GangKey) -> Order:
        """Implement ``planning.round.Due``."""
        gang = self._asked[key]
        return order_of(gang, since=self._registry.since(gang))

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

    def _prepared(self, gang: Gang) -> PreparedGang | Decision:
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
        placed = resolve(gang, VolumeView(), self._view, self._levels)
        return Decision(None, placed.hold.message, Code.HELD) if placed.hold else prepared(placed)

    def answered(self, answer: Answer, *, is_again: bool) -> None:
        """Assign the members of a placed gang in the view, and record what is decided; as ``Standstill``."""
        gang, key = answer.gang, answer.gang.key
        match answer:
            case Placed(plan=plan, assignments=assignments):
                self._forget()
                for seat in assignments:
                    if pod := self._view.pod(seat.pod.key):  # the view's own, which asks for nothing on account of its surroundings
                        self._view.upsert_pod(replace(pod, node_name=seat.node_name))
                first = self._decisions[key].plan if is_again else plan
                self._decisions[key] = Decision(True, self._placed(gang, len(assignments), plan), plan=first)
            case Refused(plan=plan, cause=None) if not is_again:
                self._decisions[key] = Decision(True, self._placed(gang, 0, plan), plan=plan)
            case Refused(plan=plan, cause=Cause() as cause):
                self._decisions[key] = decision = Decision(plan.feasible, messages.refusal(gang, plan, cause), cause.code, plan)
                if plan.feasible is False and (like := _likeness(gang)):
                    self._refused[like] = decision
            case Outdated(unfit=unfit) if not is_again:
                self._decisions[key] = Decision(None, messages.not_bound(unfit), Code.RETRYING)
            case Failed(error=error):
                raise error
        if warning := warning_of(answer):
            self._warn(gang, warning)

    def _placed(self, gang: Gang, assigned: int, plan: Plan) -> str:
        """Return how many members have a node, and why the first surplus member that has none hasn't."""
        pods = "pod" if len(gang.alive) == 1 else "pods"
        head, before = f"{len(gang.bound) + assigned} of {len(gang.alive)} {pods} placed", len(self._asked[gang.key].bound)
        return head + (f", {before} of them before" if before else "") + _left_out(gang, plan)


def _likeness(gang: Gang) -> Pod | None:
    """Return what all pods that are gangs of their own, and are refused alike, are equal to; None for a gang of several pods.

    Of a workload's thousand pods that don't fit, one search tells about all.
    """
    return replace(gang.members[0], name="", uid="", created=0.0) if gang.is_single and len(gang.members) == 1 else None


def _left_out(gang: Gang, plan: Plan) -> str:
    """Why the first of those beyond the minimum who have no seat has none."""
    refusals = messages.surplus_refusals(plan)
    if not refusals:
        return ""
    names = {pod.uid: pod.name for pod in gang.members}
    uid, reason = next(iter(refusals.items()))
    return f", {gang.min_member} needed; pod {names[uid]}: {reason}"
