"""States a contest: several gangs that contend for the same slots, as one problem with the pods of all these gangs.

A role is one scheduling spec, so pods of two gangs may have the same role. Free capacity changes with every gang that is placed.
``ContestState`` holds the capacity that is free after some gangs are placed; ``problem_among_others`` returns the problem of one gang with
that free capacity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.fit import FitScoring
from allaboard.model.gang import Objective
from allaboard.model.gpus import is_gpu
from allaboard.model.packing import PACKING, Packing
from allaboard.model.pod import Pod
from allaboard.model.quantities import LARGEST_AMOUNT
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.build import build_problem, node_order
from allaboard.placement.problem.fragmentation import Fragmentation
from allaboard.placement.problem.objectives import Weights
from allaboard.placement.problem.problem import Problem, Role, numbered
from allaboard.placement.problem.rule_arrays import NodePlaces, RuleArrays, class_of, rule_arrays_of, with_rules
from allaboard.placement.rules.devices import GPU, WHOLE
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.members import NO_RULES, Rules

_MEASURES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gang that waits for capacity: the arguments by which ``build_problem`` builds its problem."""

    pods: Sequence[Pod]
    minimum: int
    seed: int
    objective: Objective
    topology: str = ""
    ordered_by: tuple[str, ...] = ()
    rules: Rules = NO_RULES


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """One of the gangs that contend, as arrays over the gang's own roles.

    ``roles``: int64[own roles], positions of the gang's roles in the contest's problem. Two own roles have the same position if only the
    gang's rules distinguish their pods. ``pods``: uids of the pods of each own role. ``count``: int64[own roles], number of these pods.
    ``gpus``: int64[own roles], thousandths of a GPU that one pod requests.
    ``share``: part of the free cpu or of the free memory that the minimum requests, whichever part is larger; 0 if any pod requests GPUs.
    ``domains``: int64[nodes], topology domain of each node; None if the gang has no topology. ``order``: int64[nodes], the place of each
    node in the topology (``Problem``).
    """

    roles: Integers
    pods: tuple[tuple[str, ...], ...]
    count: Integers
    rule_arrays: RuleArrays
    minimum: int
    gpus: Integers
    share: float
    objective: Objective
    domains: Integers | None
    order: Integers | None
    seed: int

    @property
    def is_coupled(self) -> bool:
        """True if the gang has rules between members besides numbers of pods of roles. Only a search for this gang obeys such rules."""
        return not self.rule_arrays.is_plain

    @property
    def needs_search(self) -> bool:
        """True if a search may find slots for the gang where filling one node after another finds none."""
        return self.is_coupled or len(self.roles) > 1

    @property
    def is_single(self) -> bool:
        """True if the gang is one pod without couplings. Such a pod goes to the node where it costs least."""
        return self.total == 1 and self.minimum <= 1 and not self.is_coupled

    @property
    def total(self) -> int:
        """Number of the gang's pods."""
        return int(self.count.sum())

    @property
    def most_gpus(self) -> int:
        """The thousandths of GPUs that the minimum requests if it consists of the pods that request the most GPUs."""
        each = np.sort(np.repeat(self.gpus, self.count))
        return int(each[max(0, len(each) - self.minimum) :].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """Several gangs that contend, in queue order, and the problem of placing the pods of all these gangs on one cluster.

    ``problems`` has one problem for each objective that any of the gangs has. These problems differ only in what a placement costs.
    """

    problems: Mapping[Objective, Problem]
    gangs: tuple[Contender, ...]

    @property
    def problem(self) -> Problem:
        """The problem with the objective that most pods have."""
        return next(iter(self.problems.values()))


@dataclass(slots=True)
class ContestState:
    """Holds the capacity of the nodes that is free after some of the gangs that contend are placed.

    The fields are those of ``Problem`` and ``Scoring``. ``slots``: int64[roles, nodes], how many pods of one role a node can take.
    """

    free: Integers
    used: Floats
    devices: Integers | None
    slots: Integers

    @classmethod
    def of(cls, problem: Problem) -> "ContestState":
        """Return the state of ``problem`` before any gang is placed."""
        devices = None if problem.devices is None else problem.devices.copy()
        return cls(problem.free.copy(), problem.scoring.used.copy(), devices, problem.slots.copy())

    def copy(self) -> "ContestState":
        """Return a copy that shares no arrays with this state."""
        devices = None if self.devices is None else self.devices.copy()
        return ContestState(self.free.copy(), self.used.copy(), devices, self.slots.copy())


def contest_of(
    gangs: Sequence[Waiting], snapshot: Snapshot, filters: NodeFilters | None = None, packing: Packing | FitScoring = PACKING
) -> Contest:
    """Return ``gangs``, which are in queue order, as a contest for the nodes of ``snapshot``."""
    filters = filters or NodeFilters()
    pods = [pod for gang in gangs for pod in gang.pods]
    weight: dict[Objective, int] = {}
    for gang in gangs:
        weight[gang.objective] = weight.get(gang.objective, 0) + len(gang.pods)
    objectives = sorted(weight, key=lambda objective: -weight[objective])
    problems = {
        objective: build_problem(pods, 0, snapshot, objective=objective, packing=packing, filters=filters) for objective in objectives
    }
    problem = problems[objectives[0]]
    role_of = {uid: position for position, role in enumerate(problem.roles) for uid in role.pods}
    rows = np.flatnonzero(np.isin([node.name for node in snapshot.nodes], problem.nodes))
    places = NodePlaces(filters, snapshot.nodes)
    return Contest(problems, tuple(_contender(gang, problem, role_of, places, rows) for gang in gangs))


def _contender(gang: Waiting, problem: Problem, role_of: Mapping[str, int], places: NodePlaces, rows: Integers) -> Contender:
    own: dict[tuple[int, tuple[bool, ...]], list[Pod]] = {}
    for pod in gang.pods:
        own.setdefault((role_of[pod.uid], class_of(pod, gang.rules)), []).append(pod)
    specs = [members[0].spec for members in own.values()]
    whole = [0 if spec.share else WHOLE * sum(amount for name, amount in spec.requests if is_gpu(name)) for spec in specs]
    gpus = [min(spec.gpu_share + amount, LARGEST_AMOUNT) for spec, amount in zip(specs, whole, strict=True)]
    free = {name: sum(problem.free[problem.columns.index(name)].tolist()) for name in _MEASURES if name in problem.columns}
    asked = {name: sum(spec.amount(name) * len(members) for spec, members in zip(specs, own.values(), strict=True)) for name in free}
    part = gang.minimum / max(1, len(gang.pods))
    return Contender(
        roles=np.array([role for role, _ in own], dtype=np.int64),
        pods=tuple(tuple(pod.uid for pod in members) for members in own.values()),
        count=np.array([len(members) for members in own.values()], dtype=np.int64),
        rule_arrays=rule_arrays_of(gang.rules, [members[0].uid for members in own.values()], places).restricted_to(rows),
        minimum=gang.minimum,
        gpus=np.array(gpus, dtype=np.int64),
        share=0.0 if any(gpus) else part * max((asked[name] / max(1, free[name]) for name in free), default=0.0),
        objective=gang.objective,
        domains=numbered(places.filters.domains(gang.topology, places.nodes)[rows]) if gang.topology else None,
        order=node_order(gang.ordered_by, places.nodes, places.filters)[rows] if gang.ordered_by else None,
        seed=gang.seed,
    )


def problem_among_others(contest: Contest, gang: Contender, state: ContestState) -> Problem:
    """Return the problem of placing ``gang`` while the gangs placed in ``state`` keep their assignments."""
    problem = contest.problems[gang.objective]
    found = problem_in_state(problem, state, gang.roles, np.arange(len(problem.nodes)))
    roles = tuple(
        Role(pods, problem.roles[role].requests, problem.roles[role].refusals)
        for pods, role in zip(gang.pods, gang.roles.tolist(), strict=True)
    )
    own = replace(found, roles=roles, count=gang.count, minimum=gang.minimum, domains=gang.domains, order=gang.order)
    return with_rules(own, gang.rule_arrays)


def problem_in_state(problem: Problem, state: ContestState, roles: Integers, rows: Integers, *, is_relative: bool = False) -> Problem:
    """Return ``problem`` for some roles and some nodes, given by position, with the capacity that is free in ``state``.

    With ``is_relative``, fragmentation is that of the whole node instead of what a placement adds to it. This is quicker to compute, but
    then the costs of one node can only be compared with each other.
    """
    part = problem.restricted_to(rows)
    scoring = part.scoring
    taken = part.free - state.free[:, rows]
    devices = None if state.devices is None else state.devices[rows]
    return replace(
        part,
        roles=tuple(part.roles[role] for role in roles.tolist()),
        count=part.count[roles],
        least=part.least[roles],
        demand=part.demand[roles],
        free=state.free[:, rows],
        admits=part.admits[roles],
        slots=state.slots[np.ix_(roles, rows)],
        devices=devices,
        shares=part.shares[roles],
        scoring=replace(scoring.of_roles(roles), used=state.used[:, rows]),
        dislike=None if part.dislike is None else part.dislike[roles],
        fragmentation=_fragmentation(part.fragmentation, dict(zip(part.columns, taken, strict=True)), devices, roles, is_relative),
    )


def _fragmentation(
    before: Fragmentation | None, taken: Mapping[str, Integers], devices: Integers | None, roles: Integers, is_relative: bool
) -> Fragmentation | None:
    """Return the fragmentation of the nodes for the given ``roles``, once the amounts ``taken`` are in use."""
    if before is None:
        return None
    nodes = len(before.before)
    now = replace(
        before.of_roles(roles),
        cpu_free=np.maximum(before.cpu_free - taken.get("cpu", 0), 0),
        gpus_free=np.maximum(before.gpus_free - taken.get(GPU, 0), 0),
        devices=devices if before.devices is not None else None,
        before=np.zeros(nodes),
        worth=np.zeros(nodes),
    )
    if is_relative:
        return now
    rows, no_pods = np.arange(nodes), np.zeros((nodes, len(roles)), dtype=np.int64)
    return replace(
        now,
        before=now.costs(rows, no_pods, Weights(fragmentation=1.0)),
        worth=-now.costs(rows, no_pods, Weights(worth=1.0)),
    )


def may_contend(contest: Contest) -> bool:
    """Return whether some order of the gangs may leave a gang out. The answer ``False`` is certain; ``True`` may be wrong.

    No gang is placed for the answer. A pod always finds a slot if the other pods can't fill all nodes that the pod may use. For each
    resource, the function counts how many of these nodes the demand of all other pods can fill, if it fills the nodes with the least free
    first.
    """
    problem = contest.problem
    nodes = np.count_nonzero(problem.slots, axis=1)
    if problem.devices is not None or not nodes.all() or any(gang.rule_arrays.has_couplings for gang in contest.gangs):
        return True
    demand = problem.demand.astype(np.float64)
    total_demand = problem.count @ demand
    free = np.sort(problem.free.astype(np.float64), axis=1)
    filled = np.zeros(len(nodes), dtype=np.int64)
    for column, amounts in enumerate(free):
        for role in np.flatnonzero((demand[:, column] > 0) & (total_demand[column] > demand[:, column])).tolist():
            own = demand[role, column]
            usable = amounts[np.searchsorted(amounts, own) :]
            filled[role] += np.searchsorted(np.cumsum(usable - own + 1), total_demand[column] - own, side="right")
    return bool((filled >= nodes).any())
