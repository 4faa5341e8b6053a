"""Read PodGroup objects into records, and build the PodGroup of a gang that exists by its labels only."""

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
from allaboard.model.pod import Pod, parse_time
from allaboard.model.raw_fields import integer, mapping, text, version_of
from allaboard.model.requests import RawObject, Requests, stated_amounts

MANAGED_BY = "app.kubernetes.io/managed-by"
OURS = "allaboard"
INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""The condition of a gang that was whole once."""
_UID_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class PodGroup:
    """One PodGroup. ``min_member`` is at least 1; ``timeout_seconds`` is 0 when the default applies.

    ``version`` orders states from several sources (watch, lists, replies): resourceVersions grow, also over a deletion.
    ``min_resources`` is what must be free before the gang starts. ``is_ours`` is true for objects that this scheduler made from labels:
    the labels then decide, and the object follows. ``malformed`` says which field is malformed or asks for what isn't done here; the gang
    is then held. ``over`` names the limit that the object is over, if that is why; empty otherwise.
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
    """Return the record of a raw PodGroup. Raises ``MalformedError`` only if it has no usable name."""
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
    """Return the first demand on another scheduler that isn't met here, ``None`` without one."""
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
    """Return the status, empty if it is too large or too deep: any client may write it where our CRD isn't installed."""
    status = mapping(raw, "status")
    try:
        return status if len(orjson.dumps(status)) <= STATUS_BYTES.most else {}
    except orjson.JSONEncodeError:  # it is nested too deeply
        return {}


def key_of(raw: RawObject) -> GangKey:
    """Return the key of a raw PodGroup's gang. Raises ``MalformedError`` if its name isn't text."""
    metadata = mapping(raw, "metadata")
    return GangKey(text(metadata, "namespace", "default", "metadata."), text(metadata, "name", path="metadata."))


def owner_references(members: Sequence[Pod]) -> list[dict[str, object]]:
    """Return an owner reference for each controller and bare pod of the members: the PodGroup lives as long as any of them.

    Only the first owners are referenced if there are many; when these are gone the PodGroup is created anew.
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
    """Return the PodGroup object of a gang that exists by its labels only, so that ``kubectl get podgroups`` shows the gang."""
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
    """Return when the gang was first whole by its PodGroup's status, in seconds since the epoch; None if the status doesn't say."""
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, Sequence) else ():
        if isinstance(condition, Mapping) and (condition.get("type"), condition.get("status")) == (INITIALLY_SCHEDULED, "True"):
            return parse_time(str(condition.get("lastTransitionTime") or ""))
    return None
