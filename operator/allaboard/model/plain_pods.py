"""Reads the scheduling part of many pods that differ only in what scheduling ignores.

The pods of a gang mostly differ in names, environment and node, and each pod is read again at each of its events. A *plain* pod has no
field that depends on its name, labels, annotations or status. All that is read of it is a short text. So each such text is read once.
"""

from functools import lru_cache

import orjson

from allaboard.model.constraints import SchedulingSpec, readable_spec_from
from allaboard.model.errors import MalformedError
from allaboard.model.gpushares import KAI_ANNOTATIONS
from allaboard.model.limits import VOLUMES
from allaboard.model.requests import RawObject

_MOST_TEXTS = 512
_LONGEST = 4096  # bytes of a text that is kept, so that no tenant fills the memory
_IGNORED = frozenset({"nodeName", "volumes", "hostname", "subdomain"})
_IGNORED_OF_CONTAINERS = frozenset({"env", "envFrom", "args", "command", "volumeMounts"})
_NOT_PLAIN = frozenset({"affinity", "topologySpreadConstraints", "resourceClaims"})
_PLAIN_VOLUMES = frozenset({"name", "projected", "configMap", "secret", "emptyDir", "downwardAPI"})
_NOT_PLAIN_STATUS = frozenset({"resources", "allocatedResources", "resourceClaimStatuses", "resize"})
_NOT_PLAIN_CONTAINER_STATUS = frozenset({"resources", "allocatedResources"})


def spec_from(raw: RawObject, *, is_foreign: bool = False) -> tuple[SchedulingSpec, list[MalformedError]]:
    """Return what ``readable_spec_from`` returns for a raw pod."""
    text = _text(raw)
    plain = _read(text, is_foreign=is_foreign) if text is not None and len(text) <= _LONGEST else None
    return (plain, []) if plain is not None else readable_spec_from(raw, is_foreign=is_foreign)


@lru_cache(maxsize=_MOST_TEXTS)
def _read(text: bytes, *, is_foreign: bool) -> SchedulingSpec | None:
    """Return the scheduling part of a plain pod; None if a field can't be read."""
    spec, problems = readable_spec_from({"spec": orjson.loads(text)}, is_foreign=is_foreign)
    return None if problems else spec


def _text(raw: RawObject) -> bytes | None:
    """Return all that decides the scheduling part of a plain pod, as a text; None if the pod isn't plain."""
    metadata, spec, status = raw.get("metadata"), raw.get("spec"), raw.get("status") or {}
    if not (isinstance(metadata, dict) and isinstance(spec, dict) and isinstance(status, dict)) or not _NOT_PLAIN.isdisjoint(spec):
        return None
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict) or not KAI_ANNOTATIONS.isdisjoint(annotations):
        return None
    volumes, conditions = _objects(spec, "volumes"), _objects(status, "conditions")
    reported = [_objects(status, key) for key in ("containerStatuses", "initContainerStatuses")]
    if volumes is None or len(volumes) > VOLUMES.most or not all(map(_PLAIN_VOLUMES.issuperset, volumes)):
        return None
    if (
        conditions is None
        or not _NOT_PLAIN_STATUS.isdisjoint(status)
        or any(str(each.get("type")).startswith("PodResize") for each in conditions)
    ):
        return None
    if not all(each is not None and all(map(_NOT_PLAIN_CONTAINER_STATUS.isdisjoint, each)) for each in reported):
        return None
    text = {key: value for key, value in spec.items() if key not in _IGNORED}
    for key in ("containers", "initContainers"):
        if (containers := _objects(spec, key)) is None:
            return None
        text[key] = [{name: value for name, value in each.items() if name not in _IGNORED_OF_CONTAINERS} for each in containers]
    try:
        return orjson.dumps(text)
    except TypeError:  # for instance nested too deep
        return None


def _objects(parent: RawObject, key: str) -> list[dict[str, object]] | None:
    """Return the list of objects under ``key``, empty if it is missing; None if it is anything else."""
    found = parent.get(key) or []
    return found if isinstance(found, list) and all(isinstance(each, dict) for each in found) else None
