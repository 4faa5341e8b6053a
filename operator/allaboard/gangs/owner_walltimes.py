"""Reads the walltimes that job operators' objects state for the pods that they own, such as ``runPolicy`` of a TFJob.

Of an object only its UID, the UID of its controller and its walltime are kept: a job can be as large as a megabyte.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from allaboard.gangs.uid_store import UidStore
from allaboard.kube.paths import Resource
from allaboard.model.errors import MalformedError
from allaboard.model.pod import controller_of
from allaboard.model.raw_fields import mapping, text
from allaboard.model.walltime import UNKNOWN, walltime_of

_LONGEST_UID = 128  # The API server's UIDs have 36 characters, but an owner reference may have any.


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of objects that own pods.

    ``resources`` are its versions in the API, of which the first that is served is read. ``path`` leads to the object that has the field
    ``activeDeadlineSeconds``; it is empty for a kind without this field.
    """

    resources: tuple[Resource, ...]
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """The kind with its API group, such as ``TFJob.kubeflow.org``."""
        group, kind = self.group_kind
        return f"{kind}.{group}"

    @property
    def group_kind(self) -> tuple[str, str]:
        """The API group and the kind."""
        return self.resources[0].api_version.partition("/")[0], self.resources[0].kind

    def read(self, raw: Mapping[str, Any]) -> "OwnerWalltime":
        """Return the record of a raw object. A malformed walltime or controller counts as absent.

        Raises ``MalformedError`` if the metadata has no readable UID.
        """
        metadata = mapping(raw, "metadata")
        uid, controller, stated = text(metadata, "uid", path="metadata."), "", raw
        with suppress(MalformedError):
            found = controller_of(metadata)
            controller = found.uid if found is not None and len(found.uid) <= _LONGEST_UID else ""
        try:
            for key in self.path:
                stated = mapping(stated, key)
        except MalformedError:
            stated = {}
        return OwnerWalltime(uid, controller, walltime_of(metadata, stated if self.path else {}))


@dataclass(frozen=True, slots=True)
class OwnerWalltime:
    """The walltime that an object states for the pods that it owns.

    ``controller`` is the UID of the object's own controller, empty if it has none. ``walltime`` is the longest time in seconds that its
    pods will run (``model.walltime``).
    """

    uid: str
    controller: str = ""
    walltime: float = UNKNOWN

    @property
    def is_empty(self) -> bool:
        """True if the object says nothing about when its pods will end."""
        return not self.uid or (not self.controller and self.walltime == UNKNOWN)


class OwnerStore(UidStore[OwnerWalltime]):
    """A reflector's store of owners. It keeps only the objects that say something."""

    def upsert(self, key: str, record: OwnerWalltime) -> None:
        """Store an owner, new or changed."""
        if record.is_empty:
            self.remove(key)
        else:
            super().upsert(key, record)


_RUN_POLICY, _SPEC = ("spec", "runPolicy"), ("spec",)


def _training(kind: str, *versions: str) -> OwnerKind:
    return OwnerKind(tuple(Resource(f"kubeflow.org/{version}", kind, f"{kind.lower()}s") for version in ("v1", *versions)), _RUN_POLICY)


OWNER_KINDS = (
    *map(_training, ("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob")),
    _training("MPIJob", "v2beta1"),  # training-operator serves v1, and mpi-operator v2beta1
    OwnerKind((Resource("ray.io/v1", "RayJob", "rayjobs"),), _SPEC),
    OwnerKind((Resource("ray.io/v1", "RayCluster", "rayclusters"),), ()),
)
"""The kinds of objects whose walltimes are read. A RayCluster states none, but names the RayJob that controls it."""


def owner_kind_of(group: str, kind: str) -> OwnerKind | None:
    """Return the kind of owners with this API group and name; None if its walltimes aren't read."""
    return next((each for each in OWNER_KINDS if each.group_kind == (group, kind)), None)
