"""Refuses resources of containers that the API server refuses (kubernetes pkg/apis/core/validation)."""

from allaboard.model.errors import MalformedError, shown
from allaboard.model.fields import items, mapping
from allaboard.model.quantities import parse_quantity
from allaboard.model.requests import RawObject

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})


def refuse_resources(pod: RawObject) -> None:
    """Raise ``MalformedError`` for a resource whose name or amounts the API server refuses.

    A name without a slash is a standard resource. Extended resources, such as GPUs, and huge pages can't be over-committed: their limit
    must be stated and be what is requested.
    """
    spec = mapping(pod, "spec")
    for key in ("containers", "initContainers"):
        for path, container in items(spec, key, "spec."):
            resources, where = mapping(container, "resources", path), f"{path}resources."
            requests, limits = mapping(resources, "requests", where), mapping(resources, "limits", where)
            for kind, amounts in (("limits", limits), ("requests", requests)):
                for name in amounts:
                    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
                        raise MalformedError(f"{where}{kind}[{shown(name)}]", "must be a standard resource type or fully qualified")
            for name, amount in requests.items():
                if amount is None or not _is_exact(name):
                    continue
                limit = limits.get(name)
                if limit is None:
                    raise MalformedError(f"{where}limits[{shown(name)}]", "a limit must be set: this resource can't be over-committed")
                if parse_quantity(amount, name) != parse_quantity(limit, name):
                    raise MalformedError(f"{where}requests[{shown(name)}]", f"must be equal to the limit, which is {shown(limit)}")


def _is_exact(name: str) -> bool:
    """Return whether limits and requests of a resource must be equal."""
    return name.startswith("hugepages-") or ("/" in name and "kubernetes.io/" not in name)
