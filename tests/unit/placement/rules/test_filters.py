"""Array filters agree with the last check on every node, and a cached result isn't used for another spec."""

from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec, Toleration
from allaboard.model.node import Node, Taint
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.verify import refusal_on
from tests.unit.placement.clusters import node

KEYS, VALUES = st.sampled_from(("pool", "zone")), st.sampled_from(("1", "2"))
EFFECTS = st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))
VALUED = st.builds(Requirement, KEYS, st.sampled_from(("In", "NotIn")), st.lists(VALUES, min_size=1, max_size=2).map(tuple))
COMPARED = st.builds(Requirement, KEYS, st.sampled_from(("Gt", "Lt")), st.tuples(VALUES))
HAVING = st.builds(Requirement, KEYS, st.sampled_from(("Exists", "DoesNotExist")))
NAMED = st.builds(Requirement, st.just("metadata.name"), st.sampled_from(("In", "NotIn")), st.tuples(st.sampled_from(("n0", "n1"))))
TERMS = st.lists(
    st.builds(NodeSelectorTerm, st.lists(VALUED | COMPARED | HAVING, max_size=2).map(tuple), st.lists(NAMED, max_size=1).map(tuple)),
    max_size=2,
).map(tuple)
RESOLVED = st.lists(TERMS, max_size=1).map(tuple)
SPECS = st.builds(
    SchedulingSpec,
    requests=st.just((("pods", 1),)),
    node_selector=st.lists(st.tuples(KEYS, VALUES), max_size=1).map(tuple),
    affinity=st.none() | TERMS,
    tolerations=st.lists(
        st.builds(Toleration, st.sampled_from(("", "pool")), st.sampled_from(("Exists", "Equal")), VALUES, EFFECTS | st.just("")),
        max_size=1,
    ).map(tuple),
    volumes=RESOLVED,
    forbidden_domains=RESOLVED,
    required_domains=RESOLVED,
)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    taints = st.lists(st.builds(Taint, st.just("pool"), VALUES, EFFECTS), max_size=1).map(tuple)
    return tuple(
        node(
            f"n{number}",
            {},
            labels=draw(st.dictionaries(KEYS, VALUES)),
            taints=draw(taints),
            is_ready=draw(st.integers(0, 3)) > 0,
            is_unschedulable=draw(st.integers(0, 3)) == 0,
        )
        for number in range(draw(st.integers(1, 4)))
    )


@given(nodes(), st.lists(SPECS, min_size=1, max_size=5))
def test_array_filters_agree_with_the_check_before_the_bind_on_each_node(cluster: tuple[Node, ...], specs: list[SchedulingSpec]) -> None:
    filters = NodeFilters()
    for spec in (*specs, *specs):  # the second time from the cache
        usable, refusals = filters.usable(spec, cluster), [refusal_on(spec, each) for each in cluster]
        assert usable.admitted.tolist() == [refusal is None for refusal in refusals]
        late, seen = Counter(), np.zeros(len(cluster), dtype=np.bool_)
        for reason, refused in usable.late:
            late[reason] += int((refused & ~seen).sum())
            seen |= refused
        assert Counter(dict(usable.reasons)) + late == Counter(refusal for refusal in refusals if refusal)


@given(nodes(), SPECS, SPECS)
def test_specs_that_differ_in_one_field_have_separate_filter_results(
    cluster: tuple[Node, ...], spec: SchedulingSpec, other: SchedulingSpec
) -> None:
    filters = NodeFilters()
    filters.usable(spec, cluster)
    for field in fields(SchedulingSpec):
        changed = replace(spec, **{field.name: getattr(other, field.name)})
        assert filters.usable(changed, cluster).admitted.tolist() == [refusal_on(changed, each) is None for each in cluster]


def test_soft_taints_of_nodes_that_a_pod_cannot_use_do_not_change_its_preferences() -> None:
    slow = tuple(Taint(f"slow{number}", "", "PreferNoSchedule") for number in range(3))
    nodes = (Node("n0", "n0", (), {}, taints=slow[:1]), Node("n1", "n1", (), {}), Node("n2", "n2", (), {"pool": "other"}, taints=slow))
    spec = SchedulingSpec((("pods", 1),), affinity=(NodeSelectorTerm((Requirement("pool", "DoesNotExist", ()),)),))
    assert NodeFilters().preference(spec, nodes).taints.tolist() == [1.0, 0.0, 1.0]
    assert NodeFilters().preference(SchedulingSpec((("pods", 1),)), nodes).taints.tolist() == [pytest.approx(1 / 3), 0.0, 1.0]
