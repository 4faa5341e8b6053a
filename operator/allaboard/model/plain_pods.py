"""Reads the scheduling part of many pods that differ only in what scheduling ignores.

The pods of a gang mostly differ in names, environment and node, and each pod is read again at each of its events. A *plain* pod has no
field that depends on its name, labels, annotations or status. All that is read of it is a short text. So each such text is read once.
"""

from functools import lru_cache

import orjson

from allaboard.model.constraints import SchedulingSpec, readable_spec_from
from allaboard.model.errors import MalformedError
from allaboard.model.gpushares import KAI_ANNOTATIONS
from allaboard.model.limits import CONTAINERS, ENTRIES, VOLUMES
from allaboard.model.raw_fields import items, mapping
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
    try:
        spec, status = mapping(raw, "spec"), mapping(raw, "status")
        if not KAI_ANNOTATIONS.isdisjoint(mapping(mapping(raw, "metadata"), "annotations")) or not _NOT_PLAIN.isdisjoint(spec):
            return None
        if not _NOT_PLAIN_STATUS.isdisjoint(status):
            return None
        if not all(_PLAIN_VOLUMES.issuperset(volume) for _, volume in items(spec, "volumes", limit=VOLUMES)):
            return None
        if any(str(condition.get("type")).startswith("PodResize") for _, condition in items(status, "conditions", limit=ENTRIES)):
            return None
        for key in ("containerStatuses", "initContainerStatuses"):
            if not all(_NOT_PLAIN_CONTAINER_STATUS.isdisjoint(each) for _, each in items(status, key, limit=CONTAINERS)):
                return None
        text = {key: value for key, value in spec.items() if key not in _IGNORED}
        for key in ("containers", "initContainers"):
            text[key] = [
                {name: value for name, value in container.items() if name not in _IGNORED_OF_CONTAINERS}
                for _, container in items(spec, key)
            ]
        return orjson.dumps(text)
    except (MalformedError, TypeError):  # a type error is of a text that is nested too deep, or of a number that is too large
        return None
