"""Kinds of objects that make no pods, and kinds whose pods a plan can't tell.

Built-in kinds are those of Kubernetes 1.37; the others are common add-ons whose objects no controller turns into pods.
"""

import difflib
from collections.abc import Iterable

from allaboard.cli.documents import Document

_PODLESS = {
    "": "Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim PodTemplate "
    "ResourceQuota Secret Service ServiceAccount",
    "admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration "
    "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "apps": "ControllerRevision",
    "autoscaling": "HorizontalPodAutoscaler",
    "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle",
    "coordination.k8s.io": "Lease",
    "discovery.k8s.io": "EndpointSlice",
    "events.k8s.io": "Event",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "networking.k8s.io": "IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR",
    "node.k8s.io": "RuntimeClass",
    "policy": "PodDisruptionBudget",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "resource.k8s.io": "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
    "scheduling.k8s.io": "PodGroup PriorityClass Workload",
    "storage.k8s.io": "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass",
    "cert-manager.io": "Certificate ClusterIssuer Issuer",
    "gateway.networking.k8s.io": "GRPCRoute GatewayClass HTTPRoute ReferenceGrant",
    "kueue.x-k8s.io": "AdmissionCheck ClusterQueue Cohort LocalQueue ResourceFlavor Topology Workload WorkloadPriorityClass",
    "monitoring.coreos.com": "AlertmanagerConfig PodMonitor Probe PrometheusRule ScrapeConfig ServiceMonitor",
    "trainer.kubeflow.org": "ClusterTrainingRuntime TrainingRuntime",
}


def creates_no_pods(group: str, kind: str) -> bool:
    """Return whether no controller makes pods of objects of this kind."""
    return kind in _PODLESS.get(group, "").split()


def why_not_expanded(document: Document, expanded: Iterable[str]) -> str:
    """Return why an object isn't turned into pods, and which of the ``expanded`` kinds may be meant."""
    known = {*expanded, *(kind for kinds in _PODLESS.values() for kind in kinds.split())}
    # Three characters may be transposed or wrong in a long name; RayJob is no misspelt PaddleJob.
    close = [] if document.kind in known else difflib.get_close_matches(document.kind, known, n=1, cutoff=0.75)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"a plan doesn't know which pods {document.kind} ({document.api_version}) makes{meant}; --skip-unknown leaves it out"
