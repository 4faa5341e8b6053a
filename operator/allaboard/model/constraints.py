"""Where a pod may run: the part of its spec that filters nodes, in comparable form.

Two pods with equal ``Constraints`` and requests are interchangeable for placement: that is what makes a *role*.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from allaboard.model.errors import MalformedError, shown
from allaboard.model.fields import boolean, integer, items, labels, mapping, sequence, text, texts
from allaboard.model.podterms import PodTerm, repelling_terms
from allaboard.model.requests import RawObject, Requests, pod_requests

_NODE_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


@dataclass(frozen=True, slots=True)
class Requirement:
    """``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt (apimachinery selection operators)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """All expressions and fields must match; a term with neither matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """An empty ``key`` with Exists tolerates every taint; an empty ``effect`` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port of the node itself. ``0.0.0.0`` conflicts with every address on the same protocol and port."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class SchedulingSpec:
    """What one pod asks of a node. Equal specs are one role.

    ``affinity`` is ``None`` without required node affinity; otherwise one of the terms must match, and no terms match no node.
    ``preferred`` is the preferred node affinity: (weight, term). ``gpu_share`` is what is asked of a single GPU, in thousandths of it;
    live pods ask for whole ones. ``images`` are those of its containers, as nodes name them.
    ``claims`` are PersistentVolumeClaims by name; ``volumes`` holds the node affinity of each bound one, filled in when a placement
    is prepared: every entry must have a matching term; likewise ``avoided``, the domains that bound pods keep this one out of, and
    ``near``, the domains of bound members that it must share. ``repels`` is whom this pod keeps away once it is bound. ``unsupported``
    says in words what can't be honoured yet: such pods are refused.
    """

    requests: Requests
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    avoided: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    near: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    repels: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    gpu_share: int = 0
    images: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()

    def amount(self, resource: str) -> int:
        """How much of ``resource`` is requested."""
        return next((amount for name, amount in self.requests if name == resource), 0)

    @property
    def asks_for_devices(self) -> bool:
        """Whether any resource is an extended one, such as a GPU, or a part of one."""
        return self.gpu_share > 0 or any("/" in name for name, _ in self.requests)

    @property
    def demand(self) -> "SchedulingSpec":
        """What makes it a task of the cluster's workload: what it asks for and on which nodes, and nothing of the moment."""
        return SchedulingSpec(self.requests, self.node_selector, self.affinity, self.tolerations, gpu_share=self.gpu_share)


def scheduling_spec_from(raw: RawObject) -> SchedulingSpec:
    """The scheduling part of a raw Pod. Raises ``MalformedError``."""
    spec = mapping(raw, "spec")
    affinity = mapping(spec, "affinity", "spec.")
    return SchedulingSpec(
        requests=pod_requests(raw),
        node_selector=tuple(sorted(labels(spec, "nodeSelector", "spec.").items())),
        affinity=_node_affinity(affinity),
        tolerations=tuple(
            Toleration(
                key=text(toleration, "key", path=path),
                operator=text(toleration, "operator", "Equal", path),
                value=text(toleration, "value", path=path),
                effect=text(toleration, "effect", path=path),
            )
            for path, toleration in items(spec, "tolerations", "spec.")
        ),
        host_ports=tuple(sorted(set(_host_ports(spec)))),
        claims=_claims(spec),
        repels=repelling_terms(affinity),
        preferred=tuple(_preferred(affinity)),
        images=tuple(sorted(set(_images(spec)))),
        unsupported=tuple(_unsupported(spec, affinity)),
    )


def node_selector_terms(parent: Mapping[str, object], path: str) -> tuple[NodeSelectorTerm, ...]:
    """The ``nodeSelectorTerms`` of a required node affinity, a pod's or a volume's. Raises ``MalformedError``."""
    return tuple(
        NodeSelectorTerm(
            expressions=tuple(_requirements(term, "matchExpressions", where)),
            fields=tuple(_requirements(term, "matchFields", where)),
        )
        for where, term in items(parent, "nodeSelectorTerms", path)
    )


def _node_affinity(affinity: Mapping[str, object]) -> tuple[NodeSelectorTerm, ...] | None:
    path = "spec.affinity.nodeAffinity."
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    node_affinity = mapping(affinity, "nodeAffinity", "spec.affinity.")
    if node_affinity.get(key) is None:
        return None
    return node_selector_terms(mapping(node_affinity, key, path), f"{path}{key}.")


def _images(spec: Mapping[str, object]) -> Iterator[str]:
    """With the tag that an image without one has (imagelocality.go, normalizedImageName)."""
    for path, container in items(spec, "containers", "spec."):
        name = text(container, "image", path=path)
        if name:
            yield name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def _preferred(affinity: Mapping[str, object]) -> Iterator[tuple[int, NodeSelectorTerm]]:
    """A preference without an expression matches every node, and says nothing (nodeaffinity.NewPreferredSchedulingTerms)."""
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    for path, preference in items(mapping(affinity, "nodeAffinity", "spec.affinity."), key, "spec.affinity.nodeAffinity."):
        weight, term = integer(preference, "weight", path=path), mapping(preference, "preference", path)
        expressions = tuple(_requirements(term, "matchExpressions", f"{path}preference."))
        fields = tuple(_requirements(term, "matchFields", f"{path}preference."))
        if weight > 0 and (expressions or fields):
            yield weight, NodeSelectorTerm(expressions, fields)


def _requirements(term: Mapping[str, object], key: str, path: str) -> Iterator[Requirement]:
    for where, expression in items(term, key, path):
        operator = text(expression, "operator", path=where)
        if operator not in _NODE_OPERATORS:
            raise MalformedError(f"{where}operator", f"{shown(operator)} is not one of {', '.join(sorted(_NODE_OPERATORS))}")
        yield Requirement(text(expression, "key", path=where), operator, texts(expression, "values", where))


def _host_ports(spec: Mapping[str, object]) -> Iterator[HostPort]:
    """Ports of containers and sidecars. With hostNetwork the API server sets hostPort from containerPort, so a manifest gets the same."""
    on_host_network = boolean(spec, "hostNetwork", "spec.")
    sidecars = (pair for pair in items(spec, "initContainers", "spec.") if pair[1].get("restartPolicy") == "Always")
    for path, container in chain(items(spec, "containers", "spec."), sidecars):
        for where, port in items(container, "ports", path):
            number = integer(port, "hostPort", path=where) or (integer(port, "containerPort", path=where) if on_host_network else 0)
            if number:
                yield HostPort(text(port, "hostIP", path=where) or "0.0.0.0", text(port, "protocol", "TCP", where), number)  # noqa: S104


def _claims(spec: Mapping[str, object]) -> tuple[str, ...]:
    found = set()
    for path, volume in items(spec, "volumes", "spec."):
        claim = mapping(volume, "persistentVolumeClaim", path)
        if claim:
            found.add(text(claim, "claimName", path=f"{path}persistentVolumeClaim."))
    return tuple(sorted(found))


def _unsupported(spec: Mapping[str, object], affinity: Mapping[str, object]) -> Iterator[str]:
    """What would be wrong to ignore and isn't understood yet. Preferences may be ignored; requirements may not."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for kind, words in (("podAffinity", "required pod affinity"), ("podAntiAffinity", "required pod anti-affinity")):
        if mapping(affinity, kind, "spec.affinity.").get(required):
            yield f"{words} is not supported"
    for path, constraint in items(spec, "topologySpreadConstraints", "spec."):
        if text(constraint, "whenUnsatisfiable", "DoNotSchedule", path) == "DoNotSchedule":
            yield "topology spread constraints with DoNotSchedule are not supported"
            break
    if sequence(spec, "resourceClaims", "spec."):
        yield "resource claims (DRA) are not supported"
    for path, volume in items(spec, "volumes", "spec."):
        if mapping(volume, "ephemeral", path):
            yield "generic ephemeral volumes are not supported"
            break
