"""Build the path of every request from valid names only, so that no name can make a request go to another object.

Names come from tenants. The API server accepts any text as the name in an owner reference, even ``../../other/jobs/train``. In a URL
this name would address an object of another namespace, since URL libraries resolve the dots before they send the request.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from urllib.parse import quote

from allaboard.kube.errors import InvalidNameError
from allaboard.model.raw_fields import NAMESPACE, OBJECT_NAME

_is_namespace = re.compile(NAMESPACE, re.ASCII).fullmatch
_is_name = re.compile(OBJECT_NAME, re.ASCII).fullmatch


class ApiPath(str):
    """The path of a request, and the object or collection that its answer must be about. A ``Resource`` makes it.

    ``namespace`` is empty for all namespaces, ``name`` is empty for a collection, and ``subresource`` is empty for the object itself.
    """

    __slots__ = ("name", "namespace", "resource", "subresource")

    resource: "Resource"
    namespace: str
    name: str
    subresource: str

    @classmethod
    def of(cls, resource: "Resource", namespace: str = "", name: str = "", subresource: str = "") -> Self:
        """Return the path with every segment encoded. The names must have been checked."""
        path = cls(_collection(resource, namespace) + "".join(_segment(part) for part in (name, subresource) if part))
        path.resource, path.namespace, path.name, path.subresource = resource, namespace, name, subresource
        return path


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of objects in the API, such as pods."""

    api_version: str
    kind: str
    plural: str

    @property
    def everywhere(self) -> ApiPath:
        """The path of the collection over all namespaces."""
        return ApiPath.of(self)

    def within(self, namespace: str) -> ApiPath:
        """Return the path of the collection of one namespace. Raises ``InvalidNameError``."""
        if not _is_namespace(namespace):
            raise InvalidNameError("Namespace", namespace)
        return ApiPath.of(self, namespace)

    def named(self, namespace: str, name: str, subresource: str = "") -> ApiPath:
        """Return the path of an object in a namespace, or of its ``subresource``. Raises ``InvalidNameError``.

        ``subresource`` isn't checked.
        """
        if not _is_name(name):
            raise InvalidNameError(self.kind, name)
        return ApiPath.of(self, self.within(namespace).namespace, name, subresource)

    def clusterwide(self, name: str) -> ApiPath:
        """Return the path of a cluster-scoped object. Raises ``InvalidNameError``."""
        if not _is_name(name):
            raise InvalidNameError(self.kind, name)
        return ApiPath.of(self, name=name)


def _segment(part: str) -> str:
    return f"/{quote(part, safe='')}"


@lru_cache(maxsize=1024)  # all binds of a gang are in one namespace
def _collection(resource: Resource, namespace: str) -> str:
    root = "apis" if "/" in resource.api_version else "api"
    within = ("namespaces", namespace) if namespace else ()
    return "".join(map(_segment, (root, *resource.api_version.split("/"), *within, resource.plural)))


NODES = Resource("v1", "Node", "nodes")
PODS = Resource("v1", "Pod", "pods")
VOLUMES = Resource("v1", "PersistentVolume", "persistentvolumes")
CLAIMS = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
CSI_NODES = Resource("storage.k8s.io/v1", "CSINode", "csinodes")
CSI_DRIVERS = Resource("storage.k8s.io/v1", "CSIDriver", "csidrivers")
STORAGE_CAPACITIES = Resource("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities")
STORAGE_CLASSES = Resource("storage.k8s.io/v1", "StorageClass", "storageclasses")
RESOURCE_CLAIMS = Resource("resource.k8s.io/v1", "ResourceClaim", "resourceclaims")
NAMESPACES = Resource("v1", "Namespace", "namespaces")
JOBS = Resource("batch/v1", "Job", "jobs")
EVENTS = Resource("events.k8s.io/v1", "Event", "events")
LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases")
BUDGETS = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
RUNTIME_CLASSES = Resource("node.k8s.io/v1", "RuntimeClass", "runtimeclasses")
LIMIT_RANGES = Resource("v1", "LimitRange", "limitranges")
QUOTAS = Resource("v1", "ResourceQuota", "resourcequotas")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
POD_TEMPLATES = Resource("v1", "PodTemplate", "podtemplates")
PROVISIONING_REQUESTS = Resource("autoscaling.x-k8s.io/v1", "ProvisioningRequest", "provisioningrequests")
SERVICES = Resource("v1", "Service", "services")
SECRETS = Resource("v1", "Secret", "secrets")
MUTATING_WEBHOOKS = Resource("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
VALIDATING_WEBHOOKS = Resource("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
VALIDATING_POLICIES = Resource("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
VALIDATING_BINDINGS = Resource("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
MUTATING_POLICIES = Resource("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies")
MUTATING_BINDINGS = Resource("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
POD_GROUPS = Resource("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups")
