"""How much of what tenants write is taken in: one table, so that what they can make the event loop and the memory bear is seen at once.

Whoever reads an object looks at lengths before it loops. A pod of ours over a limit is held with a Warning that names it; of a pod of
another scheduler, and of what is no more than a hint, the part beyond is left out. Both are counted (``over_limit_total``, by ``name``).
The figures are several times what honest objects have; benchmarks/hostile.py shows what they leave of the loop and the memory.
"""

from collections.abc import Sized
from dataclasses import dataclass

from allaboard.model.errors import MalformedError


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many of something. ``name`` is its label in metrics, ``words`` what is counted, for people."""

    name: str
    most: int
    words: str


class OverLimitError(MalformedError):
    """There is more of something than is taken in."""

    def __init__(self, field: str, limit: Limit, found: int) -> None:
        super().__init__(field, f"{found} {limit.words} are more than the {limit.most} that are supported")
        self.limit = limit


class Tally:
    """Counts what is in several lists of one object against one limit."""

    __slots__ = ("_found", "_limit")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._found = 0

    def take(self, found: Sized, field: str) -> None:
        """Count ``found`` before looping over it. Raises ``OverLimitError`` when with it there are more than the limit allows."""
        self._found += len(found)
        if self._found > self._limit.most:
            raise OverLimitError(field, self._limit, self._found)


# Of one pod.
LABELS = Limit("labels", 64, "labels")
OPTION_CHARACTERS = Limit("option_characters", 8192, "characters of annotations allaboard.dev/")
FUNCTION_CHARACTERS = Limit("function_characters", 32_768, "characters of com.openfaas.function.spec")
OWNERS = Limit("owner_references", 64, "owner references")
CONTAINERS = Limit("containers", 64, "containers")
QUANTITIES = Limit("quantities", 512, "resources of all containers")
PORTS = Limit("ports", 128, "ports of all containers")
VOLUMES = Limit("volumes", 64, "volumes")
TOLERATIONS = Limit("tolerations", 64, "tolerations")
SELECTORS = Limit("node_selectors", 64, "entries of a node selector")
TERMS = Limit("node_terms", 64, "terms of node affinity")
REQUIREMENTS = Limit("node_requirements", 64, "requirements of node affinity")
VALUES = Limit("node_values", 128, "values of node affinity")
CHARACTERS = Limit("characters", 253, "characters of a name or value")  # names of objects have no more
ENTRIES = Limit("entries", 256, "entries of a list")  # that isn't named here

# Of GPUs that are shared, as a driver says on a node or a pod; nothing is read of what is longer.
REGISTRATION_CHARACTERS = Limit("registration_characters", 32_768, "characters of a list of GPUs")
DEVICES = Limit("devices", 128, "GPUs of a node")

# Of a CSINode.
ATTACH_DRIVERS = Limit("attach_drivers", 64, "CSI drivers of a node")

# Of its required anti-affinity, which others have to heed.
POD_TERMS = Limit("anti_affinity_terms", 16, "terms of required anti-affinity")
POD_EXPRESSIONS = Limit("anti_affinity_expressions", 8, "expressions of a term of anti-affinity")
POD_VALUES = Limit("anti_affinity_values", 32, "values of a term of anti-affinity")
POD_NAMESPACES = Limit("anti_affinity_namespaces", 16, "namespaces of a term of anti-affinity")

# Of one gang.
MEMBERS = Limit("members", 5000, "living members")
ENDED = Limit("ended_members", 5000, "members that have ended, of which the youngest are counted")
DELETED_RUNS = Limit("deleted_runs", 256, "runs of a gang of which members have succeeded and been deleted, of which the rest is forgotten")
KINDS = Limit("kinds", 256, "kinds of members")
GANG_REQUIREMENTS = Limit("gang_requirements", 2048, "requirements of nodes and images, of all kinds of members")
GANG_CLAIMS = Limit("gang_claims", 16_384, "volumes of all kinds of members")
TOPOLOGIES = Limit("topologies", 64, "groups of members that share a topology domain")

# Of PodGroups.
POD_GROUP_OWNERS = Limit("podgroup_owners", 1000, "owner references of a PodGroup, of which the rest is left out")
STATUS_BYTES = Limit("status_bytes", 65_536, "bytes of a PodGroup's status, which is taken for empty beyond")
MIN_RESOURCES = Limit("min_resources", 64, "resources of minResources")
POD_GROUPS = Limit("podgroups", 10_000, "PodGroups of one namespace")

# Of a pipeline.
PIPELINES = Limit("pipelines", 256, "pipelines of a namespace")
STAGES = Limit("pipeline_stages", 32, "stages of a pipeline")
STEPS = Limit("pipeline_steps", 128, "steps of a pipeline")
RULES = Limit("pipeline_rules", 16, "users of a stage")
AMOUNTS = Limit("pipeline_amounts", 16, "resources of a step")

# Of a cluster.
NAMESPACE_TERMS = Limit("namespace_terms", 128, "anti-affinity terms of one namespace that are tried on one kind of labels")
LABEL_SETS = Limit("label_sets", 16, "kinds of labels of one gang that anti-affinity is tried on one by one")
NOMINATED = Limit("nominated_pods", 1000, "pods that wait for a node they are nominated to, of which the highest priorities count")
KNOWN_TEXTS = Limit("known_texts", 32_768, "short texts that are kept once for all pods")
