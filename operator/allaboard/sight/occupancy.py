"""Keeps the pods of each node, up to date from events of pods, so that a list of nodes needn't read all pods."""

from collections.abc import Collection

from allaboard.cluster.view import ClusterView
from allaboard.model.node import Node
from allaboard.model.pod import Pod


class Occupancy:
    """The pods of each node that have not ended. Used in the event loop's thread only."""

    def __init__(self, view: ClusterView) -> None:
        self._pods: dict[str, dict[str, Pod]] = {}
        self.changes = 0  # the number of changes of pods and nodes that were seen
        for pod in view.pods():
            self._observe(None, pod)
        view.listen(self._observe, self._observe_node)

    def on(self, node_name: str) -> Collection[Pod]:
        """Return the pods on a node."""
        return self._pods.get(node_name, {}).values()

    def _observe_node(self, old: Node | None, new: Node | None) -> None:
        self.changes += 1

    def _observe(self, old: Pod | None, new: Pod | None) -> None:
        self.changes += 1
        if old is not None and old.node_name:
            pods = self._pods.get(old.node_name, {})
            pods.pop(old.uid, None)
            if not pods:
                self._pods.pop(old.node_name, None)
        if new is not None and new.is_bound:
            self._pods.setdefault(new.node_name, {})[new.uid] = new
