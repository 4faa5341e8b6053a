"""Decides about gangs as the scheduler's cycle would if all gangs were due at once, by the same planning round, but without a server.

The pods of a placed gang are assigned in the view at once, and later gangs are planned around these pods. Time stands still, so that the
same question has the same answer: no namespace ranks after other namespaces because of search time that it has used.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from allaboard.cluster.reservations import Reservation
from allaboard.cluster.view import ClusterView
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.model.reasons import Cause, Code
from allaboard.placement import Plan, SearchSettings
from allaboard.planning.answers import Answer, Failed, Outdated, Placed, Refused, warning_of
from allaboard.planning.gang_problem import Packings
from allaboard.planning.policy import Policy
from allaboard.planning.preemption import Preemption
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.planning.resolve import resolve
from allaboard.planning.standstill import Standstill
from allaboard.queueing.order import order_of
from allaboard.records.advice import Advised
from allaboard.records.sort_key import Order
from allaboard.report import messages
from allaboard.report.expected import evictions
from allaboard.settings.options import Settings

_MOST_VICTIMS = 5  # gangs that a message names


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a gang.

    ``feasible``: True if the gang's minimum can be placed, False if it is proved that it can't be placed, None if it isn't known.
    ``reason`` is the reason that the gang's PodGroup would report; None if the minimum can be placed.
    """

    feasible: bool | None
    message: str
    reason: Code | None = None
    plan: Plan | None = None


class Forecast(Standstill):
    """Decides about gangs of ``registry``, which observes every pod of ``view``.

    ``now`` is the moment of the forecast, in seconds since the epoch. ``warn`` is called with a gang and a warning for its user, such as
    that the gang's strategy has failed. With ``has_storage`` the view has all claims: a claim that it doesn't have doesn't exist.
    """

    def __init__(
        self,
        view: ClusterView,
        registry: GangRegistry,
        settings: Settings,
        warn: Callable[[Gang, str], None],
        now: float,
        *,
        has_storage: bool = False,
    ) -> None:
        self._has_storage = has_storage
        self._view = view
        self._registry = registry
        self._levels = settings.levels
        self._warn = warn
        search = SearchSettings(**settings.search.model_dump())
        self._now = now
        super().__init__(view, view.running, search, Packings.by(settings), settings.strategy_options.by_name, policy=Policy.by(settings))
        self._shares.follow(view)
        self._gangs: dict[GangKey, Gang] = {}
        self._decisions: dict[GangKey, Decision] = {}
        self._refused: dict[Pod, Decision] = {}  # about single-pod gangs, by ``_without_identity``, since the last gang was placed
        self._advice: dict[Pod, Advised] = {}  # about single-pod gangs, by ``_without_identity``, since the last gang was placed

    async def decide(self, gangs: Iterable[Gang]) -> dict[GangKey, Decision]:
        """Decide about ``gangs`` as if all of them were due at once. Return all decisions so far, including those of earlier calls."""
        self._forget()
        self._gangs = {gang.key: gang for gang in gangs}
        await self.run(self._gangs)
        return self._decisions

    def gang(self, key: GangKey) -> Gang | None:
        """Return the current state of the gang with this key; None if there is none."""
        return self._registry.gang(key) or self._gangs.get(key)

    def resolved(self, key: GangKey) -> Gang | None:
        """Return the current state of a gang with the requirements of other objects in its pods' specs; None if there is none."""
        gang = self.gang(key)
        return resolve(gang, self._view.volumes, self._view, self._levels) if gang else None

    def prepared(self, key: GangKey) -> PreparedGang | None:
        """Return the gang's current state for a search. If no search is needed, record the decision about the gang and return None."""
        known = self._prepared(self._gangs[key])
        if isinstance(known, Decision):
            self._decisions[key] = known
            return None
        if (pod := _without_identity(known)) and pod in self._refused:
            self._decisions[key] = self._refused[pod]
            return None
        return known

    def place(self, key: GangKey) -> Order:
        """Return the gang's position in the queue."""
        gang = self._gangs[key]
        share, tenant = self._shares.place(key.namespace, next(iter(gang.alive), None))
        return order_of(gang, share=share, tenant=tenant, since=self._registry.since(gang))

    def now(self) -> float:
        """Return the moment of the forecast, in seconds since the epoch."""
        return self._now

    def waited(self, key: GangKey) -> float:
        """Return for how many seconds a gang has waited: since it was created."""
        gang = self._gangs.get(key)
        return max(0.0, self._now - gang.created) if gang else 0.0

    def running(self) -> Iterable[Gang]:
        """Return the gangs with bound pods."""
        return self._registry.bound_gangs()

    def foreign(self) -> Iterable[Pod]:
        """Return the pods of other schedulers."""
        return (pod for pod in self._view.pods() if not self._registry.is_ours(pod))

    def tolerates(self, pod: Pod) -> bool:
        """Return whether the owner of a pod tolerates its eviction."""
        return self._registry.tolerates_eviction(pod)

    @property
    def reservations(self) -> Sequence[Reservation]:
        """The reservations of refused gangs, in queue order."""
        return self._planner.ledger.reservations

    async def advice(self, gang: Gang) -> Advised:
        """Return what would help a refused gang if all other gangs stayed where they are; empty if nothing is known to help."""
        known = self._prepared(gang)
        if isinstance(known, Decision) or not known.missing:
            return Advised()
        pod = _without_identity(known)
        advice = self._advice.get(pod) if pod else None
        if advice is None:
            advice = await self._planner.advice(known, self._registry.bound_gangs())
        if pod:
            self._advice[pod] = advice
        return advice

    def _forget(self) -> None:
        """Forget the decisions and advice that are kept for equal single-pod gangs, since the cluster has changed."""
        self._refused.clear()
        self._advice.clear()

    def _prepared(self, gang: Gang) -> PreparedGang | Decision:
        """Return the gang as it is now, for a search; if no search is needed, return the decision about the gang.

        The specs of the members to be placed also state what topology levels require of a node.
        """
        gang = self._registry.gang(gang.key) or gang
        if gang.hold:
            # It isn't known whether a gang with unsupported requests would fit.
            return Decision(None if gang.hold.reason == "Unsupported" else False, gang.hold.message, Code.HELD)
        if not gang.candidates and gang.is_whole:
            return Decision(True, "all members have a node already")
        if gang.members and not gang.alive:
            return Decision(True, "all members have ended")
        for pod in gang.candidates if not self._has_storage else ():
            if claim := self._unknown_claim(pod):
                return Decision(None, f"pod {pod.name}: a plan can't know which nodes {claim} allows", Code.HELD)
        if gang.awaits_pods:
            return Decision(False, messages.members_missing(gang), Code.WAITING)
        placed = resolve(gang, self._view.volumes, self._view, self._levels)
        return Decision(None, placed.hold.message, Code.HELD) if placed.hold else prepared(placed)

    def _unknown_claim(self, pod: Pod) -> str:
        """Return the first claim of a pod that isn't known; empty if all are known."""
        volumes, devices = self._view.volumes.claims, self._view.resource_claims
        of_volumes = ((name, volumes.get(f"{pod.namespace}/{name}")) for name in pod.spec.claims)
        of_devices = ((name or stated, devices.get(f"{pod.namespace}/{name}")) for stated, name in pod.spec.resource_claims)
        found = [f"PersistentVolumeClaim {pod.namespace}/{name}" for name, known in of_volumes if known is None]
        found += [f"ResourceClaim {pod.namespace}/{name}" for name, known in of_devices if known is None]
        return found[0] if found else ""

    def answered(self, answer: Answer, *, is_again: bool) -> None:
        """Assign the members of a placed gang in the view, and record the decision. Raises the error of a search that failed."""
        gang, key = answer.gang, answer.gang.key
        match answer:
            case Placed(plan=plan, assignments=assignments):
                self._forget()
                for assignment in assignments:
                    if pod := self._view.pod(assignment.pod.key):  # the view's record, without the requirements that ``resolve`` adds
                        self._view.upsert_pod(replace(pod, node_name=assignment.node_name))
                        self._view.running.put(pod.uid, assignment.node_name, pod.spec, unit=key, started=0.0, walltime=gang.walltime)
                first = self._decisions[key].plan if is_again else plan
                self._decisions[key] = Decision(True, self._placed(gang, len(assignments), plan), plan=first)
            case Refused(plan=plan, cause=None) if not is_again:
                self._decisions[key] = Decision(True, self._placed(gang, 0, plan), plan=plan)
            case Refused(plan=plan, cause=Cause() as cause, preemption=Preemption() as preemption):
                self._preemptions.begin(preemption)
                text = messages.refused(gang, plan, cause, None).message + _victims(preemption)
                self._decisions[key] = Decision(plan.feasible, text, cause.code, plan)
            case Refused(plan=plan, cause=Cause() as cause, reservation=reservation):
                text = messages.refused(gang, plan, cause, reservation).message
                self._decisions[key] = decision = Decision(plan.feasible, text, cause.code, plan)
                if plan.feasible is False and (pod := _without_identity(gang)):
                    self._refused[pod] = decision
            case Outdated(unfit=unfit) if not is_again:
                self._decisions[key] = Decision(None, messages.not_bound(unfit), Code.RETRYING)
            case Failed(error=error):
                raise error
        if warning := warning_of(answer):
            self._warn(gang, warning)

    def _placed(self, gang: Gang, assigned: int, plan: Plan) -> str:
        """Return the message for a placed gang: how many members have a node, and why a surplus member was left out."""
        pods = "pod" if len(gang.alive) == 1 else "pods"
        head, before = f"{len(gang.bound) + assigned} of {len(gang.alive)} {pods} placed", len(self._gangs[gang.key].bound)
        return head + (f", {before} of them earlier" if before else "") + _surplus_refusal(gang, plan)


def _victims(preemption: Preemption) -> str:
    """Return which gangs would lose pods, as the last words of a refusal."""
    parts = [f"{len(victim.pods)} of {victim.gang.key}" for victim in preemption.victims]
    first = f"{evictions(len(preemption.pods), 'would be evicted')}: {', '.join(parts[:_MOST_VICTIMS])}"
    return first + (f" and {len(parts) - _MOST_VICTIMS} more gangs" if len(parts) > _MOST_VICTIMS else "")


def _without_identity(gang: Gang) -> Pod | None:
    """Return the pod of a single-pod gang without its name, UID and age; None for any other gang.

    Gangs whose pods are equal apart from name, UID and age get the same decision. Example: if a workload's thousand pods don't fit, one
    search decides about all of them.
    """
    return replace(gang.members[0], name="", uid="", created=0.0) if gang.is_single and len(gang.members) == 1 else None


def _surplus_refusal(gang: Gang, plan: Plan) -> str:
    """Return why the first surplus member without an assignment has none; empty if all have one."""
    refusals = messages.surplus_refusals(plan)
    if not refusals:
        return ""
    names = {pod.uid: pod.name for pod in gang.members}
    uid, reason = next(iter(refusals.items()))
    return f", {gang.min_member} needed; pod {names[uid]}: {reason}"
