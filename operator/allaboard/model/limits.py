"""One table of limits on what tenants write, which bound the load on the event loop and on memory.

Code that reads an object checks lengths before it loops. A pod of this scheduler that exceeds a limit is held, with a Warning that names
the limit. In pods of other schedulers, and in fields that are only hints, the part beyond the limit is left out.
``allaboard_over_limit_total`` counts both kinds of excess by the limit's ``name``.

Each limit is several times what honest objects have. benchmarks/hostile.py measures the load of hostile pods.
"""

from collections.abc import Sized
from dataclasses import dataclass

from allaboard.model.errors import MalformedError


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest supported number of something.

    ``name`` is the limit's label in metrics; ``words`` says in messages what is counted.
    """

    name: str
    most: int
    words: str


class OverLimitError(MalformedError):
    """Raised for an object that has more of something than a limit allows."""

    def __init__(self, field: str, limit: Limit, found: int) -> None:
        super().__init__(field, f"{found} {limit.words} are more than the {limit.most} that are supported")
        self.limit = limit


class Tally:
    """Counts the entries of several lists of one object against one limit."""

    __slots__ = ("_found", "_limit")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._found = 0

    def take(self, found: Sized, field: str) -> None:
        """Count the entries of ``found``, before a loop over them. Raises ``OverLimitError`` if the sum so far exceeds the limit."""
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
ENTRIES = Limit("entries", 256, "entries of a list")  # any other list

# Of shared GPUs, in the annotations of drivers on nodes and pods. An annotation that is longer isn't read at all.
REGISTRATION_CHARACTERS = Limit("registration_characters", 32_768, "characters of a list of GPUs")
DEVICES = Limit("devices", 128, "GPUs of a node")

# Of a CSINode.
ATTACH_DRIVERS = Limit("attach_drivers", 64, "CSI drivers of a node")

# Of a pod's required anti-affinity, which other pods have to obey.
POD_TERMS = Limit("anti_affinity_terms", 16, "terms of required anti-affinity")
POD_EXPRESSIONS = Limit("anti_affinity_expressions", 8, "expressions of a term of anti-affinity")
POD_VALUES = Limit("anti_affinity_values", 32, "values of a term of anti-affinity")
POD_NAMESPACES = Limit("anti_affinity_namespaces", 16, "namespaces of a term of anti-affinity")

# Of a pod's required affinity and topology spread.
AFFINITY_TERMS = Limit("affinity_terms", 16, "terms of required affinity")
SPREADS = Limit("topology_spreads", 16, "topology spread constraints")

# Of one gang.
MEMBERS = Limit("members", 5000, "living members")
ENDED = Limit("ended_members", 5000, "members that have ended; the youngest are counted")
DELETED_RUNS = Limit("deleted_runs", 256, "runs of a gang with deleted members that had succeeded; the rest is forgotten")
KINDS = Limit("kinds", 256, "kinds of members")
GANG_REQUIREMENTS = Limit("gang_requirements", 2048, "requirements of nodes and images, of all kinds of members")
GANG_TERMS = Limit("gang_terms", 500_000, "pairs of a member and a term about other pods")
GANG_CLAIMS = Limit("gang_claims", 16_384, "volumes of all kinds of members")
CLAIM_KINDS = Limit("claim_kinds", 6, "kinds of claims with free volumes to choose from")
TOPOLOGIES = Limit("topologies", 64, "groups of members that share topology domains")

# Of PodGroups.
POD_GROUP_OWNERS = Limit("podgroup_owners", 1000, "owner references of a PodGroup; the rest is left out")
STATUS_BYTES = Limit("status_bytes", 65_536, "bytes of a PodGroup's status; a longer one counts as empty")
MIN_RESOURCES = Limit("min_resources", 64, "resources of minResources")
POD_GROUPS = Limit("podgroups", 10_000, "PodGroups of one namespace")

# Of a pipeline.
PIPELINES = Limit("pipelines", 256, "pipelines of a namespace")
STAGES = Limit("pipeline_stages", 32, "stages of a pipeline")
STEPS = Limit("pipeline_steps", 128, "steps of a pipeline")
RULES = Limit("pipeline_rules", 16, "users of a stage")
AMOUNTS = Limit("pipeline_amounts", 16, "resources of a step")

# Of a cluster.
NAMESPACE_TERMS = Limit("namespace_terms", 128, "anti-affinity terms of one namespace that are matched with one set of labels")
LABEL_SETS = Limit("label_sets", 16, "sets of labels of one gang that are matched with anti-affinity one by one")
NOMINATED = Limit("nominated_pods", 1000, "pods that wait for a node they are nominated to; the highest priorities count")
KNOWN_TEXTS = Limit("known_texts", 32_768, "short texts that are kept once for all pods that have them")
