"""Passes changes of the cluster to the queue: changes that may help waiting gangs, or make their messages untrue."""

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
    """Passes changes of the cluster to the queue. The view calls it."""

    queue: GangQueue
    reporter: Reporter
    _gpus: GpuChanges = field(default_factory=GpuChanges)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Pass a changed pod on. Gangs may wait for the capacity that the pod frees, and messages may name what it takes."""
        self.reporter.observe_pod(old, new)
        if old is not None and (freed := old.freed(new)):
            self.queue.observe(Freed(freed))
        elif new is not None and new.freed(old):
            self.queue.observe(Taken())

    def observe_node(self, old: Node | None, new: Node | None) -> None:
        """Pass on a node that was added, deleted or changed."""
        self.queue.observe(Freed())

    def observe_cards(self, old: GpuInventory | None, new: GpuInventory | None) -> None:
        """Pass on a change in the GPU metrics: gangs that lacked what became free are woken."""
        if freed := self._gpus.gained(old, new):
            self.queue.observe(Freed(freed, is_only=True))
        elif has_lost(old, new):
            self.queue.observe(Taken())

    def observe_volumes(self) -> None:
        """Pass on a claim or a volume that has changed."""
        self.queue.observe(Freed())
