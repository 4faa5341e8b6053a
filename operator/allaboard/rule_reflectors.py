"""The reflectors of the objects on which rules about nodes depend: where volumes may be used, and which namespaces a term selects."""

from allaboard.cluster.namespaces import namespace_labels_from
from allaboard.cluster.resource_claims import resource_claim_from
from allaboard.cluster.storage_objects import claim_from, storage_capacity_from, storage_class_from, tracks_capacity, volume_from
from allaboard.cluster.view import ClusterView
from allaboard.kube.client import ApiServer
from allaboard.kube.paths import CLAIMS, CSI_DRIVERS, CSI_NODES, NAMESPACES, RESOURCE_CLAIMS, STORAGE_CAPACITIES, STORAGE_CLASSES, VOLUMES
from allaboard.kube.reachable import until_readable
from allaboard.kube.reflector import Reflector
from allaboard.model.volumes import attach_limits_from


def rule_reflectors(server: ApiServer, view: ClusterView) -> dict[str, Reflector]:
    """Return reflectors that keep ``view`` up to date, by the names of their resources."""
    volumes = view.volumes
    return {
        "persistentvolumes": Reflector(server, VOLUMES.everywhere, volume_from, volumes.volumes),
        "persistentvolumeclaims": Reflector(server, CLAIMS.everywhere, claim_from, volumes.claims),
        "storageclasses": Reflector(server, STORAGE_CLASSES.everywhere, storage_class_from, volumes.classes),
        "csidrivers": Reflector(server, CSI_DRIVERS.everywhere, tracks_capacity, volumes.tracking),
        "csistoragecapacities": Reflector(server, STORAGE_CAPACITIES.everywhere, storage_capacity_from, volumes.capacities),
        "csinodes": Reflector(server, CSI_NODES.everywhere, attach_limits_from, volumes.limits),
        "namespaces": Reflector(server, NAMESPACES.everywhere, namespace_labels_from, view.namespaces),
    }


async def follow_resource_claims(server: ApiServer, view: ClusterView) -> None:
    """Keep the resource claims of ``view`` up to date, as soon as the cluster serves them; older clusters don't."""
    await until_readable(server, RESOURCE_CLAIMS.everywhere)
    await Reflector(server, RESOURCE_CLAIMS.everywhere, resource_claim_from, view.resource_claims.records).run()
