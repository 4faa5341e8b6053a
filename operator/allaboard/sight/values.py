"""The values that the operator shows, which are immutable. The API writes them as JSON, and its OpenAPI schema is made from this module.

Times are seconds since the epoch. Amounts are numbers in base units: cores of cpu, bytes of memory, GPUs, pieces of anything else.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

Amounts = Mapping[str, float]
"""Amounts by the name of the resource."""


class Value(BaseModel):
    """A value that isn't changed. Its fields are camelCase in JSON; their docstrings are the descriptions in the schema."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @cached_property
    def json_text(self) -> str:
        """The value as JSON. It is made once, since rows of nodes stay the same for many requests."""
        return self.model_dump_json(by_alias=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with the fields ``update``. The copy doesn't keep the JSON, which may have what the copy leaves out."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("json_text", None)
        return copied


class Members(Value):
    """Numbers of members that a gang has and needs."""

    needed: int
    """Members that must have a node for the gang to be whole. Members that have succeeded are no longer needed."""
    bound: int
    """Members that have a node, and have neither ended nor are being deleted."""
    running: int
    """Members in the phase Running."""
    present: int
    """Members that exist, and have neither ended nor are being deleted."""


class GangRow(Value):
    """One gang, as a row of a list."""

    namespace: str
    name: str
    kind: str
    """``PodGroup``, or ``Pod`` for a pod that is in no gang."""
    state: str
    """``Scheduled``, ``Ended``, or the reason of the PodGroup's status why the gang waits; empty before the first attempt."""
    message: str
    """The reason in a sentence; empty before the first attempt."""
    position: int | None
    """The gang's position among the gangs that wait, 1 for the first; null for a gang that doesn't wait."""
    priority: int
    members: Members
    gpus: float
    """GPUs that the members request together."""
    created: float
    """When the gang was created."""
    waiting_since: float | None
    """Since when the gang waits; null for a gang that doesn't wait."""
    expected_start: float | None
    """When the gang is expected to start; null if that isn't known."""
    waits_for: str
    """namespace/name of the gang that must end before this gang starts, the last of several; or of the gang for which capacity is kept
    from this one. Empty if there is none, or the caller may not read its namespace."""


class RoleRow(Value):
    """The members of a gang that have one role and request the same."""

    role: str
    """The role, as the pods' labels name it; empty without one."""
    pods: Sequence[str]
    """Names of the members, the oldest first."""
    bound: int
    """Members that have a node."""
    requests: Amounts
    """The amounts that each of the members requests."""


class MemberRow(Value):
    """One member of a gang."""

    pod: str
    role: str
    node: str
    """The node; empty without one."""
    phase: str
    gpus: float


class Decision(Value):
    """A decision about a gang, which was made ``times`` times in a row."""

    namespace: str
    name: str
    first_at: float
    last_at: float
    times: int
    decision: str
    """The decision, such as ``Bind``, ``Wait`` or ``Preempt``."""
    reason: str
    message: str


class ReservationRow(Value):
    """The capacity that is kept for a waiting gang."""

    namespace: str
    name: str
    begins: float
    """When the capacity is expected to be free."""
    ends: float | None
    """When the gang is expected to have ended; null if it states no walltime."""
    basis: str
    """The certainty of these times: ``stated`` by walltimes, ``guessed`` from how long pods have run, or ``unknown``."""
    awaits: int
    """Jobs that have to end before."""
    evicts: int
    """Pods that are evicted for the gang."""
    nodes: Mapping[str, Amounts]
    """The amounts that are kept on each node."""


class PlanRow(Value):
    """The last plan that was made for a gang."""

    at: float
    feasible: bool | None
    """True if the gang fits; null if the search ended without knowing."""
    placed: int
    unplaced: int
    generations: int
    """Generations of the genetic search."""
    stopped_by: str
    """Why the search ended."""
    found_by: str
    """The step of the search that found the plan."""


class OutlookNode(Value):
    """One node on which a waiting gang would run."""

    node: str
    pods: int
    """Members that would run there."""
    gpus: float
    """GPUs that these members request together."""
    requests: Amounts
    """The amounts that these members request together."""
    lacks: Amounts
    """The amounts of it that aren't free now; empty if all is free."""


class AwaitedRow(Value):
    """A gang that must end before a waiting gang starts."""

    gang: str
    """namespace/name; only the namespace for pods of other schedulers; empty if the caller may not read the namespace."""
    ends: float
    """When the gang is expected to end."""
    basis: str
    """The certainty of this time: ``stated`` by walltimes, ``guessed`` from how long pods have run, or ``unknown``."""
    nodes: Sequence[str]
    """Nodes on which it runs, among those that the waiting gang would use; not always all of them."""


class Outlook(Value):
    """Where a waiting gang would run, and what is missing there."""

    kind: str
    """``reserved``: capacity is kept for the gang there. ``nearest``: the placement that lacks least; nothing says when it will be free."""
    begins: float | None
    """When the gang is expected to start there; null if that isn't known."""
    nodes: Sequence[OutlookNode]
    unplaced: int
    """Needed members that have no node in this placement."""
    waits_for: Sequence[AwaitedRow]
    """The gangs that must end before, the first to end first."""


class NodeGroup(Value):
    """Nodes that refuse one more member of a waiting gang for the same reasons, or take equally many members."""

    role: str
    """The role of the member; empty without one."""
    nodes: int
    """The number of nodes."""
    names: Sequence[str]
    """Names of the first nodes; empty if they aren't known, or the caller may not list nodes."""
    takes: int
    """Members of this role that each of the nodes can take now, if it takes no others."""
    lacks: Amounts
    """The amounts that each of the nodes has too little free for one more member; empty if the caller may not list nodes."""
    reasons: Sequence[str]
    """Why the nodes take no more member, in kube-scheduler's words if it has such a reason; empty if they do."""


class Gang(Value):
    """All that is known of one gang."""

    at: float
    row: GangRow
    roles: Sequence[RoleRow]
    members: Sequence[MemberRow]
    reservation: ReservationRow | None
    plan: PlanRow | None
    advice: str
    """The advice: changes that would make the gang fit; empty if that isn't known."""
    outlook: Outlook | None
    """Where a waiting gang would run; null for a gang that doesn't wait, or if nothing is known."""
    node_groups: Sequence[NodeGroup]
    """Groups of nodes for each role of a waiting gang: first those that take a member, then those that lack least for one."""
    history: Sequence[Decision]
    """The last decisions about the gang, the oldest first."""
    pods_of_others: Mapping[str, int] = {}
    """Pods that name this gang, but another scheduler: their number by the name of that scheduler. Counted only for a gang without members.
    """


class Share(Value):
    """The amounts that the pods of one gang use of a node."""

    gang: str
    """namespace/name; only the namespace for pods of other schedulers; empty if the caller may not read the namespace."""
    pods: int
    gpus: float
    requests: Amounts


class NodeRow(Value):
    """One node, and who uses it."""

    name: str
    domain: str
    """The value of the label by which nodes are grouped, for instance the rack; empty without the label."""
    is_ready: bool
    is_cordoned: bool
    allocatable: Amounts
    free: Amounts
    gpus: float
    """GPUs that the node offers: ``nvidia.com/gpu``."""
    gpus_free: float
    """GPUs that no pod requests, with the free parts of shared GPUs."""
    gpus_stranded: float
    """Free GPUs that the cluster's pods with GPUs can't use, on average over these pods (expected fragmentation)."""
    shares: Sequence[Share]


class Status(Value):
    """The state of the replica that answers."""

    at: float
    version: str
    source: Literal["operator", "objects", "snapshot"] = "operator"
    """Where the state is from: a running operator, the cluster's objects without an operator, or a snapshot of an operator."""
    leads: bool
    """True if this replica schedules. Another replica knows pods and nodes, but neither reasons nor reservations."""
    is_ready: bool
    """True if this replica has read the cluster, and its cache is fresh."""
    cache_age: float
    """Seconds by which what is shown may be out of date."""


class Queue(Value):
    """The gangs that wait, in the order in which they are attempted."""

    at: float
    gangs: Sequence[GangRow]
    hidden: int
    """Gangs of namespaces that the caller may not read, which are left out."""


class Gangs(Value):
    """All gangs, in the order of namespace and name."""

    at: float
    gangs: Sequence[GangRow]
    hidden: int
    """Gangs of namespaces that the caller may not read, which are left out."""


class Nodes(Value):
    """All nodes, in the order of their names."""

    at: float
    grouped_by: str
    """The label by which nodes are grouped; empty if no node has one of the labels of racks."""
    nodes: Sequence[NodeRow]


class Domains(Value):
    """The groups of nodes by the values of one label."""

    at: float
    label: str
    """The label; empty for none."""
    domains: Mapping[str, str]
    """The value of the label on each node that has it, by the node's name."""
    labels: Sequence[str]
    """Labels by which nodes can be grouped: each has several nodes with the same value."""


class Decisions(Value):
    """The last decisions about all gangs, the oldest first."""

    at: float
    decisions: Sequence[Decision]
    hidden: int
    """Decisions about gangs of namespaces that the caller may not read, which are left out."""


class Sample(Value):
    """The use of the cluster at one time."""

    at: float
    gpus: float
    """GPUs of all nodes."""
    gpus_used: float
    gpus_stranded: float
    waiting: int
    """Gangs that wait, of all namespaces."""


class Timeline(Value):
    """The use of the cluster in the last hour."""

    at: float
    samples: Sequence[Sample]
    """The samples, the oldest first, every 15 seconds since the start of the replica."""


class Snapshot(Value):
    """The state of the scheduler in one answer: all gangs, nodes and decisions."""

    at: float
    status: Status
    gangs: Sequence[Gang]
    """All gangs, in the order of namespace and name."""
    hidden: int
    """Gangs of namespaces that the caller may not read, which are left out."""
    grouped_by: str
    """The label by which nodes are grouped; empty if no node has one of the labels of racks."""
    nodes: Sequence[NodeRow]
    decisions: Sequence[Decision]
    """The last decisions about all gangs, the oldest first."""
    samples: Sequence[Sample]
    """The use of the cluster in the last hour."""
    labels: Mapping[str, Mapping[str, str]]
    """The values of labels by which nodes can be grouped, by the label and the node's name."""


class Problem(Value):
    """Why a request was refused."""

    status: int
    message: str
