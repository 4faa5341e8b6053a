"""The words for the reasons why nodes refuse pods, in kube-scheduler's words if it has such a reason."""

from collections.abc import Mapping

from allaboard.model.reasons import Kind, Reason

_REASONS = {
    Kind.UNSCHEDULABLE: "node(s) were unschedulable",
    Kind.NOT_READY: "node(s) were not ready",
    Kind.TAINT: "node(s) had untolerated taint {{{subject}: {value}}}",
    Kind.AFFINITY: "node(s) didn't match Pod's node affinity/selector",
    Kind.VOLUMES: "node(s) didn't match PersistentVolume's node affinity",
    Kind.CLAIM_IN_USE: ("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"),
    Kind.NO_VOLUME: "node(s) didn't find available persistent volumes to bind",
    Kind.NO_STORAGE: "node(s) did not have enough free storage",
    Kind.VOLUME_ZONE: "node(s) had no available volume zone",
    Kind.RESOURCE_CLAIM: "resourceclaim not available on the node",
    Kind.AVOIDED: "node(s) didn't satisfy existing pods anti-affinity rules",
    Kind.ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    Kind.POD_AFFINITY: "node(s) didn't match pod affinity rules",
    Kind.SPREAD: "node(s) didn't match pod topology spread constraints",
    Kind.UNLABELLED_SPREAD: "node(s) didn't match pod topology spread constraints (missing required label)",
    Kind.APART: "node(s) weren't in the domain of the members that are bound",
    Kind.TOPOLOGY: "node(s) were in no topology domain that fits all members that must share one",
    Kind.SEGMENTS: "node(s) were in no topology domain that fits a segment of members",
    Kind.UNLABELLED: "node(s) had no label {subject}",
    Kind.PORTS: "node(s) didn't have free ports for the requested pod ports",
    Kind.ATTACHMENTS: "node(s) exceed max volume count",
    Kind.SHARING: "node(s) had no driver for this kind of GPU sharing ({subject})",
    Kind.GPU_TOO_SMALL: "node(s) had GPUs too small for the requested part",
    Kind.GPU_CONTAINER: "node(s) had a driver that gives GPUs to one container of a pod only, as many as that container requests",
    Kind.GPU_NUMBER: "node(s) didn't match gpu-number",
    Kind.GPU_MODEL: "node(s) didn't match gpu-model",
    Kind.GPU_MEMORY_EACH: "node(s) didn't match gpu-memory-each",
    Kind.GPU_MEMORY_TOTAL: "node(s) didn't match gpu-memory-total",
    Kind.GPU_MODEL_UNKNOWN: "node(s) had GPUs of unknown model",
    Kind.GPU_MEMORY_UNKNOWN: "node(s) had GPUs of unknown memory",
    Kind.INSUFFICIENT: "Insufficient {subject}",
    Kind.RESERVED: "node(s) had capacity that is reserved for {subject}",
    Kind.MIN_RESOURCES: "node(s) together had less free {subject} than minResources asks for",
}
"""The text of each reason for which a pod doesn't fit on nodes. In a message it follows the number of these nodes.

The words are kube-scheduler's if it has such a reason (plugins/nodeunschedulable, tainttoleration, nodeaffinity, volumebinding, nodeports,
nodevolumelimits, volumerestrictions, volumezone, dynamicresources).
"""

_RULES = {
    Kind.TOPOLOGY: "the rule that members share one {subject}",
    Kind.SEGMENTS: "the segments of its members by {subject}",
    Kind.ANTI_AFFINITY: "the anti-affinity of its members by {subject}",
    Kind.POD_AFFINITY: "the affinity of its members by {subject}",
    Kind.SPREAD: "the topology spread of its members by {subject}",
    Kind.PORTS: "its host ports",
    Kind.ATTACHMENTS: "the number of volumes that a node can attach",
    Kind.NO_VOLUME: "its volume claims, for which too few volumes are free",
}
"""Rules between members, in words that follow ``would fit without`` in a message."""

_BROKEN = {
    Kind.TOPOLOGY: "members would not share one {subject}: {value}",
    Kind.SEGMENTS: "members of one segment would not share one {subject}: {value}",
    Kind.ANTI_AFFINITY: "members that anti-affinity keeps apart would share the {subject} {value}",
    Kind.POD_AFFINITY: "members would be in the {subject} {value} without a pod that their affinity selects",
    Kind.SPREAD: "the topology spread of members by {subject} would be exceeded: {value}",
}
"""Rules between members, in words for a plan that breaks them."""

_RELAXED = {
    Kind.AFFINITY: "without its node selector or affinity ({subject})",
    Kind.TAINT: "if its pods tolerated the taint {subject}={value}",
    Kind.UNSCHEDULABLE: "if all nodes were ready and none was cordoned",
}
"""Rules about single nodes, in words that follow ``would fit``."""


def reason(why: Reason) -> str:
    """Return the text of one reason for which a pod doesn't fit on nodes, without the number of these nodes."""
    if why == (Kind.INSUFFICIENT, "pods", ""):
        return "Too many pods"
    return _text_of(_REASONS, why)


def rule(why: Reason) -> str:
    """Return a rule between members in words that follow ``would fit without``."""
    return _text_of(_RULES, why)


def relaxed_rule(why: Reason) -> str:
    """Return what would make a gang fit that a rule about single nodes refuses, in words that follow ``would fit``."""
    return _text_of(_RELAXED, why).replace(" ()", "").removesuffix("=")


def broken(why: Reason) -> str:
    """Return a rule between members in words for a plan that breaks it."""
    return _text_of(_BROKEN, why)


def _text_of(words: Mapping[Kind, str], why: Reason) -> str:
    return words[why.kind].format(subject=why.subject, value=why.value)
