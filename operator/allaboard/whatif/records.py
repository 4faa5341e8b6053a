"""Fills the operator's view and registry from the objects of a cluster, and from what manifests bring to that cluster."""

from allaboard.cluster.stores import NodeStore
from allaboard.cluster.view import ClusterView
from allaboard.gangs.registry import GangDefaults, GangRegistry
from allaboard.model.headroom import headroom_from
from allaboard.settings.options import Settings
from allaboard.whatif.applied import Applied
from allaboard.whatif.snapshots import Cluster


def records_of(cluster: Cluster, settings: Settings, after: Applied) -> tuple[ClusterView, GangRegistry]:
    """Return the nodes and pods, and the gangs, of ``cluster`` with the objects of ``after``.

    The gangs of manifests are in the registry whichever namespaces the operator covers.
    """
    view = ClusterView({resource: headroom_from(resource, amount) for resource, amount in settings.headroom.items()}, settings.gpu.policy)
    namespaces = settings.namespaces and {
        *settings.namespaces,
        *(pod.namespace for pod in after.pods),
        *(key.namespace for key in after.stated),
    }
    registry = GangRegistry(settings.scheduler_names, namespaces, GangDefaults.by(settings))
    view.listen(registry.observe_pod)
    nodes = NodeStore(view, settings.node_selector)
    for node in cluster.nodes:
        nodes.upsert(node.name, node)
    view.observe_cards(cluster.cards)
    cluster.storage.add_to(view)
    for name, labels in cluster.namespace_labels.items():
        view.namespaces.upsert(name, labels)
    for pod in (*cluster.pods, *after.pods):
        view.upsert_pod(pod)
    for group in after.groups:
        registry.observe_group(group)
    for job in (*cluster.jobs.values(), *after.jobs):  # a Job of the manifests replaces the cluster's
        registry.observe_job(None, job)
    for owner in (*cluster.owners, *after.owners):
        registry.observe_owner(None, owner)
    return view, registry
