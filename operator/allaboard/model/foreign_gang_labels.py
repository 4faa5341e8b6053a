"""One table of the labels and annotations by which pods and PodGroups ask other schedulers for gangs.

Some of these labels only name a gang, its queue or its size. Such labels don't matter on a pod that also names its gang by labels that this
scheduler reads. Other labels ask for more, such as a network topology, or several gangs that start together. A demand for more is never
ignored: the gang that makes it is held, and the message says what to write instead. A label that this scheduler reads, such as the name of
a role, is not in the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from allaboard.model.kueue import MANAGED, TOPOLOGY
from allaboard.model.limits import CHARACTERS

_VOLCANO, _KOORDINATOR, _KAI, _YUNIKORN, _KUEUE, _COSCHEDULING = "Volcano", "Koordinator", "KAI", "YuniKorn", "Kueue", "coscheduling"


@dataclass(frozen=True, slots=True)
class ForeignLabel:
    """A label or annotation that asks another scheduler for something.

    ``demand`` is what the label asks for beyond the gang's name, queue and size; empty if it asks for nothing beyond these. ``instead``
    says what the user should do.
    ``met_by``: values of the label that ask only for what every gang gets here. ``kept_by``: labels and annotations that another component
    writes when that component meets the demand itself. ``same_as``: labels of the same meaning that this scheduler reads. If the object has
    one of ``same_as``, the label is a demand only if its value differs. If the object has none of ``same_as``, the label is no demand.
    """

    scheduler: str
    demand: str = ""
    instead: str = ""
    met_by: frozenset[str] = frozenset()
    kept_by: tuple[str, ...] = ()
    same_as: tuple[str, ...] = ()

    @property
    def asks_for_gang(self) -> bool:
        """Return whether the label, with some or all of its values, asks for a gang and for nothing beyond it."""
        return not self.demand or bool(self.same_as or self.met_by)

    def is_unmet(self, value: object, labels: Mapping[str, object]) -> bool:
        """Return whether the label asks for something that this scheduler doesn't do.

        ``value`` is the label's value, and ``labels`` are all labels of its object.
        """
        if not self.demand or (isinstance(value, str) and value in self.met_by):
            return False
        return not self.same_as or any(labels.get(name, value) != value for name in self.same_as)


class ForeignGangLabels(NamedTuple):
    """Names of the foreign labels or annotations that decide how one object is handled; each name is empty if there is none."""

    first: str = ""
    """The first foreign label in the order of ``FOREIGN_GANG_LABELS``; names that aren't listed come last."""
    demand: str = ""
    """The first foreign label that asks for something that this scheduler doesn't do."""


_MINIMUM_LABELS = ("pod-group.scheduling.sigs.k8s.io/min-available", "pod-group.scheduling.x-k8s.io/min-available")

_MINIMUM = "another minimum of members than the label min-available"
_SAY_MINIMUM = "state one minimum, or remove it"
_TOGETHER = "gangs that start together or not at all"
_SAY_TOGETHER = "name one gang for all their pods, with allaboard.dev/min-members for the minimum of each part, or remove it"
_TASKS = "a minimum of members for each task"
_SAY_TASKS = "state it with allaboard.dev/min-members: ps=1,worker=3, or remove it"
_NEAR = "members in one domain of a network topology"
_SAY_NEAR = "state the node label of the domain with allaboard.dev/required-topology, or remove it"
_NEAR_IF_POSSIBLE = "members in few domains of a network topology"
_SAY_NEAR_IF_POSSIBLE = "state the node label of the domains with allaboard.dev/topology, or remove it"
_SAY_EITHER = "state the node label with allaboard.dev/required-topology, or with allaboard.dev/topology for a preference, or remove it"
_SLICES = "parts of the gang each in one domain of a network topology"
_SAY_SLICES = "give each part a role (allaboard.dev/role), and its pods allaboard.dev/required-topology, or remove it"
_NO_INSTEAD = "nothing here does that: remove it"
_ALL_OR_NONE = "a gang is bound whole or not at all here: remove it"
_COUNTED = "a rule about which members count"
_ALWAYS_COUNTED = "members that are bound, or have succeeded beside them, count here: remove it"

FOREIGN_GANG_LABELS: Mapping[str, ForeignLabel] = {
    # apis/pkg/apis/scheduling/v1beta1/labels.go, batch/v1alpha1/labels.go, topology/v1alpha1/labels.go; pkg/scheduler/plugins/task-topology
    "scheduling.k8s.io/group-name": ForeignLabel(_VOLCANO),
    "scheduling.volcano.sh/group-name": ForeignLabel(_VOLCANO),
    "scheduling.volcano.sh/group-min-member": ForeignLabel(_VOLCANO, _MINIMUM, _SAY_MINIMUM, same_as=_MINIMUM_LABELS),
    "volcano.sh/job-name": ForeignLabel(_VOLCANO),
    "scheduling.volcano.sh/group-min-resources": ForeignLabel(
        _VOLCANO, "resources that are free before the gang starts", "name a PodGroup that states them as spec.minResources, or remove it"
    ),
    "volcano.sh/network-topology-mode": ForeignLabel(_VOLCANO, _NEAR, _SAY_EITHER),
    "volcano.sh/network-topology-highest-tier": ForeignLabel(_VOLCANO, _NEAR, _SAY_NEAR),
    "volcano.sh/task-topology-affinity": ForeignLabel(_VOLCANO, "tasks near each other", _SAY_EITHER),
    "volcano.sh/task-topology-anti-affinity": ForeignLabel(_VOLCANO, "tasks apart from each other", _NO_INSTEAD),
    "volcano.sh/task-topology-task-order": ForeignLabel(
        _VOLCANO, "tasks placed in an order", "all members are placed together here: remove it"
    ),
    # apis/extension/coscheduling.go; its labels pod-group.scheduling.sigs.k8s.io are read. The waiting-time asks for nothing here: while
    # members are missing, no capacity is kept for the others.
    "gang.scheduling.koordinator.sh/name": ForeignLabel(_KOORDINATOR),
    "gang.scheduling.koordinator.sh/min-available": ForeignLabel(_KOORDINATOR, _MINIMUM, _SAY_MINIMUM, same_as=_MINIMUM_LABELS),
    "gang.scheduling.koordinator.sh/total-number": ForeignLabel(_KOORDINATOR),
    "gang.scheduling.koordinator.sh/mode": ForeignLabel(
        _KOORDINATOR, "a gang that may start in part", _ALL_OR_NONE, met_by=frozenset({"Strict", ""})
    ),
    "gang.scheduling.koordinator.sh/groups": ForeignLabel(_KOORDINATOR, _TOGETHER, _SAY_TOGETHER),
    "gang.scheduling.koordinator.sh/match-policy": ForeignLabel(_KOORDINATOR, _COUNTED, _ALWAYS_COUNTED),
    "pod-group.scheduling.sigs.k8s.io/match-policy": ForeignLabel(_KOORDINATOR, _COUNTED, _ALWAYS_COUNTED),
    "gang.scheduling.koordinator.sh/waiting-time": ForeignLabel(_KOORDINATOR),
    "gang.scheduling.koordinator.sh/network-topology-spec": ForeignLabel(_KOORDINATOR, _NEAR, _SAY_EITHER),
    "gang.scheduling.koordinator.sh/network-topology-index": ForeignLabel(
        _KOORDINATOR, "neighbouring ranks on neighbouring nodes", _NO_INSTEAD
    ),
    # pkg/common/constants/constants.go; in KAI every pod with a queue belongs to a group. Before 0.6 the prefix was runai/.
    "pod-group-name": ForeignLabel(_KAI),
    "kai.scheduler/batch-min-member": ForeignLabel(_KAI, _MINIMUM, _SAY_MINIMUM, same_as=_MINIMUM_LABELS),
    "kai.scheduler/queue": ForeignLabel(_KAI),
    "runai/queue": ForeignLabel(_KAI),
    "kai.scheduler/topology-required-placement": ForeignLabel(_KAI, _NEAR, _SAY_NEAR),
    "kai.scheduler/topology-preferred-placement": ForeignLabel(_KAI, _NEAR_IF_POSSIBLE, _SAY_NEAR_IF_POSSIBLE),
    "kai.scheduler/topology": ForeignLabel(_KAI, _NEAR, _SAY_EITHER),
    "kai.scheduler/segment-size": ForeignLabel(_KAI, _SLICES, _SAY_SLICES),
    "kai.scheduler/segment-topology-required-placement": ForeignLabel(_KAI, _SLICES, _SAY_SLICES),
    "kai.scheduler/segment-topology-preferred-placement": ForeignLabel(_KAI, _SLICES, _SAY_SLICES),
    # pkg/common/constants/constants.go; an applicationId without task groups asks for no gang
    "yunikorn.apache.org/task-group-name": ForeignLabel(_YUNIKORN),
    "yunikorn.apache.org/task-groups": ForeignLabel(_YUNIKORN, _TASKS, _SAY_TASKS),
    "yunikorn.apache.org/schedulingPolicyParameters": ForeignLabel(_YUNIKORN, "a style of gang scheduling and its time-out", _ALL_OR_NONE),
    "yunikorn.apache.org/scheduling-policy-parameters": ForeignLabel(
        _YUNIKORN, "a style of gang scheduling and its time-out", _ALL_OR_NONE
    ),
    # apis/kueue/v1beta2/topology_types.go; Kueue chooses the nodes of pods that it admits to a topology, and gates plain pods until then.
    # Its groups of plain pods, and the topologies that pods ask of it, are read (``model.kueue``).
    "kueue.x-k8s.io/podset-group-name": ForeignLabel(_KUEUE, "several sets of pods in one domain", _SAY_NEAR, kept_by=MANAGED),
}
"""Known labels and annotations, by name. The most informative come first: if an object has several, the first is reported."""

_HARMLESS = frozenset(
    {
        *_MINIMUM_LABELS,
        "pod-group.scheduling.sigs.k8s.io/name",
        "scheduling.volcano.sh/queue-name",
        "gang.scheduling.koordinator.sh/timeout",  # a report of Koordinator's scheduler
        *TOPOLOGY,
        "kueue.x-k8s.io/podset-unconstrained-topology",
    }
)
_UNKNOWN = "something unknown"
_FAMILIES: Mapping[str, ForeignLabel] = {
    "gang.scheduling.koordinator.sh/": ForeignLabel(_KOORDINATOR, _UNKNOWN, _NO_INSTEAD),
    "pod-group.scheduling.sigs.k8s.io/": ForeignLabel(_COSCHEDULING, _UNKNOWN, "only name and min-available are read here: remove it"),
    "scheduling.volcano.sh/": ForeignLabel(_VOLCANO, _UNKNOWN, _NO_INSTEAD),
    "volcano.sh/network-topology": ForeignLabel(_VOLCANO, _NEAR, _SAY_EITHER),
    "volcano.sh/task-topology": ForeignLabel(_VOLCANO, _UNKNOWN, _NO_INSTEAD),
    "kai.scheduler/topology": ForeignLabel(_KAI, _NEAR, _SAY_EITHER),
    "kai.scheduler/segment-": ForeignLabel(_KAI, _SLICES, _SAY_SLICES),
    "yunikorn.apache.org/task-group": ForeignLabel(_YUNIKORN, _TASKS, _SAY_TASKS),
    "kueue.x-k8s.io/podset-": ForeignLabel(_KUEUE, _UNKNOWN, _NO_INSTEAD, kept_by=MANAGED),
}
"""Prefixes of foreign labels. An unlisted label with such a prefix counts as a demand, since a later version of its scheduler may read it.
"""

_BEGINNINGS = tuple(_FAMILIES)
_KEEPERS = {name for label in (*FOREIGN_GANG_LABELS.values(), *_FAMILIES.values()) for name in label.kept_by}
_RANK = {name: rank for rank, name in enumerate(FOREIGN_GANG_LABELS)}
NONE = ForeignGangLabels()

SPEC_FIELDS: Mapping[str, ForeignLabel] = {
    "minTaskMember": ForeignLabel(_VOLCANO, _TASKS, _SAY_TASKS),
    "subGroupPolicy": ForeignLabel(_VOLCANO, "parts of the gang with minimums and topologies of their own", _SAY_TASKS),
    "networkTopology": ForeignLabel(_VOLCANO, _NEAR, _SAY_EITHER),
    "subGroups": ForeignLabel(_KAI, "parts of the gang with minimums and topologies of their own", _SAY_TASKS),
    "minSubGroup": ForeignLabel(_KAI, "parts of the gang with minimums of their own", _SAY_TASKS),
    "topologyConstraint": ForeignLabel(_KAI, _NEAR, _SAY_EITHER),
    "schedulingConstraints": ForeignLabel("kube-scheduler", _NEAR, _SAY_NEAR),
}
"""Fields of ``spec`` in the PodGroups of other schedulers. API servers drop these fields unless the CRD keeps unknown fields."""


def foreign_label_of(name: str) -> ForeignLabel:
    """Return the table entry of ``name``, a label name that ``foreign_gang_labels_in`` has found."""
    return FOREIGN_GANG_LABELS.get(name) or next(label for beginning, label in _FAMILIES.items() if name.startswith(beginning))


def sentence(label: ForeignLabel) -> str:
    """Return what a label asks for and what the user should do, as the end of a message that begins with the label's name."""
    return f"asks {label.scheduler} for {label.demand}, which isn't honoured here; {label.instead}"


def foreign_gang_labels_in(labels: Mapping[str, object], annotations: Mapping[str, object]) -> ForeignGangLabels:
    """Return the foreign gang labels among ``labels`` and ``annotations``.

    Values may be of any type; null counts as absent. A label is left out if another component meets its demand.
    """
    found = [
        name
        for some in (labels, annotations)
        for name, value in some.items()
        if value is not None
        and isinstance(name, str)
        and (name in FOREIGN_GANG_LABELS or (name.startswith(_BEGINNINGS) and name not in _HARMLESS))
    ]
    if not found:
        return NONE
    keepers = {name for some in (labels, annotations) for name in _KEEPERS if some.get(name) is not None}
    found = [name for name in found if keepers.isdisjoint(foreign_label_of(name).kept_by)]
    found.sort(key=lambda name: (_RANK.get(name, len(_RANK)), name))
    unmet = (name for name in found if foreign_label_of(name).is_unmet(labels.get(name, annotations.get(name)), labels))
    return ForeignGangLabels(next(iter(found), "")[: CHARACTERS.most], next(unmet, "")[: CHARACTERS.most])
