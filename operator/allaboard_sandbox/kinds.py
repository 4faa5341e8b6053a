"""The table of the kinds that the API serves; custom resources are added while the sandbox runs.

A ``Resource`` is one kind in one group version. Two resources may share a storage table, such as the two Event APIs or the versions of a
CRD.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from allaboard_sandbox import eventviews
from allaboard_sandbox.store import Body

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column of a custom resource."""

    name: str
    type: str
    path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The JSON paths of the fields that the scale subresource reads and writes."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ".status.labelSelector"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object in one group version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    singular: str = ""
    status: bool = False
    scale: ScalePaths | None = None
    generation: bool = False
    fields: tuple[str, ...] = ()
    """Fields that field selectors support besides metadata.name and metadata.namespace; ``a.*`` supports all fields below ``a``."""
    unconditional_update: bool = True
    """True if a PUT without resourceVersion is accepted."""
    create_on_update: bool = False
    """True if a PUT creates an object that doesn't exist."""
    returns_deleted: bool = False
    """True if DELETE answers with the object rather than with a Status."""
    review_status: JsonObject | None = None
    """The status that answers a review, which is created by POST only and not stored; None for other kinds."""
    warning: str = ""
    """Warning to clients that create an object of this kind, because a real cluster would do more with it; empty for none."""
    table: str = ""
    schema: JsonObject | None = None
    columns: tuple[Column, ...] = ()
    custom: bool = False
    to_stored: Callable[[Body], Body] | None = None
    """Translates an object into its stored form; None if the forms are the same."""
    from_stored: Callable[[Body], Body] | None = None
    """Translates a stored object into the form of this group version; None if the forms are the same."""
    group_version: str = field(init=False)
    qualified: str = field(init=False)
    header: bytes = field(init=False)

    def __post_init__(self) -> None:
        group_version = f"{self.group}/{self.version}" if self.group else self.version
        qualified = f"{self.plural}.{self.group}" if self.group else self.plural
        object.__setattr__(self, "group_version", group_version)
        object.__setattr__(self, "qualified", qualified)
        object.__setattr__(self, "header", f'{{"kind":"{self.kind}","apiVersion":"{group_version}",'.encode())
        object.__setattr__(self, "table", self.table or qualified)
        object.__setattr__(self, "singular", self.singular or self.kind.lower())

    @property
    def qualified_kind(self) -> str:
        """Kind and group as error messages name them, such as ``PodGroup.scheduling.x-k8s.io``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def storage_path(self) -> str:
        """Path below which etcd keeps the objects; for built-in kinds the path has no group."""
        return f"/registry/{self.group}/{self.plural}" if self.custom else f"/registry/{self.plural}"

    @property
    def list_kind(self) -> str:
        """Kind of a list of the resource's objects."""
        return f"{self.kind}List"

    def present(self, body: Body) -> Body:
        """Return a stored object in the form of this group version."""
        shown = self.from_stored(body) if self.from_stored else body
        return {**shown, "kind": self.kind, "apiVersion": self.group_version}


POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
EVENT_FIELDS = ("involvedObject.*", "reason", "reportingComponent", "source", "type")

_NO_WEBHOOKS = "the sandbox keeps webhook configurations and calls no webhook"

BUILT_IN: tuple[Resource, ...] = (
    Resource("", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",), status=True, returns_deleted=True,
             fields=("status.phase",)),
    Resource("", "v1", "nodes", "Node", namespaced=False, short_names=("no",), status=True, fields=("spec.unschedulable",)),
    Resource("", "v1", "pods", "Pod", short_names=("po",), categories=("all",), status=True, generation=True, fields=POD_FIELDS,
             returns_deleted=True),
    Resource("", "v1", "podtemplates", "PodTemplate", generation=True, returns_deleted=True),
    Resource("", "v1", "services", "Service", short_names=("svc",), categories=("all",), status=True, returns_deleted=True),
    Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Resource("", "v1", "secrets", "Secret", fields=("type",)),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True),
    Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short_names=("pv",), status=True,
             returns_deleted=True),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), status=True, returns_deleted=True),
    Resource("", "v1", "events", "Event", short_names=("ev",), fields=EVENT_FIELDS, create_on_update=True),
    Resource("events.k8s.io", "v1", "events", "Event", short_names=("ev",), fields=EVENT_FIELDS, create_on_update=True,
             table="events", to_stored=eventviews.to_core, from_stored=eventviews.from_core),
    Resource("apps", "v1", "deployments", "Deployment", short_names=("deploy",), categories=("all",), status=True, generation=True,
             scale=ScalePaths()),
    Resource("apps", "v1", "replicasets", "ReplicaSet", short_names=("rs",), categories=("all",), status=True, generation=True,
             scale=ScalePaths()),
    Resource("apps", "v1", "statefulsets", "StatefulSet", short_names=("sts",), categories=("all",), status=True, generation=True,
             scale=ScalePaths()),
    Resource("apps", "v1", "daemonsets", "DaemonSet", short_names=("ds",), categories=("all",), status=True, generation=True,
             warning="the sandbox has no controller of DaemonSets: its pods are not created"),
    Resource("batch", "v1", "jobs", "Job", categories=("all",), status=True, generation=True, fields=("status.successful",)),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short_names=("pdb",), status=True, generation=True,
             unconditional_update=False),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short_names=("pc",)),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", unconditional_update=False, create_on_update=True),
    Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short_names=("sc",)),
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", status=True, returns_deleted=True,
             warning="the sandbox allocates no resource claims"),
    Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
    Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False),
    Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False,
             short_names=("crd", "crds"), status=True, generation=True, unconditional_update=False),
    Resource("", "v1", "resourcequotas", "ResourceQuota", short_names=("quota",), status=True, returns_deleted=True,
             warning="the sandbox keeps quotas and enforces none"),
    # Stored so that manifests with them can be applied; no access is ever denied.
    Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",), generation=True),
    Resource("networking.k8s.io", "v1", "ingresses", "Ingress", short_names=("ing",), status=True, generation=True),
    Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration",
             namespaced=False, generation=True, warning=_NO_WEBHOOKS),
    Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
             namespaced=False, generation=True, warning=_NO_WEBHOOKS),
    Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False,
             review_status={"allowed": True, "reason": "the sandbox allows everything"}),
    Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False,
             review_status={"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}], "incomplete": False}),
    Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False,
             review_status={"userInfo": {"username": "sandbox", "groups": ["system:masters", "system:authenticated"]}}),
)  # fmt: skip


class Registry:
    """The resources that the API serves at present."""

    def __init__(self, resources: Iterable[Resource] = BUILT_IN) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve a resource from now on."""
        self._resources[resource.group, resource.version, resource.plural] = resource

    def discard(self, group: str, plural: str) -> None:
        """Stop serving a custom resource in all its versions."""
        for key in [key for key in self._resources if (key[0], key[2]) == (group, plural)]:
            del self._resources[key]

    def get(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource of a group, version and plural, or None if it isn't served."""
        return self._resources.get((group, version, plural))

    def of_table(self, table: str) -> Resource | None:
        """Return the resource whose objects ``table`` stores, in its storage version; None if there is none."""
        return next((resource for resource in self._resources.values() if resource.table == table), None)

    def groups(self) -> dict[str, list[str]]:
        """Return the served versions of each API group, in the order of registration."""
        found: dict[str, list[str]] = {}
        for resource in self._resources.values():
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return found

    def served_by(self, group: str, version: str) -> list[Resource]:
        """Return the resources of one group version."""
        return [resource for resource in self._resources.values() if (resource.group, resource.version) == (group, version)]

    def of_object(self, body: Body) -> Resource | None:
        """Return the resource of an object by its apiVersion and kind, or None if it isn't served."""
        wanted = (body.get("apiVersion"), body.get("kind"))
        return next((each for each in self._resources.values() if (each.group_version, each.kind) == wanted), None)

    def named(self, word: str) -> Resource | None:
        """Return the resource called ``word``, or None if there is none.

        ``word`` is a plural, ``plural.group``, singular, kind or short name.
        """
        lowered = word.lower()
        for resource in self._resources.values():
            if lowered in (resource.plural, resource.qualified, resource.singular, resource.kind.lower(), *resource.short_names):
                return resource
        return None
