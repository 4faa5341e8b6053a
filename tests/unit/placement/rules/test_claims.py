"""Free volumes as capacities of nodes, compared with a search through all ways to give volumes to claims."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.constraints import FreeVolume, NodeSelectorTerm, Requirement, SchedulingSpec, UnboundClaim
from allaboard.model.gang import Objective
from allaboard.model.node import Node
from allaboard.placement import NodeFilters, SearchSettings, build_problem, search, verify
from allaboard.placement.rules.claims import claim_columns, volumes_for
from tests.unit.placement.clusters import node, pods, snapshot

HOSTNAME = "kubernetes.io/hostname"
PODS = (("pods", 1),)
NAMES = ("n0", "n1")
NOWHERE: tuple[tuple[NodeSelectorTerm, ...], ...] = ((),)


def on(*names: str) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm(expressions=(Requirement(HOSTNAME, "In", names),)),)


def volume(number: int, name: str) -> FreeVolume:
    return FreeVolume(1 + number % 2, f"v{number}", (on(name),))


NODES = tuple(node(name, {"cpu": 8000}, labels={HOSTNAME: name}) for name in NAMES)
VOLUMES = st.lists(st.sampled_from(NAMES), max_size=4).map(lambda names: [volume(number, name) for number, name in enumerate(names)])


@st.composite
def unbound(draw: st.DrawFn, volumes: list[FreeVolume]) -> UnboundClaim:
    some = tuple(sorted(each for each in volumes if draw(st.booleans())))
    return UnboundClaim(some, draw(st.sampled_from([NOWHERE, NOWHERE, (on("n0"),), ()])))


@st.composite
def gangs(draw: st.DrawFn) -> tuple[list[SchedulingSpec], np.ndarray]:
    """Return specs with claims, and a placement: int64[specs, nodes]."""
    kinds = draw(st.lists(unbound(draw(VOLUMES)), min_size=1, max_size=3))
    several = st.lists(st.sampled_from(kinds), min_size=1, max_size=2).map(lambda claims: tuple(sorted(claims)))
    specs = [SchedulingSpec(PODS, unbound=draw(several)) for _ in range(draw(st.integers(1, 2)))]
    counts = [[draw(st.integers(0, 2)) for _ in NODES] for _ in specs]
    return specs, np.array(counts, dtype=np.int64)


def claims_of(specs: list[SchedulingSpec], counts: np.ndarray) -> list[tuple[UnboundClaim, Node]]:
    return [
        (claim, NODES[place])
        for role, spec in enumerate(specs)
        for place in range(len(NODES))
        for _ in range(int(counts[role, place]))
        for claim in spec.unbound
    ]


def can_all_get_volumes(claims: list[tuple[UnboundClaim, Node]]) -> bool:
    """Try each order in which the claims choose among the volumes, without a matching."""
    needing = [
        [each.name for each in claim.volumes if each.terms == (on(at.name),)]
        for claim, at in claims
        if claim.provisioned not in ((), (on(at.name),))
    ]
    names = sorted({name for some in needing for name in some})
    if len(names) < len(needing):
        return False
    return any(all(name in some for name, some in zip(chosen, needing, strict=True)) for chosen in permutations(names, len(needing)))


@given(gangs())
def test_capacities_allow_exactly_the_placements_in_which_all_claims_get_volumes(gang: tuple[list[SchedulingSpec], np.ndarray]) -> None:
    specs, counts = gang
    columns = claim_columns(specs, int(counts.sum()), NODES, NodeFilters())
    fits = bool((columns.demand.T @ counts <= columns.free).all())
    assert fits == can_all_get_volumes(claims_of(specs, counts))


@given(gangs())
def test_each_claim_gets_a_volume_of_its_own_that_its_node_can_use(gang: tuple[list[SchedulingSpec], np.ndarray]) -> None:
    claims = claims_of(*gang)
    found = volumes_for(claims)
    assert (found is not None) == can_all_get_volumes(claims)
    given_out = [each.name for each in found or () if each is not None]
    assert len(set(given_out)) == len(given_out)
    for (claim, at), each in zip(claims, found or (), strict=bool(found)):
        if each is not None:
            assert each in claim.volumes
            assert each.terms == (on(at.name),)


def test_gang_is_placed_where_each_member_gets_a_local_volume() -> None:
    volumes = tuple(FreeVolume(1, f"{name}-{number}", (on(name),)) for name, number in (("n0", 0), ("n1", 0), ("n1", 1)))
    gang = pods("w", 3, {"cpu": 1000}, unbound=(UnboundClaim(volumes),))
    cluster = snapshot(list(NODES))

    plan = search(build_problem(gang, 3, cluster, objective=Objective.BINPACK), SearchSettings(), 1)

    assert plan.feasible
    assert sorted(name for _, name in plan.assignments) == ["n0", "n1", "n1"]
    assert not verify(dict(plan.assignments), gang, cluster)
    assert verify({pod.uid: "n0" for pod in gang[:2]}, gang, cluster)
