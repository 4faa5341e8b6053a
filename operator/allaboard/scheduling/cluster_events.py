"""Passes changes of the cluster to the queue.

A change may free capacity that a gang waits for, or make the message of a waiting gang untrue.
"""

from dataclasses import dataclass, field

from allaboard.model.gpu_inventory import GpuInventory
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.queueing.gpu_changes import GpuChanges, has_lost
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.requeue import Freed, Taken
from allaboard.report.reporter import Reporter


@dataclass(frozen=True, slots=True)
class ClusterEvents:
    """A listener of the cluster view that passes changes to the queue."""

    queue: GangQueue
    reporter: Reporter
    _gpus: GpuChanges = field(default_factory=GpuChanges)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Pass on a pod that was added, changed or deleted.

        Gangs may wait for capacity that the pod frees. Messages of waiting gangs may name capacity that the pod takes.
        """
        self.reporter.observe_pod(old, new)
        if old is not None and (freed := old.freed(new)):
            self.queue.observe(Freed(freed))
        elif new is not None and new.freed(old):
            self.queue.observe(Taken())

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """Pass on a node that was added, deleted or changed."""
        self.queue.observe(Freed())

    def observe_cards(self, old: GpuInventory | None, new: GpuInventory | None) -> None:
        """Pass on changed GPU metrics. Gangs that lacked what became free are woken."""
        if freed := self._gpus.gained(old, new):
            self.queue.observe(Freed(freed, is_only=True))
        elif has_lost(old, new):
            self.queue.observe(Taken())

    def observe_rules(self) -> None:
        """Pass on a change of an object on which rules of pods depend: a claim, a volume, a storage class, or the labels of a namespace."""
        self.queue.observe(Freed())
