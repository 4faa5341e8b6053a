"""The reflectors of the objects on which rules about nodes depend: where volumes may be used, and which namespaces a term selects."""

from allaboard.cluster.namespaces import namespace_labels_from
from allaboard.cluster.stored_kinds import OF_VOLUMES, RESOURCE_CLAIM, StoredKind
from allaboard.cluster.view import ClusterView
from allaboard.kube.client import ApiServer
from allaboard.kube.paths import NAMESPACES
from allaboard.kube.reachable import until_readable
from allaboard.kube.reflector import Reflector


def rule_reflectors(server: ApiServer, view: ClusterView) -> dict[str, Reflector]:
    """Return reflectors that keep ``view`` up to date, by the names of their resources."""
    found = {kind.resource.plural: _reflector(server, view, kind) for kind in OF_VOLUMES}
    return found | {"namespaces": Reflector(server, NAMESPACES.everywhere, namespace_labels_from, view.namespaces)}


async def follow_resource_claims(server: ApiServer, view: ClusterView) -> None:
    """Keep the resource claims of ``view`` up to date, as soon as the cluster serves them; older clusters don't."""
    await until_readable(server, RESOURCE_CLAIM.resource.everywhere)
    await _reflector(server, view, RESOURCE_CLAIM).run()


def _reflector(server: ApiServer, view: ClusterView, kind: StoredKind) -> Reflector:
    return Reflector(server, kind.resource.everywhere, kind.read, kind.store_of(view))
