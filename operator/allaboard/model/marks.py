"""The labels and annotations by which pods ask other schedulers for a gang, and that mean nothing here yet.

A pod of ours that has one asks for something that it wouldn't get, and would run alone without a word. So it is held, and told what to
write instead. Whatever is read one day leaves this table. Those that name a role only (volcano.sh/task-spec) are read, and aren't in it.
Whole names are looked up, none are searched for: a pod may have thousands of annotations.
"""

from collections.abc import Collection, Mapping

_VOLCANO, _KOORDINATOR, _KAI, _YUNIKORN, _KUEUE = "Volcano", "Koordinator", "KAI", "YuniKorn", "Kueue"

MARKS: Mapping[str, str] = {
    # apis/pkg/apis/scheduling/v1beta1/labels.go and batch/v1alpha1/labels.go
    "scheduling.k8s.io/group-name": _VOLCANO,
    "scheduling.volcano.sh/group-name": _VOLCANO,
    "scheduling.volcano.sh/group-min-member": _VOLCANO,
    "volcano.sh/job-name": _VOLCANO,
    # apis/extension/coscheduling.go; its labels pod-group.scheduling.sigs.k8s.io are read
    "gang.scheduling.koordinator.sh/name": _KOORDINATOR,
    "gang.scheduling.koordinator.sh/min-available": _KOORDINATOR,
    "gang.scheduling.koordinator.sh/total-number": _KOORDINATOR,
    "gang.scheduling.koordinator.sh/mode": _KOORDINATOR,
    "gang.scheduling.koordinator.sh/groups": _KOORDINATOR,
    "gang.scheduling.koordinator.sh/match-policy": _KOORDINATOR,
    "gang.scheduling.koordinator.sh/waiting-time": _KOORDINATOR,
    "gang.scheduling.koordinator.sh/network-topology-spec": _KOORDINATOR,
    "gang.scheduling.koordinator.sh/network-topology-index": _KOORDINATOR,
    # pkg/common/constants/constants.go; every pod with a queue is of a group there, runai/ is what it was called before 0.6
    "pod-group-name": _KAI,
    "kai.scheduler/batch-min-member": _KAI,
    "kai.scheduler/queue": _KAI,
    "runai/queue": _KAI,
    # pkg/common/constants/constants.go; an applicationId without task groups asks for no gang
    "yunikorn.apache.org/task-group-name": _YUNIKORN,
    "yunikorn.apache.org/task-groups": _YUNIKORN,
    # pkg/controller/jobs/pod/constants/constants.go
    "kueue.x-k8s.io/pod-group-name": _KUEUE,
    "kueue.x-k8s.io/pod-group-total-count": _KUEUE,
}
"""Who reads what, the most telling first: a pod is told of the first that it has, as label or annotation."""


def mark_in(labels: Collection[str], annotations: Mapping[str, object]) -> str:
    """The first of ``MARKS`` among the names of labels and annotations, whatever is said by it; empty without one."""
    return next((mark for mark in MARKS if mark in labels or annotations.get(mark) is not None), "")
