"""The nodes and pods of a cluster view, as the stores of reflectors."""

from collections.abc import Collection, Mapping

from allaboard.cluster.view import ClusterView
from allaboard.model.node import Node
from allaboard.model.pod import Pod


class PodStore:
    """The pods of a view, as the store of a reflector."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def upsert(self, key: str, record: Pod) -> None:
        """Apply the newest state of a pod."""
        self._view.upsert_pod(record)

    def remove(self, key: str) -> None:
        """Remove a pod."""
        self._view.remove_pod(key)

    def known(self) -> Collection[str]:
        """Return the keys of all pods."""
        return self._view.pod_keys


class NodeStore:
    """The nodes of a view that have all labels of ``selector``, as the store of a reflector."""

    def __init__(self, view: ClusterView, selector: Mapping[str, str] | None = None) -> None:
        self._view = view
        self._selector = (selector or {}).items()

    def upsert(self, key: str, record: Node) -> None:
        """Apply the newest state of a node; remove the node if it lacks a label of ``selector``."""
        if self._selector <= record.labels.items():
            self._view.upsert_node(record)
        else:
            self._view.remove_node(record.name)

    def remove(self, key: str) -> None:
        """Remove a node."""
        self._view.remove_node(key)

    def known(self) -> Collection[str]:
        """Return the names of all nodes."""
        return self._view.node_names
