"""Names of the plugins of kube-scheduler (of all versions) and of scheduler-plugins, to detect misspelt names."""

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
"""Similarity from which a name counts as misspelt: about one wrong letter in ten.

A lower value would take NodeResourcesFitPlus, which is a real plugin, for a misspelt NodeResourcesFit.
"""


def meant_by(name: str) -> str | None:
    """Return the known plugin that the misspelt ``name`` must mean; None if ``name`` is known, or close to no known name."""
    if name in KNOWN:
        return None
    close = difflib.get_close_matches(name.lower(), _BY_LOWER, n=1, cutoff=_ALIKE)
    return _BY_LOWER[close[0]] if close else None
