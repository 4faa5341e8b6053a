"""Lists the kinds of objects that create no pods, and words the error for a kind of which ``plan`` doesn't know what pods it creates.

Built-in kinds are those of Kubernetes 1.37. The other kinds belong to common add-ons, and no controller creates pods for them.
"""

import difflib
from collections.abc import Iterable

from allaboard.whatif.documents import Document

_NAMESPACED = {
    "": "Binding ConfigMap Endpoints Event LimitRange PersistentVolumeClaim PodTemplate ResourceQuota Secret Service ServiceAccount",
    "apps": "ControllerRevision",
    "autoscaling": "HorizontalPodAutoscaler",
    "certificates.k8s.io": "PodCertificateRequest",
    "coordination.k8s.io": "Lease",
    "discovery.k8s.io": "EndpointSlice",
    "events.k8s.io": "Event",
    "networking.k8s.io": "Ingress NetworkPolicy",
    "policy": "PodDisruptionBudget",
    "rbac.authorization.k8s.io": "Role RoleBinding",
    "resource.k8s.io": "ResourceClaim ResourceClaimTemplate",
    "scheduling.k8s.io": "PodGroup Workload",
    "storage.k8s.io": "CSIStorageCapacity",
    "cert-manager.io": "Certificate Issuer",
    "gateway.networking.k8s.io": "GRPCRoute HTTPRoute ReferenceGrant",
    "kueue.x-k8s.io": "LocalQueue Workload",
    "monitoring.coreos.com": "AlertmanagerConfig PodMonitor Probe PrometheusRule ScrapeConfig ServiceMonitor",
    "trainer.kubeflow.org": "TrainingRuntime",
}

_CLUSTER_SCOPED = {
    "": "ComponentStatus Namespace Node PersistentVolume",
    "admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration "
    "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "networking.k8s.io": "IPAddress IngressClass ServiceCIDR",
    "node.k8s.io": "RuntimeClass",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding",
    "resource.k8s.io": "DeviceClass DeviceTaintRule ResourceSlice",
    "scheduling.k8s.io": "PriorityClass",
    "storage.k8s.io": "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass",
    "storagemigration.k8s.io": "StorageVersionMigration",
    "cert-manager.io": "ClusterIssuer",
    "gateway.networking.k8s.io": "GatewayClass",
    "kueue.x-k8s.io": "AdmissionCheck ClusterQueue Cohort ResourceFlavor Topology WorkloadPriorityClass",
    "trainer.kubeflow.org": "ClusterTrainingRuntime",
}


def creates_no_pods(group: str, kind: str) -> bool:
    """Return whether no controller creates pods for objects of this kind."""
    return is_cluster_scoped(group, kind) or kind in _NAMESPACED.get(group, "").split()


def is_cluster_scoped(group: str, kind: str) -> bool:
    """Return whether objects of this kind have no namespace; False for a kind that may create pods."""
    return kind in _CLUSTER_SCOPED.get(group, "").split()


def why_not_expanded(document: Document, expanded: Iterable[str]) -> str:
    """Return why an object isn't expanded into pods.

    If the kind of the object looks like a misspelt name of another kind, the text also names that kind. ``expanded``: the names of the
    kinds that are expanded into pods.
    """
    known = {*expanded, *(kind for kinds in (*_NAMESPACED.values(), *_CLUSTER_SCOPED.values()) for kind in kinds.split())}
    # The cutoff allows three wrong characters in a long name, but doesn't take RayJob for a misspelt PaddleJob.
    close = [] if document.kind in known else difflib.get_close_matches(document.kind, known, n=1, cutoff=0.75)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"a plan doesn't know which pods {document.kind} ({document.api_version}) creates{meant}; --skip-unknown leaves it out"
