"""Tests of the requirements that other objects add to a gang's members, and of their limits."""

from dataclasses import replace

import pytest

from allaboard.cluster.storage_objects import Claim, Shape, StorageClass, StoredVolume
from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import VolumeView
from allaboard.gangs.registry import OVER_LIMIT
from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.limits import CLAIM_KINDS, GANG_CLAIMS, GANG_REQUIREMENTS, KINDS, LABEL_SETS, TOPOLOGIES
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm
from allaboard.model.volumes import Attaches, Volume
from allaboard.planning.resolve import resolve

SPEC = SchedulingSpec((("cpu", 1000), ("pods", 1)))


def a_pod(name: str, *, node: str = "", namespace: str = "team", spec: SchedulingSpec = SPEC, **labels: str) -> Pod:
    phase = "Running" if node else "Pending"
    return Pod(namespace, name, f"uid-{name}", "1", 0.0, "allaboard", node, phase, 0, spec, labels=tuple(sorted(labels.items())))


def a_gang(*members: Pod) -> Gang:
    return Gang(GangKey("team", "g"), len(members), members, 0, 0.0, Objective.BINPACK, 60)


def a_view(*terms: PodTerm) -> ClusterView:
    """Return a view of two zones, and of another namespace's pod in the first zone whose anti-affinity has ``terms``."""
    view = ClusterView()
    for name, zone in (("n1", "a"), ("n2", "b")):
        view.upsert_node(Node(name, name, (("cpu", 8000), ("pods", 110)), {"zone": zone, "rack": f"r-{name}"}))
    view.upsert_pod(a_pod("db", node="n1", namespace="other", spec=replace(SPEC, anti_affinity=terms)))
    return view


def anti_affinity_to(*expressions: LabelExpression) -> PodTerm:
    return PodTerm("zone", expressions, in_any_namespace=True)


def not_in(*zones: str) -> tuple[tuple[NodeSelectorTerm, ...], ...]:
    return ((NodeSelectorTerm((Requirement("zone", "NotIn", zones),)),),)


def test_each_member_avoids_the_domains_of_pods_whose_anti_affinity_selects_its_labels() -> None:
    view = a_view(anti_affinity_to(LabelExpression("app", "In", ("web",))))
    placed = resolve(a_gang(a_pod("a", app="web"), a_pod("b", app="ps")), VolumeView(), view)
    assert [pod.spec.forbidden_domains for pod in placed.members] == [not_in("a"), ()]


def test_members_with_equal_requirements_share_one_spec() -> None:
    view = a_view(anti_affinity_to(LabelExpression("app", "Exists")))
    gang = a_gang(*(a_pod(f"m{index}", app="web", index=str(index)) for index in range(100)))
    placed = resolve(gang, VolumeView(), view)
    assert len({id(pod.spec) for pod in placed.members}) == 1
    assert placed.members[0].spec.forbidden_domains == not_in("a")


def test_members_with_too_many_different_labels_avoid_each_domain_that_any_member_must_avoid() -> None:
    members = [a_pod(f"m{index}", app="web", index=str(index)) for index in range(LABEL_SETS.most + 1)]
    view = a_view(anti_affinity_to(LabelExpression("index", "In", ("3",))))
    assert {pod.spec.forbidden_domains for pod in resolve(a_gang(*members[:-1]), VolumeView(), view).members} == {(), not_in("a")}
    assert {pod.spec.forbidden_domains for pod in resolve(a_gang(*members), VolumeView(), view).members} == {not_in("a")}


def test_labels_that_all_members_share_are_respected_even_if_other_labels_are_too_diverse() -> None:
    members = [a_pod(f"m{index}", app="web", index=str(index)) for index in range(LABEL_SETS.most + 1)]
    view = a_view(anti_affinity_to(LabelExpression("app", "In", ("db",)), LabelExpression("index", "Exists")))
    gang = a_gang(*members)
    assert resolve(gang, VolumeView(), view) is gang


def test_anti_affinity_of_other_pods_adds_no_kinds_of_members_beyond_the_limit() -> None:
    specs = [SchedulingSpec((("cpu", number + 1), ("pods", 1))) for number in range(KINDS.most)]
    members = [a_pod(f"m{number}", spec=spec, index=str(number % 2)) for number, spec in enumerate(specs * 2)]
    members = [replace(pod, labels=(("index", str(number // KINDS.most)),)) for number, pod in enumerate(members)]
    placed = resolve(a_gang(*members), VolumeView(), a_view(anti_affinity_to(LabelExpression("index", "In", ("0",)))))
    assert placed.hold is None
    assert len({pod.spec for pod in placed.members}) == KINDS.most


def test_a_gang_with_too_many_kinds_of_members_is_held_with_a_message() -> None:
    members = [a_pod(f"m{number}", spec=SchedulingSpec((("cpu", number + 1),))) for number in range(KINDS.most + 1)]
    hold = resolve(a_gang(*members), VolumeView(), ClusterView()).hold
    assert hold is not None
    assert (hold.reason, hold.field) == (OVER_LIMIT, "kinds")
    assert hold.message == "podgroup team/g: 257 kinds of members are more than the 256 that are supported"
    assert resolve(a_gang(*members[1:]), VolumeView(), ClusterView()).hold is None


def test_a_gang_whose_kinds_of_members_have_too_many_rules_in_all_is_held() -> None:
    each = 64
    members = []
    for number in range(GANG_REQUIREMENTS.most // each + 1):
        selector = tuple((f"k{rule}", str(number)) for rule in range(each))
        members.append(a_pod(f"m{number}", spec=replace(SPEC, node_selector=selector)))
    hold = resolve(a_gang(*members), VolumeView(), ClusterView()).hold
    assert hold is not None
    assert hold.field == "gang_requirements"
    assert resolve(a_gang(*members[1:]), VolumeView(), ClusterView()).hold is None


def test_a_gang_with_too_many_groups_of_members_that_must_share_a_domain_is_held() -> None:
    members = [replace(a_pod(f"m{number}"), options=(("required-topology", f"rack{number}"),)) for number in range(TOPOLOGIES.most + 1)]
    hold = resolve(a_gang(*members), VolumeView(), ClusterView()).hold
    assert hold is not None
    assert hold.field == "topologies"


def test_a_gang_with_too_many_groups_that_are_divided_into_segments_is_held() -> None:
    members = [
        replace(a_pod(f"m{number}"), options=(("role", f"r{number}"), ("topology", "segment=1@rack"))) for number in range(TOPOLOGIES.most)
    ]
    hold = resolve(a_gang(*members), VolumeView(), ClusterView()).hold
    assert hold is not None
    assert hold.field == "topologies"
    assert resolve(a_gang(*members[: TOPOLOGIES.most // 2]), VolumeView(), ClusterView()).hold is None


def test_a_gang_with_too_many_terms_about_other_pods_for_its_members_is_held() -> None:
    def members(number: int, *, are_alike: bool) -> list[Pod]:
        """Return members that state 16 terms each: the same terms if they ``are_alike``."""
        of_each = [
            [PodTerm("zone", (LabelExpression(f"k{0 if are_alike else each}-{term}", "Exists"),)) for term in range(16)]
            for each in range(number)
        ]
        return [a_pod(f"m{each}", spec=replace(SPEC, pod_affinity=tuple(terms))) for each, terms in enumerate(of_each)]

    hold = resolve(a_gang(*members(200, are_alike=False)), VolumeView(), ClusterView()).hold
    assert hold is not None
    assert hold.field == "gang_terms"
    assert hold.message.endswith(": 640000 pairs of a member and a term about other pods are more than the 500000 that are supported")
    assert resolve(a_gang(*members(200, are_alike=True)), VolumeView(), ClusterView()).hold is None
    assert resolve(a_gang(*members(150, are_alike=False)), VolumeView(), ClusterView()).hold is None


def prefers(weight: int, **labels: str) -> SchedulingSpec:
    term = PodTerm("zone", tuple(LabelExpression(key, "In", (value,)) for key, value in labels.items()))
    return replace(SPEC, preferred_pods=((weight, term),))


def a_view_beside(spec: SchedulingSpec) -> ClusterView:
    """Return a view of two zones, and of a pod of the gang's namespace with ``spec`` in the first zone."""
    view = a_view()
    view.upsert_pod(a_pod("first", node="n1", spec=spec))
    return view


def gains(view: ClusterView, *members: Pod) -> dict[str, dict[str, int]]:
    """Return what bound pods' preferences add to the scores of zones, for each member by name."""
    found = {}
    for pod in resolve(a_gang(*members), VolumeView(), view).members:
        found[pod.name] = dict(dict(pod.spec.neighbours.scores).get("zone", ())) if pod.spec.neighbours else {}
    return found


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_preferences_of_bound_pods_count_for_the_members_that_they_select(order: tuple[int, int]) -> None:
    view = a_view_beside(prefers(100, role="ps"))
    members = [a_pod("ps", role="ps"), a_pod("worker", role="worker")]
    assert gains(view, *(members[place] for place in order)) == {"ps": {"a": 100}, "worker": {}}


def test_weights_of_all_bound_pods_with_a_preference_add_up() -> None:
    view = a_view_beside(prefers(100, app="x"))
    view.upsert_pod(a_pod("second", node="n1", spec=prefers(-30, app="x")))
    view.upsert_pod(a_pod("third", node="n2", spec=prefers(100, app="x")))
    assert gains(view, a_pod("m", app="x")) == {"m": {"a": 70, "b": 100}}


def test_required_affinity_of_a_bound_pod_counts_as_a_preference_of_weight_1() -> None:
    term = PodTerm("zone", (LabelExpression("app", "In", ("x",)),))
    assert gains(a_view_beside(replace(SPEC, pod_affinity=(term,))), a_pod("m", app="x")) == {"m": {"a": 1}}


def test_preferences_of_bound_pods_follow_the_labels_of_namespaces() -> None:
    term = PodTerm(
        "zone", (LabelExpression("app", "In", ("x",)),), in_any_namespace=True, of_namespaces=(LabelExpression("of", "In", ("a",)),)
    )
    view = a_view_beside(replace(SPEC, preferred_pods=((5, term),)))
    assert gains(view, a_pod("m", app="x")) == {"m": {}}
    view.namespaces.upsert("team", {"of": "a"})
    assert gains(view, a_pod("m", app="x")) == {"m": {"a": 5}}


def test_members_with_too_many_different_labels_get_the_scores_for_the_labels_that_they_share() -> None:
    view = a_view_beside(prefers(100, app="x"))
    view.upsert_pod(a_pod("second", node="n1", spec=prefers(7, index="3")))
    members = [a_pod(f"m{index}", app="x", index=str(index)) for index in range(LABEL_SETS.most + 1)]
    assert gains(view, *members[:-1])["m3"] == {"a": 107}
    assert {tuple(each.items()) for each in gains(view, *members).values()} == {(("a", 100),)}


def test_members_that_differ_only_in_their_volume_claims_are_of_one_kind() -> None:
    volumes = VolumeView()
    volumes.volumes.upsert("pv", StoredVolume((not_in("b")[0],)))
    members = []
    for number in range(KINDS.most + 1):
        volumes.claims.upsert(f"team/data-{number}", Claim("pv"))
        members.append(a_pod(f"m{number}", spec=replace(SPEC, claims=(f"data-{number}",))))
    placed = resolve(a_gang(*members), volumes, ClusterView())
    assert placed.hold is None
    assert {pod.spec for pod in placed.members} == {replace(SPEC, volumes=(not_in("b")[0],))}


def test_a_gang_whose_volume_claim_does_not_exist_is_held() -> None:
    hold = resolve(a_gang(a_pod("a", spec=replace(SPEC, claims=("data",)))), VolumeView(), ClusterView()).hold
    assert hold is not None
    assert hold.message == 'pod a: persistentvolumeclaim "data" not found'


def a_view_of_disks(*claims: str) -> ClusterView:
    """Return a view of two nodes that attach ten disks each, and of ``claims`` that are bound to a disk each."""
    view = a_view()
    for name in ("n1", "n2"):
        view.volumes.limits.upsert(name, {"disk": 10})
    for claim in claims:
        view.volumes.claims.upsert(f"team/{claim}", Claim(f"pv-{claim}"))
        view.volumes.volumes.upsert(f"pv-{claim}", StoredVolume(attached=Volume("disk", claim)))
    return view


def test_members_with_equally_many_volumes_are_of_one_kind() -> None:
    claims = [f"data-{number}" for number in range(KINDS.most + 1)]
    view = a_view_of_disks("shared", *claims)
    members = [a_pod(claim, spec=replace(SPEC, claims=(claim, "shared"))) for claim in claims]
    placed = resolve(a_gang(*members), view.volumes, view)
    assert placed.hold is None
    assert {pod.spec for pod in placed.members} == {replace(SPEC, attaches=(Attaches("disk", 1, (("shared", ()),)),))}
    assert len({id(pod.spec) for pod in placed.members}) == 1


def test_a_volume_that_is_already_attached_to_a_node_is_not_counted_again_there() -> None:
    view = a_view_of_disks("data")
    view.upsert_pod(a_pod("stranger", node="n2", spec=replace(SPEC, claims=("data",))))
    placed = resolve(a_gang(a_pod("a", spec=replace(SPEC, claims=("data",)))), view.volumes, view)
    assert placed.members[0].spec.attaches == (Attaches("disk", 0, (("data", ("n2",)),)),)


def test_volumes_of_a_storage_driver_without_a_limit_are_not_counted() -> None:
    view = a_view_of_disks("data")
    for name in ("n1", "n2"):
        view.volumes.limits.upsert(name, {"another": 1})
    placed = resolve(a_gang(a_pod("a", spec=replace(SPEC, claims=("data",)))), view.volumes, view)
    assert placed.members[0].spec == SPEC


def test_a_gang_with_too_many_volumes_is_held() -> None:
    number = GANG_CLAIMS.most // 64 + 1
    members = [a_pod(f"m{each}", spec=replace(SPEC, claims=tuple(f"c{each}-{claim}" for claim in range(64)))) for each in range(number)]
    hold = resolve(a_gang(*members), VolumeView(), ClusterView()).hold
    assert hold is not None
    assert (hold.reason, hold.field) == (OVER_LIMIT, "gang_claims")


def a_claim_of(size: int, storage_class: str = "local") -> Claim:
    return Claim("", shape=Shape(storage_class, size))


def a_view_of_volumes(*nodes: str, size: int = 100) -> ClusterView:
    """Return a view with one free volume for each of ``nodes``; a volume for ``*`` can be used on each node."""
    view = ClusterView()
    view.volumes.classes.upsert("local", StorageClass(waits=True))
    for number, name in enumerate(nodes):
        here = () if name == "*" else ((NodeSelectorTerm(expressions=(Requirement("kubernetes.io/hostname", "In", (name,)),)),),)
        view.volumes.volumes.upsert(f"v{number}", StoredVolume(here, shape=Shape("local", size + number), is_free=True))
    return view


def members_with_claims(view: ClusterView, *sizes: int) -> Gang:
    for number, size in enumerate(sizes):
        view.volumes.claims.upsert(f"team/c{number}", a_claim_of(size))
    return a_gang(*(a_pod(f"m{number}", spec=replace(SPEC, claims=(f"c{number}",))) for number in range(len(sizes))))


def test_volumes_that_several_nodes_can_use_are_given_to_one_claim_each() -> None:
    view = a_view_of_volumes("*", "*", "n1")
    placed = resolve(members_with_claims(view, 1, 1, 1), view.volumes, view)
    left = [pod.spec.unbound for pod in placed.candidates]
    assert left.count(()) == 2
    ((last,),) = [claims for claims in left if claims]
    assert [volume.name for volume in last.volumes] == ["v2"]


def test_single_claim_may_get_each_volume() -> None:
    view = a_view_of_volumes("*", "n1")
    (pod,) = resolve(members_with_claims(view, 1), view.volumes, view).candidates
    assert [volume.name for volume in pod.spec.unbound[0].volumes] == ["v0", "v1"]


def test_gang_with_too_many_kinds_of_claims_is_held() -> None:
    view = a_view_of_volumes(*("n1",) * (CLAIM_KINDS.most + 1))
    sizes = [100 + number for number in range(CLAIM_KINDS.most + 1)]
    hold = resolve(members_with_claims(view, *sizes), view.volumes, view).hold
    assert hold is not None
    assert "kinds of claims" in hold.message


def test_gang_whose_members_share_a_claim_for_one_pod_is_held() -> None:
    view = ClusterView()
    view.volumes.claims.upsert("team/data", Claim("pv", is_for_one_pod=True))
    view.volumes.volumes.upsert("pv", StoredVolume())
    hold = resolve(a_gang(*(a_pod(name, spec=replace(SPEC, claims=("data",))) for name in "ab")), view.volumes, view).hold
    assert hold is not None
    assert "ReadWriteOncePod" in hold.message
