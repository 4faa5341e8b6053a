"""Lists the fields that an anonymous snapshot keeps: those that commands read. All other fields are left out."""

from enum import Enum, auto

from allaboard.model.foreign_gang_labels import SPEC_FIELDS


class Holds(Enum):
    """The content of a field, which decides how it is replaced."""

    NAME = auto()
    """Names and words. A list or an object is replaced part by part."""
    AMOUNT = auto()
    """A quantity, a time, a number or a list of numbers, as text."""
    AMOUNTS = auto()
    """Amounts by name of a resource."""
    KEY = auto()
    """Keys of labels or taints."""
    LABELS = auto()
    """Values by key of a label."""
    ANNOTATIONS = auto()
    """Values by key of an annotation."""
    MARK = auto()
    """Anything of which only counts whether it is there, such as a message."""


_OBJECTS = """
    metadata ownerReferences spec status conditions
    taints tolerations affinity nodeAffinity podAffinity podAntiAffinity preference podAffinityTerm labelSelector namespaceSelector selector
    required requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution nodeSelectorTerms
    matchExpressions matchFields matchLabelExpressions topologySpreadConstraints schedulingGroup schedulingGates
    containers initContainers resources ports volumes persistentVolumeClaim resourceClaims resourceClaimStatuses
    runPolicy podFailurePolicy rules onPodConditions scopeSelector scheduling allocation reservedFor
    csi claimRef allowedTopologies nodeTopology drivers
    awsElasticBlockStore azureDisk cinder gcePersistentDisk portworxVolume vsphereVolume
"""
_NAMES = """
    name nodeName namespace namespaces nominatedNodeName schedulerName uid apiVersion kind controller blockOwnerDeletion
    podGroupName priorityClassName priority preemptionPolicy runtimeClassName restartPolicy
    hostNetwork hostIP hostPort containerPort protocol
    claimName resourceClaimName resourceClaimTemplateName volumeName storageClassName volumeAttributesClassName accessModes volumeMode
    driver volumeHandle volumeID diskURI pdName volumePath provisioner volumeBindingMode storageCapacity
    operator effect value values type phase reason action weight unschedulable tolerationSeconds
    maxSkew minDomains whenUnsatisfiable nodeAffinityPolicy nodeTaintsPolicy
    activeDeadlineSeconds completions parallelism completionMode backoffLimit suspend active succeeded failed
    minMember scheduleTimeoutSeconds running scheduled globalDefault scopes scopeName
    id devmem count health mode
"""
_AMOUNTS = """
    requests limits overhead podFixed allocatable capacity allocatedResources hard used minResources max min default defaultRequest
"""
_AMOUNT = """
    resourceVersion creationTimestamp deletionTimestamp deletionGracePeriodSeconds lastTransitionTime startTime timeAdded completionTime
    terminationGracePeriodSeconds maximumVolumeSize failedIndexes completedIndexes expectedStart scheduleStartTime
"""

FIELDS = {
    **dict.fromkeys((*_OBJECTS.split(), *_NAMES.split()), Holds.NAME),
    **dict.fromkeys(_AMOUNTS.split(), Holds.AMOUNTS),
    **dict.fromkeys(_AMOUNT.split(), Holds.AMOUNT),
    **dict.fromkeys(("key", "topologyKey", "matchLabelKeys", "mismatchLabelKeys"), Holds.KEY),
    **dict.fromkeys(("labels", "matchLabels", "nodeSelector"), Holds.LABELS),
    "annotations": Holds.ANNOTATIONS,
    **dict.fromkeys(("message", *SPEC_FIELDS), Holds.MARK),
}
"""The fields that are kept, in objects of all kinds, with what they hold."""
