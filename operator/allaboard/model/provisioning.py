"""Names and stages of ProvisioningRequests (``autoscaling.x-k8s.io/v1``), which ask an autoscaler for the nodes of a whole gang at once.

Pods that use the nodes carry an annotation with the request's name. cluster-autoscaler adds no nodes of its own accord for such pods,
whatever happens to the request (cluster-autoscaler processors/provreq/pods_filter.go).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Annotation of a pod: the name of the ProvisioningRequest whose nodes the pod uses."""
PROVISIONING_CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotation of a pod: the provisioning class of that request."""

MANAGED_BY, OURS = "app.kubernetes.io/managed-by", "allaboard"
"""The label of the requests and PodTemplates that this scheduler makes, and its value."""

MADE_FOR = "allaboard.dev/scheduler-name"
"""Annotation of a request: the schedulerName of its gang. Another installation of this scheduler leaves the request alone."""

MOST_SHAPES = 32
"""The most pod sets of one request, by its CRD."""

_OLDER_CONSUMES = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
_NAME_CHARACTERS, _STEM_CHARACTERS = 253, 200
_OUR_NAME = re.compile(rf".+-{OURS}-[0-9a-f]{{10}}", re.ASCII)


class Stage(StrEnum):
    """The autoscaler's progress with a request, by the request's conditions."""

    PENDING = "Pending"
    """The autoscaler has not answered yet."""
    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    FAILED = "Failed"
    BOOKING_EXPIRED = "BookingExpired"
    CAPACITY_REVOKED = "CapacityRevoked"

    @property
    def is_over(self) -> bool:
        """True if the request brings no nodes, so that it is given up."""
        return self in _OVER


_OVER = (Stage.CAPACITY_REVOKED, Stage.FAILED, Stage.BOOKING_EXPIRED)
STAGES = (*_OVER, Stage.PROVISIONED, Stage.ACCEPTED)
"""The stages that conditions state. If several conditions are true, the first of these stages counts."""


@dataclass(frozen=True, slots=True)
class Provisioning:
    """The part of a waiting gang's message that is about the nodes that an autoscaler is asked for.

    ``request`` is the ``namespace/name`` of the gang's request; empty while there is none. ``stage`` is how far the autoscaler is with it.
    ``note`` is the autoscaler's message; without a request it is the reason why there is none. ``retry_time`` is when the next request may
    be made, in seconds since the epoch; 0 if nothing delays it. ``is_being_made`` is true while the request is about to be made: then the
    members aren't annotated yet, and an autoscaler must not add nodes for each of them.
    """

    request: str = ""
    stage: Stage = Stage.PENDING
    note: str = ""
    retry_time: float = 0.0
    is_being_made: bool = False


def consumed_by(metadata: Mapping[str, object]) -> str:
    """Return the name of the request whose nodes a pod uses, from the pod's metadata; empty without one."""
    annotations = metadata.get("annotations")
    value = annotations.get(CONSUMES) or annotations.get(_OLDER_CONSUMES) if isinstance(annotations, Mapping) else None
    return value[:_NAME_CHARACTERS] if isinstance(value, str) else ""


def our_name(stem: str, digest: str) -> str:
    """Return the name of a request or PodTemplate that this scheduler makes; ``digest`` has ten hexadecimal digits."""
    return f"{stem[:_STEM_CHARACTERS].rstrip('-.')}-{OURS}-{digest}"


def is_our_name(name: str) -> bool:
    """Return whether this scheduler gives such names to requests and PodTemplates."""
    return _OUR_NAME.fullmatch(name) is not None
