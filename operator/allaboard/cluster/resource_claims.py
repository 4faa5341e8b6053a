"""Resource claims (DRA): a pod is placed where its claims are allocated. Allocating a claim isn't supported.

Once a pod has a node, Kubernetes' own controller reserves the pod's allocated claims for the pod (pkg/controller/resourceclaim, 1.37).
"""

from dataclasses import dataclass, replace
from typing import Any

from allaboard.cluster.records import ClaimError, HeardRecords
from allaboard.model.constraints import NodeSelectorTerm, node_selector_terms
from allaboard.model.pod import Pod
from allaboard.model.raw_fields import mapping, sequence
from allaboard.model.reasons import Kind

_MOST_USERS = 256  # of one claim (resource.k8s.io/v1, ResourceClaimReservedForMaxSize)


class UnallocatedClaimError(ClaimError):
    """A pod can't be placed because of a resource claim; the message names the claim and the reason."""


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A ResourceClaim. ``terms`` are the nodes on which its devices can be used, of which a node must match one; None for any node.

    ``users`` are the UIDs of the pods for which it is reserved.
    """

    is_allocated: bool = False
    terms: tuple[NodeSelectorTerm, ...] | None = None
    users: frozenset[str] = frozenset()


def resource_claim_from(raw: dict[str, Any]) -> ResourceClaim:
    """Return the record of a raw ResourceClaim. Raises ``MalformedError``."""
    status = mapping(raw, "status")
    users = frozenset(str(each.get("uid")) for each in sequence(status, "reservedFor", "status.") if isinstance(each, dict))
    if status.get("allocation") is None:
        return ResourceClaim(users=users)
    selector = mapping(mapping(status, "allocation", "status."), "nodeSelector", "status.allocation.")
    terms = node_selector_terms(selector, "status.allocation.nodeSelector.") if selector else None
    return ResourceClaim(is_allocated=True, terms=terms, users=users)


class ResourceClaims(HeardRecords[ResourceClaim]):
    """The resource claims of the cluster, as the store of a reflector."""

    def resolve(self, pod: Pod) -> Pod:
        """Return ``pod`` with the nodes of its claims in place of the claims. Raises ``UnallocatedClaimError``."""
        if not pod.spec.resource_claims:
            return pod
        rules = []
        for stated, name in pod.spec.resource_claims:
            if not name:
                raise UnallocatedClaimError(f'the resourceclaim for "{stated}" has not been created yet')
            claim = self.get(f"{pod.namespace}/{name}")
            if claim is None:
                raise UnallocatedClaimError(f'resourceclaim "{name}" not found')
            if not claim.is_allocated:
                raise UnallocatedClaimError(f'resourceclaim "{name}" is not allocated, and allocating one is not supported')
            if len(claim.users - {pod.uid}) >= _MOST_USERS:
                raise UnallocatedClaimError(f'resourceclaim "{name}" is in use by {_MOST_USERS} pods, which is the most')
            if claim.terms is not None:
                rules.append((Kind.RESOURCE_CLAIM, claim.terms))
        # The names of claims are dropped, so that members that differ only in these names have equal specs.
        return replace(pod, spec=replace(pod.spec, resource_claims=(), storage=(*pod.spec.storage, *rules)))
