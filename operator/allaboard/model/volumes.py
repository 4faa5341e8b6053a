"""The CSI volumes that count against the limits of nodes: which volume a source names, and how many volumes a pod attaches.

Volumes are counted as by kube-scheduler (plugins/nodevolumelimits/csi.go, 1.37): a volume counts once per node, however many pods use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from allaboard.model.limits import ATTACH_DRIVERS
from allaboard.model.raw_fields import integer, items, mapping, text
from allaboard.model.requests import RawObject


class Volume(NamedTuple):
    """A volume that the CSI driver ``driver`` attaches to nodes; ``handle`` is the driver's name of the volume."""

    driver: str
    handle: str


@dataclass(frozen=True, slots=True, order=True)
class Attaches:
    """The volumes that a pod attaches by one driver.

    ``own`` is the number of volumes that no other pod uses. ``shared`` has (handle, node names) of each volume that other pods use as well.
    On these nodes the volume is attached already, so it doesn't count there.
    """

    driver: str
    own: int = 0
    shared: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def needed_on(self, node_name: str) -> tuple[int, frozenset[str]]:
        """Return how many own volumes and which shared volumes must be attached to the node ``node_name`` for the pod."""
        return self.own, frozenset(handle for handle, nodes in self.shared if node_name not in nodes)


_MOST_CHARACTERS = 1024  # of a handle, which may be a path

# csi-translation-lib: in-tree plugins whose volumes a CSI driver attaches, with the driver and the field that names the volume.
_MIGRATED = {
    "awsElasticBlockStore": ("ebs.csi.aws.com", "volumeID"),
    "azureDisk": ("disk.csi.azure.com", "diskURI"),
    "cinder": ("cinder.csi.openstack.org", "volumeID"),
    "gcePersistentDisk": ("pd.csi.storage.gke.io", "pdName"),
    "portworxVolume": ("pxd.portworx.com", "volumeID"),
    "vsphereVolume": ("csi.vsphere.vmware.com", "volumePath"),
}


def migrated_volume(source: RawObject, path: str = "") -> Volume | None:
    """Return the volume of a source whose plugin is in-tree, if a CSI driver attaches the plugin's volumes; else ``None``.

    Raises ``MalformedError``.
    """
    for plugin, (driver, field) in _MIGRATED.items():
        if named := mapping(source, plugin, path):
            return _volume(driver, named.get(field))
    return None


def volume_of(spec: RawObject) -> Volume | None:
    """Return the CSI volume that a PersistentVolume's spec names, ``None`` if no CSI driver attaches it. Raises ``MalformedError``."""
    csi = mapping(spec, "csi", "spec.")
    if not csi:
        return migrated_volume(spec, "spec.")
    return _volume(text(csi, "driver", path="spec.csi."), csi.get("volumeHandle"))


def _volume(driver: str, handle: object) -> Volume | None:
    return Volume(driver, handle) if driver and isinstance(handle, str) and 0 < len(handle) <= _MOST_CHARACTERS else None


def attach_limits_from(raw: RawObject) -> Mapping[str, int]:
    """Return how many volumes of each driver a node can attach, as the node's CSINode says. Raises ``MalformedError``.

    A driver for which the CSINode states no number has no limit.
    """
    found = {}
    for path, driver in items(mapping(raw, "spec"), "drivers", "spec.", ATTACH_DRIVERS):
        allocatable = mapping(driver, "allocatable", path)
        if allocatable.get("count") is not None:
            found[text(driver, "name", path=path)] = max(0, integer(allocatable, "count", path=f"{path}allocatable."))
    return found
