"""Make records of PodGroup objects, and build the PodGroup object of a gang that only its pods' labels declare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from allaboard.kube.paths import POD_GROUPS
from allaboard.model.errors import MalformedError
from allaboard.model.foreign_gang_labels import SPEC_FIELDS, foreign_gang_labels_in, foreign_label_of, sentence
from allaboard.model.gang import GangKey
from allaboard.model.limits import MIN_RESOURCES, POD_GROUP_OWNERS, STATUS_BYTES, OverLimitError
from allaboard.model.options import options_in
from allaboard.model.pod import Pod
from allaboard.model.raw_fields import integer, mapping, text, version_of
from allaboard.model.requests import RawObject, Requests, stated_amounts
from allaboard.model.times import parse_time

MANAGED_BY = "app.kubernetes.io/managed-by"
OURS = "allaboard"
INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""The type of the condition that a PodGroup has since its gang was first whole."""
_UID_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class PodGroup:
    """One PodGroup.

    - ``min_member`` is at least 1. ``timeout_seconds`` is 0 if the default applies.
    - ``version`` orders states of the object from several sources (watch, lists, replies): a later resourceVersion is greater, even if the
      object was deleted and created again in between.
    - ``min_resources`` are the resources that must be free before the gang starts.
    - ``is_ours`` is true for an object that this scheduler made from labels. The labels, and not this object, then decide the minimum.
    - ``malformed`` names a field that is malformed, or that asks for something this scheduler doesn't do, and says why; empty if there is
      none. The gang of a malformed PodGroup is held. ``over`` names the limit that the field exceeds; empty if it exceeds none.
    """

    key: GangKey
    uid: str
    version: int
    min_member: int
    timeout_seconds: int
    created: float
    options: Mapping[str, str]
    is_ours: bool = False
    owner_uids: frozenset[str] = frozenset()
    status: Mapping[str, Any] | None = None
    min_resources: Requests = ()
    malformed: str = ""
    over: str = ""


def pod_group_from(raw: RawObject) -> PodGroup:
    """Return the record of a raw PodGroup. Raises ``MalformedError`` only if the metadata are malformed, so that no gang can be named."""
    metadata = mapping(raw, "metadata")
    key = key_of(raw)
    minimum, timeout, malformed, over = 1, 0, "", ""
    options: dict[str, str] = {}
    is_ours, resources = False, Requests()
    try:
        spec = mapping(raw, "spec")
        # Zero counts as absent: mpi-operator writes zeros where it means the default.
        minimum = integer(spec, "minMember", path="spec.") or 1
        timeout = integer(spec, "scheduleTimeoutSeconds", path="spec.")
        if minimum < 1:
            raise MalformedError("spec.minMember", f"{minimum} is less than 1")
        if timeout < 0:
            raise MalformedError("spec.scheduleTimeoutSeconds", f"{timeout} is negative")
        resources = stated_amounts(spec, "minResources", "spec.", MIN_RESOURCES)
        is_ours = mapping(metadata, "labels", "metadata.").get(MANAGED_BY) == OURS
        stated, problem = options_in(metadata)
        options = dict(stated)
        if problem := problem or _unmet(metadata, spec):
            raise problem
    except MalformedError as error:
        minimum, malformed = max(1, minimum), str(error)
        over = error.limit.name if isinstance(error, OverLimitError) else ""
    return PodGroup(
        key=key,
        uid=text(metadata, "uid", path="metadata."),
        version=version_of(raw),
        min_member=minimum,
        timeout_seconds=timeout,
        created=parse_time(text(metadata, "creationTimestamp", path="metadata.")),
        options=options,
        is_ours=is_ours,
        owner_uids=_owner_uids(metadata) if is_ours else frozenset(),
        status=_status_from(raw),
        min_resources=resources,
        malformed=malformed,
        over=over,
    )


def _unmet(metadata: RawObject, spec: RawObject) -> MalformedError | None:
    """Return an error for the first label, annotation or field that asks another scheduler for something; None if there is none."""
    labels, annotations = mapping(metadata, "labels", "metadata."), mapping(metadata, "annotations", "metadata.")
    if name := foreign_gang_labels_in(labels, annotations).demand:
        return MalformedError(
            f"metadata.{'annotations' if labels.get(name) is None else 'labels'}[{name}]", sentence(foreign_label_of(name))
        )
    return next((MalformedError(f"spec.{name}", sentence(mark)) for name, mark in SPEC_FIELDS.items() if spec.get(name)), None)


def _owner_uids(metadata: RawObject) -> frozenset[str]:
    owners = metadata.get("ownerReferences")
    known = owners[: POD_GROUP_OWNERS.most] if isinstance(owners, Sequence) else ()
    return frozenset(str(owner.get("uid"))[:_UID_CHARACTERS] for owner in known if isinstance(owner, Mapping))


def _status_from(raw: RawObject) -> Mapping[str, Any]:
    """Return the status; empty if it is too large or too deep. Without our CRD any client may write any status."""
    status = mapping(raw, "status")
    try:
        return status if len(orjson.dumps(status)) <= STATUS_BYTES.most else {}
    except orjson.JSONEncodeError:  # raised if the status is nested too deeply
        return {}


def key_of(raw: RawObject) -> GangKey:
    """Return the key of a raw PodGroup's gang. Raises ``MalformedError`` if its name or namespace isn't text."""
    metadata = mapping(raw, "metadata")
    return GangKey(text(metadata, "namespace", "default", "metadata."), text(metadata, "name", path="metadata."))


def owner_references(members: Sequence[Pod]) -> list[dict[str, object]]:
    """Return an owner reference for each controller and each bare pod of the members.

    So the PodGroup exists as long as any of these owners. Of many owners only the first 1,000 are referenced. When these 1,000 are gone,
    the PodGroup is deleted and created again with other owners.
    """
    owners: dict[str, dict[str, object]] = {}
    for pod in members:
        if len(owners) == POD_GROUP_OWNERS.most:
            break
        owner = pod.owner
        uid = owner.uid if owner else pod.uid
        owners.setdefault(
            uid,
            {
                "apiVersion": owner.api_version if owner else "v1",
                "kind": owner.kind if owner else "Pod",
                "name": owner.name if owner else pod.name,
                "uid": uid,
            },
        )
    return list(owners.values())


def implicit_pod_group(key: GangKey, min_member: int, members: Sequence[Pod]) -> dict[str, object]:
    """Return a PodGroup object for a gang that only labels declare, so that ``kubectl get podgroups`` shows the gang."""
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {MANAGED_BY: OURS},
            "ownerReferences": owner_references(members),
        },
        "spec": {"minMember": min_member},
    }


def scheduled_since(status: Mapping[str, Any]) -> float | None:
    """Return when the gang was first whole, in seconds since the epoch, from its PodGroup's status; None if the status doesn't say."""
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, Sequence) else ():
        if isinstance(condition, Mapping) and (condition.get("type"), condition.get("status")) == (INITIALLY_SCHEDULED, "True"):
            return parse_time(str(condition.get("lastTransitionTime") or ""))
    return None
