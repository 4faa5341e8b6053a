"""Gives volumes that several nodes can use to the claims of a gang before the search, which counts volumes node by node.

A local volume can be used on one node only. The search counts such volumes as a capacity of this node (``placement.rules.claims``). Another
volume, such as a disk in a zone, would be counted on each of its nodes. So the smallest such volumes are given to the claims of the gang
first, one to each: a member with such a volume must be where the volume is. A gang with a single claim needs no choice beforehand.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from allaboard.cluster.volumes import Need, VolumeView
from allaboard.model.constraints import NAME_FIELD, FreeVolume, Requirement, SchedulingSpec, UnboundClaim
from allaboard.model.node import HOSTNAME
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind


def with_chosen_volumes(
    candidates: Sequence[Pod], specs: Mapping[str, SchedulingSpec], volumes: VolumeView
) -> Mapping[str, SchedulingSpec]:
    """Return ``specs`` in which claims with volumes for several nodes have one of them, as a rule about nodes. Specs are by UID."""
    with_claims = [pod for pod in candidates if specs[pod.uid].unbound]
    if len(with_claims) < 2 and sum(len(specs[pod.uid].unbound) for pod in with_claims) < 2:
        return specs
    needs = {id(pod.spec): [need for need in volumes.needs(pod) if need.unbound is not None] for pod in with_claims}
    users = Counter(need.claim for pod in with_claims for need in needs[id(pod.spec)])
    chosen = _chosen({need.claim: need for of_pod in needs.values() for need in of_pod}, users)
    if not chosen:
        return specs  # the usual case: all volumes are local, or are provisioned
    given = {volume.name for volume in chosen.values()}
    found = dict(specs)
    made: dict[tuple[int, int], SchedulingSpec] = {}
    distinct: dict[SchedulingSpec, SchedulingSpec] = {}
    for pod in with_claims:
        kind = id(pod.spec), id(specs[pod.uid])
        if kind not in made:
            spec = _with(specs[pod.uid], needs[id(pod.spec)], chosen, given)
            made[kind] = distinct.setdefault(spec, spec)
        found[pod.uid] = made[kind]
    return found


def _chosen(needs: Mapping[str, Need], users: Mapping[str, int]) -> dict[str, FreeVolume]:
    """Return the volume that is given to each claim beforehand, the smallest that is left and large enough.

    A claim that several members use gets a volume in any case, since it is counted once.
    """
    found: dict[str, FreeVolume] = {}
    taken: set[str] = set()
    for_several: dict[int, list[FreeVolume]] = {}  # by kind of claims, volumes that several nodes can use
    for claim, need in sorted(needs.items(), key=lambda each: (len(each[1].unbound.volumes) if each[1].unbound else 0, each[0])):
        if (unbound := need.unbound) is None:
            continue
        if id(unbound) not in for_several:
            for_several[id(unbound)] = [volume for volume in unbound.volumes if not is_local(volume)]
        volumes = unbound.volumes if users[claim] > 1 else for_several[id(unbound)]
        volume = next((volume for volume in volumes if volume.name not in taken), None)
        if volume is not None:
            found[claim] = volume
            taken.add(volume.name)
    return found


def is_local(volume: FreeVolume) -> bool:
    """Return whether one node only can use a volume, as its node affinity says."""
    return any(len(terms) == 1 and any(map(_names_one_node, (*terms[0].expressions, *terms[0].fields))) for terms in volume.terms)


def _names_one_node(requirement: Requirement) -> bool:
    return requirement.operator == "In" and len(requirement.values) == 1 and requirement.key in (HOSTNAME, NAME_FIELD)


def _with(spec: SchedulingSpec, needs: Sequence[Need], chosen: Mapping[str, FreeVolume], given: set[str]) -> SchedulingSpec:
    """Return ``spec`` with the volumes that are ``chosen`` for its claims as rules. Its other claims can't get ``given`` volumes."""
    rules = list(spec.storage)
    unbound = []
    for need in needs:
        if (volume := chosen.get(need.claim)) is not None:
            rules.extend((Kind.NO_VOLUME, terms) for terms in volume.terms)
        elif need.unbound is not None:
            left = tuple(volume for volume in need.unbound.volumes if volume.name not in given)
            unbound.append(UnboundClaim(left, need.unbound.provisioned))
    return replace(spec, storage=tuple(rules), unbound=tuple(sorted(unbound)))
