"""Shows the state of an operator that was written into a file."""

from collections.abc import Sequence
from dataclasses import dataclass

from allaboard.sight.board import Allows, anywhere
from allaboard.sight.values import Decisions, Domains, Gang, Gangs, Nodes, Queue, Snapshot, Status, Timeline


@dataclass(frozen=True, slots=True)
class RecordedBoard:
    """The board that ``recorded`` holds."""

    recorded: Snapshot

    @property
    def version(self) -> int:
        """A number that stays the same."""
        return 0

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces in which there are gangs, in order."""
        return sorted({each.row.namespace for each in self.recorded.gangs})

    def status(self) -> Status:
        """Return the state of the replica that was asked."""
        return self.recorded.status.model_copy(update={"source": "snapshot"})

    async def queue(self, allows: Allows = anywhere) -> Queue:
        """Return the gangs that waited."""
        rows = [each.row for each in self.recorded.gangs if each.row.position is not None]
        shown = sorted((row for row in rows if allows(row.namespace)), key=lambda row: row.position or 0)
        return Queue(at=self.recorded.at, gangs=shown, hidden=self.recorded.hidden + len(rows) - len(shown))

    async def gangs(self, allows: Allows = anywhere) -> Gangs:
        """Return all gangs."""
        shown = [each.row for each in self.recorded.gangs if allows(each.row.namespace)]
        return Gangs(at=self.recorded.at, gangs=shown, hidden=self.recorded.hidden + len(self.recorded.gangs) - len(shown))

    async def gang(self, namespace: str, name: str, allows: Allows = anywhere) -> Gang | None:
        """Return a gang; None if there is none."""
        return next((each for each in self.recorded.gangs if (each.row.namespace, each.row.name) == (namespace, name)), None)

    async def nodes(self, allows: Allows = anywhere) -> Nodes:
        """Return all nodes."""
        return Nodes(at=self.recorded.at, grouped_by=self.recorded.grouped_by, nodes=self.recorded.nodes)

    async def domains(self, label: str = "") -> Domains:
        """Return the groups of nodes by a label; without one, by the label of racks."""
        label = label or self.recorded.grouped_by
        labels = self.recorded.labels
        return Domains(at=self.recorded.at, label=label, domains=labels.get(label, {}), labels=list(labels))

    async def decisions(self, allows: Allows = anywhere) -> Decisions:
        """Return the last decisions about all gangs."""
        shown = [each for each in self.recorded.decisions if allows(each.namespace)]
        return Decisions(at=self.recorded.at, decisions=shown, hidden=len(self.recorded.decisions) - len(shown))

    def timeline(self) -> Timeline:
        """Return the use of the cluster in the hour before."""
        return Timeline(at=self.recorded.at, samples=self.recorded.samples)

    async def snapshot(self, allows: Allows = anywhere) -> Snapshot:
        """Return all gangs, nodes and decisions."""
        return self.recorded
