"""The plugins of kube-scheduler, of all versions together, and of scheduler-plugins, by name: of which others may be a slip of the pen."""

import difflib

KNOWN = frozenset(
    {
        # kube-scheduler
        "AzureDiskLimits",
        "CinderLimits",
        "DefaultBinder",
        "DefaultPodTopologySpread",
        "DefaultPreemption",
        "DynamicResources",
        "EBSLimits",
        "GCEPDLimits",
        "GangScheduling",
        "ImageLocality",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodeLabel",
        "NodeName",
        "NodePorts",
        "NodePreferAvoidPods",
        "NodeResourceLimits",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "NodeResourcesLeastAllocated",
        "NodeResourcesMostAllocated",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "PrioritySort",
        "RequestedToCapacityRatio",
        "SchedulingGates",
        "SelectorSpread",
        "ServiceAffinity",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
        # scheduler-plugins
        "CapacityScheduling",
        "Coscheduling",
        "CrossNodePreemption",
        "DiskIO",
        "LoadVariationRiskBalancing",
        "LowRiskOverCommitment",
        "NetworkOverhead",
        "NodeResourceTopologyMatch",
        "NodeResourcesAllocatable",
        "Peaks",
        "PodState",
        "PreemptionToleration",
        "QOSSort",
        "SySched",
        "TargetLoadPacking",
        "TopologicalSort",
    }
)

_BY_LOWER = {name.lower(): name for name in KNOWN}
_ALIKE = 0.9
"""A letter too many, too few or another of ten; less, and NodeResourcesFitPlus, which is a plugin too, would be taken for a slip."""


def meant_by(name: str) -> str | None:
    """The known plugin whose name is so close to ``name`` that it must be meant; none where ``name`` is known or far from all."""
    if name in KNOWN:
        return None
    close = difflib.get_close_matches(name.lower(), _BY_LOWER, n=1, cutoff=_ALIKE)
    return _BY_LOWER[close[0]] if close else None
