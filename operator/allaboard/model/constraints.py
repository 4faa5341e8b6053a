"""The part of a pod's spec that decides which nodes can take the pod, in a form that can be compared.

Pods with equal ``SchedulingSpec`` are interchangeable for placement: they form one *role*.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from allaboard.model.errors import MalformedError, shown
from allaboard.model.gpu_sharing import GPU, SHARES, Share
from allaboard.model.gpushares import largest_share_of, share_request_of, without_part_resources
from allaboard.model.limits import (
    CONTAINERS,
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
from allaboard.model.podterms import (
    PodTerm,
    SpreadConstraint,
    affinity_terms,
    anti_affinity_terms,
    preferred_pod_terms,
    spread_constraints,
)
from allaboard.model.raw_fields import boolean, integer, items, labels, mapping, sequence, text, texts
from allaboard.model.reasons import Kind
from allaboard.model.requests import RawObject, Requests, pod_requests, unstated_requests
from allaboard.model.volumes import Attaches, Volume, migrated_volume

_Part = TypeVar("_Part")

_EMPTY: RawObject = {}
_NOTHING: Requests = (("pods", 1),)
_NO_TERMS: tuple[tuple[PodTerm, ...], MalformedError | None] = ((), None)
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_MOST_OTHERS = 2  # resources read beside the native ones, for each container of a pod that has too many

NAME_FIELD = "metadata.name"
"""The only field of nodes by which a term may select them."""

_NODE_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One expression of a node selector. ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt (apimachinery selection operators)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class NodeSelectorTerm:
    """A term of node affinity. A node must match all its expressions and fields; a term with neither matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Toleration:
    """A toleration of taints. An empty ``key`` with Exists tolerates every taint; an empty ``effect`` tolerates every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port of the node itself. The address ``0.0.0.0`` conflicts with every address on the same protocol and port."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True, order=True)
class FreeVolume:
    """A PersistentVolume of ``size`` bytes that belongs to no claim. A node must match a term of every entry of ``terms``."""

    size: int
    name: str
    terms: tuple[tuple[NodeSelectorTerm, ...], ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class UnboundClaim:
    """A claim that gets its volume once its pod has a node (WaitForFirstConsumer).

    ``volumes`` are the volumes that it may get, the smallest first. Another volume can be provisioned for it on the nodes that match a term
    of every entry of ``provisioned``. No node matches an entry without terms.
    """

    volumes: tuple[FreeVolume, ...] = ()
    provisioned: tuple[tuple[NodeSelectorTerm, ...], ...] = ((),)

    def __hash__(self) -> int:
        """Return a hash without most volumes: there may be thousands, and claims of one kind mostly have one tuple of them."""
        return hash((len(self.volumes), self.volumes[:1], self.provisioned))


@dataclass(frozen=True, slots=True, order=True)
class GpuRequest:
    """The GPUs that a pod or PodGroup asks for by labels and annotations, beside the requests of containers.

    A node must have ``number`` GPUs that match ``model`` and ``memory_each``, or one such GPU if ``number`` is 0. Memory is in MiB: each of
    these GPUs must have more than ``memory_each`` free, and all GPUs of the node together at least ``memory_total``; None for any memory.
    ``model`` is an expression (``model.gpunames``) for the GPU's name; empty for any model. ``requested`` is the number of GPUs that the
    containers request. If ``is_charged``, the pod requests ``number`` GPUs where this is more than ``requested``. If not ``is_charged``,
    ``number`` is only a rule about nodes.
    """

    number: int = 0
    memory_each: int | None = None
    memory_total: int | None = None
    model: str = ""
    requested: int = 0
    is_charged: bool = True

    @property
    def rules(self) -> int:
        """The number of rules about nodes."""
        return self.filters_number + (self.memory_each is not None) + (self.memory_total is not None) + bool(self.model)

    @property
    def filters_number(self) -> bool:
        """Return whether ``number`` is only a rule about nodes, so that the pod doesn't request these GPUs."""
        return self.number > 0 and not self.is_charged


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The pods that count for the preferences of a pod about other pods: bound pods by domain, and the number of other members.

    ``scores`` has (label, ((value of the label, score), ...)): kube-scheduler's raw score of a domain, by preferred affinity and
    anti-affinity to bound pods. ``attracting`` and ``repelling`` are the most that other members of the gang can add to the score, and
    subtract from it.
    ``counts`` has for each preferred topology spread constraint (value of the label, number) of the bound pods that count, and ``members``
    the number of the gang's other members that count.
    """

    scores: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    attracting: int = 0
    repelling: int = 0
    counts: tuple[tuple[tuple[str, int], ...], ...] = ()
    members: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SchedulingSpec:
    """The requirements of one pod on its node. Pods with equal specs form one role.

    ``affinity`` is ``None`` without required node affinity; otherwise one of the terms must match, and no terms match no node.
    ``preferred`` is the preferred node affinity: (weight, term). ``images`` are the images of the containers, as nodes name them.
    ``gpu_share`` is the requested part of a single GPU, in thousandths. For a live pod ``gpu_share`` is a lower bound: the exact part
    depends on the memory of each node's GPUs, and is computed from ``share``. ``device_container`` is the position of the container that
    requests GPUs; -1 if several containers do, or if labels ask for more GPUs than the container. ``gpus`` is what labels ask of GPUs; the
    number of these GPUs is part of the requests.
    ``unstated`` is what kube-scheduler's scores count beside the requests. ``claims`` are the names of PersistentVolumeClaims.
    ``resource_claims`` has (name in the spec, name of the ResourceClaim) of each resource claim; the latter is empty until it is created.
    ``disks`` are volumes that the pod's spec names directly and a CSI driver attaches. ``anti_affinity`` are the pod's own required
    anti-affinity terms, which keep other pods away once the pod is bound. ``pod_affinity`` and ``spread`` are the pod's required affinity
    terms and topology spread constraints. ``preferred_pods`` has (weight, term) of the preferred affinity to other pods, with a negative
    weight for anti-affinity, and ``preferred_spread`` the topology spread constraints that are preferences. ``unsupported`` says in words
    which requirements aren't supported: a pod with such requirements is refused.
    Ten fields are filled in when a placement is prepared. ``neighbours`` are the pods that count for the preferences about other pods.
    ``near`` has (label, values) of each label of the affinity: in these domains
    are bound pods that the affinity selects. ``spread_bound`` has for each spread constraint (value of the label, number) of the bound pods
    that count.
    ``volumes`` is the node affinity of each bound claim: one term of every entry must match. ``forbidden_domains`` are the topology domains
    that bound pods keep this pod out of, and ``avoided_domains`` those that the pod's own anti-affinity keeps it out of.
    ``required_domains`` are the domains of bound members that the pod must share. All kinds of domains are matched like ``volumes``.
    ``attaches`` counts the volumes that the pod attaches, for each driver with a limit. ``storage`` are further rules about nodes that come
    from claims of volumes and resources, each with the reason for a refusal, and matched like an entry of ``volumes``. ``unbound`` are the
    claims for which a volume is chosen together with the node.
    """

    requests: Requests
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    resource_claims: tuple[tuple[str, str], ...] = ()
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    forbidden_domains: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    avoided_domains: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    required_domains: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    pod_affinity: tuple[PodTerm, ...] = ()
    near: tuple[tuple[str, tuple[str, ...]], ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    spread_bound: tuple[tuple[tuple[str, int], ...], ...] = ()
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    preferred_pods: tuple[tuple[int, PodTerm], ...] = ()
    preferred_spread: tuple[SpreadConstraint, ...] = ()
    neighbours: Neighbours | None = None
    gpu_share: int = 0
    images: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    unstated: Requests = ()
    share: Share | None = None
    device_container: int = 0
    gpus: GpuRequest | None = None
    disks: tuple[Volume, ...] = ()
    attaches: tuple[Attaches, ...] = ()
    storage: tuple[tuple[Kind, tuple[NodeSelectorTerm, ...]], ...] = ()
    unbound: tuple[UnboundClaim, ...] = ()

    def amount(self, resource: str) -> int:
        """Return the requested amount of ``resource``; 0 if none is requested."""
        return next((amount for name, amount in self.requests if name == resource), 0)

    @property
    def whole_gpus(self) -> int:
        """The number of whole GPUs that the pod requests; 0 if it requests a part of a GPU."""
        return 0 if self.share else self.amount(GPU)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The GPU resources that a release of the pod may free; empty without GPUs.

        These are whole GPUs and parts of GPUs, since one device can serve either.
        """
        return (GPU, SHARES) if self.share or self.gpu_share or self.amount(GPU) else ()

    @property
    def rules(self) -> int:
        """The number of rules about nodes. Each of these rules is checked on every node."""
        entries = (*self.volumes, *(terms for _, terms in self.storage), *self.forbidden_domains, *self.avoided_domains)
        of_others = chain.from_iterable((*entries, *self.required_domains))
        terms = chain(self.affinity or (), (term for _, term in self.preferred), of_others)
        of_gpus = self.gpus.rules if self.gpus else 0
        of_pods = len(self.preferred_pods) + len(self.preferred_spread)
        return (
            of_gpus + of_pods + len(self.node_selector) + len(self.images) + sum(len(term.expressions) + len(term.fields) for term in terms)
        )

    @property
    def asks_for_devices(self) -> bool:
        """Return whether the pod requests an extended resource, such as a GPU, or a part of a GPU."""
        return self.gpu_share > 0 or any("/" in name for name, _ in self.requests)

    @property
    def demand(self) -> "SchedulingSpec":
        """The pod as a task of the cluster's workload: its requests and the nodes that it may use, without ports, volumes and domains."""
        model = GpuRequest(model=self.gpus.model) if self.gpus and self.gpus.model else None
        where = self.node_selector, self.affinity, self.tolerations
        return SchedulingSpec(self.requests, *where, gpu_share=self.gpu_share, share=self.share, gpus=model)


def readable_spec_from(raw: RawObject, *, is_foreign: bool = False) -> tuple[SchedulingSpec, list[MalformedError]]:
    """Return the readable scheduling part of a raw Pod, and the errors in its unreadable parts, which count as empty.

    A pod is foreign if another scheduler places it. Of a foreign pod only what concerns other pods is read: the pod's own preferences about
    nodes, its topology spread and unsupported requirements aren't. Requests count even if all other parts are malformed: otherwise a tenant
    could hide what a pod takes.
    """
    parts = _Parts()
    spec = parts.read(_EMPTY, mapping, raw, "spec")
    affinity = parts.read(_EMPTY, mapping, spec, "affinity", "spec.")
    anti_affinity, problem = parts.read(_NO_TERMS, anti_affinity_terms, affinity, raw)
    requests = _requests(raw, parts)
    shared = parts.read(None, share_request_of, raw, requests) or largest_share_of(requests)
    found = SchedulingSpec(
        requests=without_part_resources(requests) if shared.share else requests,
        unstated=() if parts.problems else parts.read((), unstated_requests, raw, requests),
        node_selector=parts.read((), _node_selector, spec),
        affinity=parts.read(None, _node_affinity, affinity),
        tolerations=parts.read((), _tolerations, spec),
        host_ports=parts.read((), _host_ports, spec),
        claims=parts.read((), _claims, raw, spec),
        resource_claims=() if is_foreign else parts.read((), _resource_claims, raw, spec),
        disks=parts.read((), _disks, spec),
        anti_affinity=anti_affinity,
        pod_affinity=parts.read((), affinity_terms, affinity, raw),
        spread=() if is_foreign else parts.read((), spread_constraints, spec, raw),
        preferred=() if is_foreign else parts.read((), _preferred, affinity),
        preferred_pods=parts.read((), preferred_pod_terms, affinity, raw),
        preferred_spread=() if is_foreign else parts.read((), spread_constraints, spec, raw, "ScheduleAnyway"),
        images=() if is_foreign else parts.read((), _images, spec),
        unsupported=() if is_foreign else shared.unsupported,
        gpu_share=shared.share.nominal if shared.share else 0,
        share=shared.share,
        device_container=shared.container,
    )
    return found, [*parts.problems, problem] if problem else parts.problems


class _Parts:
    """Reads the parts of a pod one after another, and collects the errors in these parts."""

    def __init__(self) -> None:
        self.problems: list[MalformedError] = []

    def read(self, otherwise: _Part, part: Callable[..., _Part], *arguments: object) -> _Part:
        try:
            return part(*arguments)
        except MalformedError as error:
            self.problems.append(error.noted())
            return otherwise


def _requests(raw: RawObject, parts: _Parts) -> Requests:
    """Return the requests of a pod.

    If the pod has too many containers or resources, only the containers and resources within the limits count.
    """
    found = parts.read(None, pod_requests, raw, Tally(QUANTITIES))
    if found is None and isinstance(parts.problems[-1], OverLimitError):
        found = parts.read(None, pod_requests, _cut(raw))
    return _NOTHING if found is None else found


def _cut(raw: RawObject) -> RawObject:
    """Return the fields that requests are computed from, cut to the limits of containers and resources."""

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
    """Return the ``nodeSelectorTerms`` of a pod's or volume's required node affinity. Raises ``MalformedError``."""
    tally = _NodeTally()
    return tuple(
        NodeSelectorTerm(
            expressions=tuple(_requirements(term, "matchExpressions", where, tally)),
            fields=tuple(_requirements(term, "matchFields", where, tally)),
        )
        for where, term in items(parent, "nodeSelectorTerms", path, TERMS)
    )


class _NodeTally:
    """Counts the requirements and values of all terms of one node affinity, each against its limit."""

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
    """Return the images of the containers; an image without a tag gets ``:latest`` (imagelocality.go, normalizedImageName)."""
    found = set()
    for path, container in items(spec, "containers", "spec.", CONTAINERS):
        name = text(container, "image", path=path)
        if name:
            found.add(name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest")
    return tuple(sorted(found))


def _preferred(affinity: Mapping[str, object]) -> tuple[tuple[int, NodeSelectorTerm], ...]:
    """Return (weight, term) of each preferred node affinity, as nodeaffinity.NewPreferredSchedulingTerms does.

    A term without expressions matches every node and is left out.
    """
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
    """Return the host ports of containers and sidecars.

    With hostNetwork, a container port without a hostPort is also a host port. The API server sets the hostPort of live pods; here it is
    also set for manifests.
    """
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
    """Return the names of the pod's claims. The claim of a generic ephemeral volume is named after the pod.

    (component-helpers storage/ephemeral)
    """
    found = set()
    for path, volume in items(spec, "volumes", "spec.", VOLUMES):
        if claim := mapping(volume, "persistentVolumeClaim", path):
            found.add(text(claim, "claimName", path=f"{path}persistentVolumeClaim."))
        elif mapping(volume, "ephemeral", path):
            found.add(f"{text(mapping(raw, 'metadata'), 'name')}-{text(volume, 'name', path=path)}")
    return tuple(sorted(found))


def _resource_claims(raw: RawObject, spec: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the pod's resource claims: the name in the spec, and the ResourceClaim, whose name is in the status if a template makes it.

    A template that makes no claim for the pod has a status without a name (dynamic-resource-allocation/resourceclaim, ``Name``).
    """
    made: dict[str, str | None] = {}
    for path, status in items(mapping(raw, "status"), "resourceClaimStatuses", "status.", VOLUMES):
        name = text(status, "resourceClaimName", path=path)
        made[text(status, "name", path=path)] = name or None
    found = []
    for path, claim in items(spec, "resourceClaims", "spec.", VOLUMES):
        stated, named = text(claim, "name", path=path), text(claim, "resourceClaimName", path=path)
        if named or stated not in made:
            found.append((stated, named))
        elif (name_of_made := made[stated]) is not None:
            found.append((stated, name_of_made))
    return tuple(sorted(found))


def _disks(spec: Mapping[str, object]) -> tuple[Volume, ...]:
    found = (migrated_volume(volume, path) for path, volume in items(spec, "volumes", "spec.", VOLUMES))
    return tuple(sorted({volume for volume in found if volume is not None}))
