"""Where a pod may run: the part of its spec that filters nodes, in comparable form.

Two pods with equal ``Constraints`` and requests are interchangeable for placement: that is what makes a *role*.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from allaboard.model.errors import MalformedError, shown
from allaboard.model.gpu_sharing import GPU, SHARES, Share
from allaboard.model.gpushares import asks_of, at_worst, without_words
from allaboard.model.limits import (
    CONTAINERS,
    ENTRIES,
    PORTS,
    QUANTITIES,
    REQUIREMENTS,
    SELECTORS,
    TERMS,
    TOLERATIONS,
    VALUES,
    VOLUMES,
    OverLimitError,
    Tally,
)
from allaboard.model.podterms import PodTerm, anti_affinity_terms
from allaboard.model.raw_fields import boolean, integer, items, labels, mapping, sequence, text, texts
from allaboard.model.requests import RawObject, Requests, pod_requests, unstated_requests
from allaboard.model.volumes import Attaches, Volume, migrated_volume

_Part = TypeVar("_Part")

_EMPTY: RawObject = {}
_NOTHING: Requests = (("pods", 1),)
_NO_TERMS: tuple[tuple[PodTerm, ...], MalformedError | None] = ((), None)
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_MOST_OTHERS = 2  # of each container of a pod with more resources than are taken in

_NODE_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt (apimachinery selection operators)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class NodeSelectorTerm:
    """All expressions and fields must match; a term with neither matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
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


@dataclass(frozen=True, slots=True, order=True)
class GpuRequest:
    """What is asked of a node's GPUs beside how many are requested: ``number`` of them must be as the rest says, or one if that is 0.

    ``memory_each`` and ``memory_total`` are MiB that must be free: more than that of each, as much of all of the node's together.
    ``model`` is an expression (``model.gpunames``) for what they are called; empty when that doesn't matter. ``requested`` is how many its
    containers request; of a ``number`` beyond that ``is_charged`` tells whether it counts as a request, or else nodes must have as many.
    """

    number: int = 0
    memory_each: int | None = None
    memory_total: int | None = None
    model: str = ""
    requested: int = 0
    is_charged: bool = True

    @property
    def rules(self) -> int:
        """How many rules about nodes that are."""
        return self.filters_number + (self.memory_each is not None) + (self.memory_total is not None) + bool(self.model)

    @property
    def filters_number(self) -> bool:
        """Whether the number is nothing but a rule about nodes."""
        return self.number > 0 and not self.is_charged


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SchedulingSpec:
    """What one pod asks of a node. Equal specs are one role.

    ``affinity`` is ``None`` without required node affinity; otherwise one of the terms must match, and no terms match no node.
    ``preferred`` is the preferred node affinity: (weight, term). ``gpu_share`` is what is asked of a single GPU, in thousandths of it:
    of a live pod at least, for of each node's GPUs it may be another part (``share``). ``device_container`` is the place of the container
    that asks for GPUs, -1 where there are several, or labels ask for more than it does. ``images`` are those of its containers, as nodes
    name them.
    ``gpus`` is what is asked of GPUs by labels; how many is part of the requests.
    ``unstated`` is what kube-scheduler's scores count beside the requests.
    ``claims`` are PersistentVolumeClaims by name, and ``disks`` volumes that the pod names itself and a CSI driver attaches.
    ``anti_affinity`` are the pod's own required anti-affinity terms, which keep other pods away once the pod is bound.
    ``unsupported`` says in words what can't be honoured yet: such pods are refused.

    Four fields are filled in when a placement is prepared. ``volumes`` holds the node affinity of each bound claim: every entry must have
    a matching term. ``forbidden_domains`` are the topology domains that bound pods keep this pod out of, by the same rule, and
    ``required_domains`` the domains of bound members that the pod must share. ``attaches`` counts the volumes that the pod attaches, by
    each driver with a limit.
    """

    requests: Requests
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    forbidden_domains: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    required_domains: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    gpu_share: int = 0
    images: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    unstated: Requests = ()
    share: Share | None = None
    device_container: int = 0
    gpus: GpuRequest | None = None
    disks: tuple[Volume, ...] = ()
    attaches: tuple[Attaches, ...] = ()

    def amount(self, resource: str) -> int:
        """How much of ``resource`` is requested."""
        return next((amount for name, amount in self.requests if name == resource), 0)

    @property
    def whole_gpus(self) -> int:
        """How many GPUs are asked for that nobody else may use."""
        return 0 if self.share else self.amount(GPU)

    @property
    def awaited(self) -> tuple[str, ...]:
        """Resources by which it is told what is short of GPUs that are shared, and what comes free of them."""
        return (GPU, SHARES) if self.share or self.gpu_share or self.amount(GPU) else ()

    @property
    def rules(self) -> int:
        """How many rules about nodes have to be looked at, each on every node."""
        surroundings = chain.from_iterable((*self.volumes, *self.forbidden_domains, *self.required_domains))
        terms = chain(self.affinity or (), (term for _, term in self.preferred), surroundings)
        of_gpus = self.gpus.rules if self.gpus else 0
        return of_gpus + len(self.node_selector) + len(self.images) + sum(len(term.expressions) + len(term.fields) for term in terms)

    @property
    def asks_for_devices(self) -> bool:
        """Whether any resource is an extended one, such as a GPU, or a part of one."""
        return self.gpu_share > 0 or any("/" in name for name, _ in self.requests)

    @property
    def demand(self) -> "SchedulingSpec":
        """What makes it a task of the cluster's workload: what it asks for and on which nodes, and nothing of the moment."""
        model = GpuRequest(model=self.gpus.model) if self.gpus and self.gpus.model else None
        where = self.node_selector, self.affinity, self.tolerations
        return SchedulingSpec(self.requests, *where, gpu_share=self.gpu_share, share=self.share, gpus=model)


def readable_spec_from(raw: RawObject, *, is_foreign: bool = False) -> tuple[SchedulingSpec, list[MalformedError]]:
    """What can be read of the scheduling part of a raw Pod, and what is wrong with the rest, which is taken to be empty.

    Of a foreign pod, which another scheduler places, only what it takes and where it could be is of interest. What a pod takes counts
    however wrong the rest is: a tenant could hide it otherwise.
    """
    parts = _Parts()
    spec = parts.read(_EMPTY, mapping, raw, "spec")
    affinity = parts.read(_EMPTY, mapping, spec, "affinity", "spec.")
    anti_affinity, problem = parts.read(_NO_TERMS, anti_affinity_terms, affinity)
    requests = _requests(raw, parts)
    asks = parts.read(None, asks_of, raw, requests) or at_worst(requests)
    found = SchedulingSpec(
        requests=without_words(requests) if asks.share else requests,
        unstated=() if parts.problems else parts.read((), unstated_requests, raw, requests),
        node_selector=parts.read((), _node_selector, spec),
        affinity=parts.read(None, _node_affinity, affinity),
        tolerations=parts.read((), _tolerations, spec),
        host_ports=parts.read((), _host_ports, spec),
        claims=parts.read((), _claims, raw, spec),
        disks=parts.read((), _disks, spec),
        anti_affinity=anti_affinity,
        preferred=() if is_foreign else parts.read((), _preferred, affinity),
        images=() if is_foreign else parts.read((), _images, spec),
        unsupported=() if is_foreign else parts.read(asks.unsupported, _unsupported, spec, affinity, asks.unsupported),
        gpu_share=asks.share.nominal if asks.share else 0,
        share=asks.share,
        device_container=asks.container,
    )
    return found, [*parts.problems, problem] if problem else parts.problems


class _Parts:
    """Reads one part of a pod after another, and notes what is wrong with any."""

    def __init__(self) -> None:
        self.problems: list[MalformedError] = []

    def read(self, otherwise: _Part, part: Callable[..., _Part], *arguments: object) -> _Part:
        try:
            return part(*arguments)
        except MalformedError as error:
            self.problems.append(error.noted())
            return otherwise


def _requests(raw: RawObject, parts: _Parts) -> Requests:
    """What a pod asks for; of one with more containers or resources than are taken in, what those within the limits ask for."""
    found = parts.read(None, pod_requests, raw, Tally(QUANTITIES))
    if found is None and isinstance(parts.problems[-1], OverLimitError):
        found = parts.read(None, pod_requests, _cut(raw))
    return _NOTHING if found is None else found


def _cut(raw: RawObject) -> RawObject:
    """As much of a pod as its requests may be added up from."""

    def containers(parent: RawObject, key: str) -> list[dict[str, object]]:
        return [
            {
                "name": container.get("name"),
                "restartPolicy": container.get("restartPolicy"),
                "resources": {"requests": _few(mapping(mapping(container, "resources"), "requests"))},
            }
            for _, container in items({key: sequence(parent, key)[: CONTAINERS.most]}, key)
        ]

    spec = mapping(raw, "spec")
    return {
        "spec": {
            "containers": containers(spec, "containers"),
            "initContainers": containers(spec, "initContainers"),
            "resources": {"requests": _few(mapping(mapping(spec, "resources"), "requests"))},
            "overhead": _few(mapping(spec, "overhead")),
        }
    }


def _few(resources: RawObject) -> dict[str, object]:
    names = (*_NATIVE, *islice(resources, _MOST_OTHERS))
    return {name: resources[name] for name in names if name in resources}


def _node_selector(spec: RawObject) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels(spec, "nodeSelector", "spec.", SELECTORS).items()))


def _tolerations(spec: RawObject) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=text(toleration, "key", path=path),
            operator=text(toleration, "operator", "Equal", path),
            value=text(toleration, "value", path=path),
            effect=text(toleration, "effect", path=path),
        )
        for path, toleration in items(spec, "tolerations", "spec.", TOLERATIONS)
    )


def node_selector_terms(parent: Mapping[str, object], path: str) -> tuple[NodeSelectorTerm, ...]:
    """The ``nodeSelectorTerms`` of a required node affinity, a pod's or a volume's. Raises ``MalformedError``."""
    tally = _NodeTally()
    return tuple(
        NodeSelectorTerm(
            expressions=tuple(_requirements(term, "matchExpressions", where, tally)),
            fields=tuple(_requirements(term, "matchFields", where, tally)),
        )
        for where, term in items(parent, "nodeSelectorTerms", path, TERMS)
    )


class _NodeTally:
    """What all terms of one node affinity have together."""

    def __init__(self) -> None:
        self.requirements = Tally(REQUIREMENTS)
        self.values = Tally(VALUES)


def _node_affinity(affinity: Mapping[str, object]) -> tuple[NodeSelectorTerm, ...] | None:
    path = "spec.affinity.nodeAffinity."
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    node_affinity = mapping(affinity, "nodeAffinity", "spec.affinity.")
    if node_affinity.get(key) is None:
        return None
    return node_selector_terms(mapping(node_affinity, key, path), f"{path}{key}.")


def _images(spec: Mapping[str, object]) -> tuple[str, ...]:
    """With the tag that an image without one has (imagelocality.go, normalizedImageName)."""
    found = set()
    for path, container in items(spec, "containers", "spec.", CONTAINERS):
        name = text(container, "image", path=path)
        if name:
            found.add(name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest")
    return tuple(sorted(found))


def _preferred(affinity: Mapping[str, object]) -> tuple[tuple[int, NodeSelectorTerm], ...]:
    """A preference without an expression matches every node, and says nothing (nodeaffinity.NewPreferredSchedulingTerms)."""
    found = []
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    tally = _NodeTally()
    for path, preference in items(mapping(affinity, "nodeAffinity", "spec.affinity."), key, "spec.affinity.nodeAffinity.", TERMS):
        weight, term = integer(preference, "weight", path=path), mapping(preference, "preference", path)
        expressions = tuple(_requirements(term, "matchExpressions", f"{path}preference.", tally))
        fields = tuple(_requirements(term, "matchFields", f"{path}preference.", tally))
        if weight > 0 and (expressions or fields):
            found.append((weight, NodeSelectorTerm(expressions, fields)))
    return tuple(found)


def _requirements(term: Mapping[str, object], key: str, path: str, tally: _NodeTally) -> Iterator[Requirement]:
    for where, expression in items(term, key, path, tally.requirements):
        operator = text(expression, "operator", path=where)
        if operator not in _NODE_OPERATORS:
            raise MalformedError(f"{where}operator", f"{shown(operator)} is not one of {', '.join(sorted(_NODE_OPERATORS))}")
        yield Requirement(text(expression, "key", path=where), operator, texts(expression, "values", where, tally.values))


def _host_ports(spec: Mapping[str, object]) -> tuple[HostPort, ...]:
    """Ports of containers and sidecars. With hostNetwork the API server sets hostPort from containerPort, so a manifest gets the same."""
    on_host_network = boolean(spec, "hostNetwork", "spec.")
    regular, first = items(spec, "containers", "spec.", CONTAINERS), items(spec, "initContainers", "spec.", CONTAINERS)
    sidecars = (pair for pair in first if pair[1].get("restartPolicy") == "Always")
    tally = Tally(PORTS)
    found = set()
    for path, container in chain(regular, sidecars):
        for where, port in items(container, "ports", path, tally):
            number = integer(port, "hostPort", path=where) or (integer(port, "containerPort", path=where) if on_host_network else 0)
            if number:
                address = text(port, "hostIP", path=where) or "0.0.0.0"  # noqa: S104
                found.add(HostPort(address, text(port, "protocol", "TCP", where), number))
    return tuple(sorted(found))


def _claims(raw: RawObject, spec: Mapping[str, object]) -> tuple[str, ...]:
    """Claims of generic ephemeral volumes are named after the pod (component-helpers storage/ephemeral)."""
    found = set()
    for path, volume in items(spec, "volumes", "spec.", VOLUMES):
        if claim := mapping(volume, "persistentVolumeClaim", path):
            found.add(text(claim, "claimName", path=f"{path}persistentVolumeClaim."))
        elif mapping(volume, "ephemeral", path):
            found.add(f"{text(mapping(raw, 'metadata'), 'name')}-{text(volume, 'name', path=path)}")
    return tuple(sorted(found))


def _disks(spec: Mapping[str, object]) -> tuple[Volume, ...]:
    found = (migrated_volume(volume, path) for path, volume in items(spec, "volumes", "spec.", VOLUMES))
    return tuple(sorted({volume for volume in found if volume is not None}))


def _unsupported(spec: Mapping[str, object], affinity: Mapping[str, object], of_gpus: tuple[str, ...]) -> tuple[str, ...]:
    """What would be wrong to ignore and isn't understood yet. Preferences may be ignored; requirements may not."""
    found = [*of_gpus]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for kind, words in (("podAffinity", "required pod affinity"), ("podAntiAffinity", "required pod anti-affinity")):
        if mapping(affinity, kind, "spec.affinity.").get(required):
            found.append(f"{words} is not supported")
    for path, constraint in items(spec, "topologySpreadConstraints", "spec.", ENTRIES):
        if text(constraint, "whenUnsatisfiable", "DoNotSchedule", path) == "DoNotSchedule":
            found.append("topology spread constraints with DoNotSchedule are not supported")
            break
    if sequence(spec, "resourceClaims", "spec."):
        found.append("resource claims (DRA) are not supported")
    for path, volume in items(spec, "volumes", "spec.", VOLUMES):
        if mapping(volume, "ephemeral", path):
            found.append("generic ephemeral volumes are not supported")
            break
    return tuple(found)
