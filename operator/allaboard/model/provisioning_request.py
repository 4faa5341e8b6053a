"""Makes records of the ProvisioningRequests of this scheduler.

Tenants may write such objects and their status. So only bounded parts are read, and a request counts only for a gang of its namespace.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from allaboard.model.errors import MalformedError, one_line
from allaboard.model.gang import GangKey
from allaboard.model.limits import ENTRIES
from allaboard.model.provisioning import MADE_FOR, MANAGED_BY, OURS, STAGES, Stage, is_our_name
from allaboard.model.raw_fields import items, mapping, text, version_of
from allaboard.model.requests import RawObject

_NOTE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """A ProvisioningRequest that this scheduler has made for the gang ``owner``.

    ``scheduler_name`` is the schedulerName of the gang's pods. ``templates`` are the names of the PodTemplates that the request refers to,
    as far as this scheduler has made them. ``note`` is the autoscaler's message on the stage; empty if there is none. ``version`` orders
    states of the object.
    """

    namespace: str
    name: str
    uid: str
    version: int
    owner: GangKey
    scheduler_name: str = ""
    stage: Stage = Stage.PENDING
    note: str = ""
    templates: tuple[str, ...] = ()
    is_terminating: bool = False

    @property
    def key(self) -> str:
        """The request's namespace and name: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def request_from(raw: RawObject) -> ProvisioningRequest | None:
    """Return the record of a raw ProvisioningRequest; None unless this scheduler has made it for a gang.

    Raises ``MalformedError`` only if the metadata can't be read. Malformed parts of spec and status are left out.
    """
    metadata = mapping(raw, "metadata")
    name, owner = text(metadata, "name", path="metadata."), _owner_in(metadata)
    if not is_our_name(name) or mapping(metadata, "labels", "metadata.").get(MANAGED_BY) != OURS or not owner:
        return None
    namespace = text(metadata, "namespace", "default", "metadata.")
    stage, note = _stage_in(raw)
    return ProvisioningRequest(
        namespace=namespace,
        name=name,
        uid=text(metadata, "uid", path="metadata."),
        version=version_of(raw),
        owner=GangKey(namespace, owner),
        scheduler_name=text(mapping(metadata, "annotations", "metadata."), MADE_FOR),
        stage=stage,
        note=note,
        templates=_templates_in(raw),
        is_terminating=metadata.get("deletionTimestamp") is not None,
    )


def _owner_in(metadata: Mapping[str, object]) -> str:
    """Return the name of the PodGroup that owns an object; empty if none does."""
    for path, reference in items(metadata, "ownerReferences", "metadata.", ENTRIES):
        if reference.get("kind") == "PodGroup":
            return text(reference, "name", path=path)
    return ""


def _stage_in(raw: RawObject) -> tuple[Stage, str]:
    """Return the stage of a raw request and the message on it. A status that can't be understood counts as no answer."""
    try:
        conditions = {each.get("type"): each for _, each in items(mapping(raw, "status"), "conditions", "status.", ENTRIES)}
    except (MalformedError, TypeError):  # a type that is a list can't be a key
        return Stage.PENDING, ""
    stage = next((each for each in STAGES if conditions.get(each, {}).get("status") == "True"), Stage.PENDING)
    # While the capacity isn't found, the autoscaler says so in the condition Provisioned, and tries again.
    said = conditions.get(stage if stage.is_over or stage is Stage.PROVISIONED else Stage.PROVISIONED, {})
    return stage, _note_in(said)


def _note_in(condition: Mapping[str, object]) -> str:
    message = condition.get("message") or condition.get("reason")
    return one_line(message[:_NOTE_CHARACTERS]).strip() if isinstance(message, str) else ""


def _templates_in(raw: RawObject) -> tuple[str, ...]:
    """Return the names of a raw request's PodTemplates that this scheduler has made."""
    try:
        pod_sets = items(mapping(raw, "spec"), "podSets", "spec.", ENTRIES)
        names = [text(mapping(each, "podTemplateRef", path), "name") for path, each in pod_sets]
        return tuple(name for name in names if is_our_name(name))
    except MalformedError:
        return ()
