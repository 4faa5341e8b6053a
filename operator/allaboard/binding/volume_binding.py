"""Gives the claims of a gang their volumes, near the nodes of its members, before the members are bound.

These are the claims whose storage class waits for the pod's node (WaitForFirstConsumer). A free volume gets the claim as its owner; for
another claim the annotation ``volume.kubernetes.io/selected-node`` asks the provisioner for a volume. The controllers of Kubernetes do the
rest, as after kube-scheduler's choice (binder.go, ``bindAPIUpdate`` and ``checkBindings``, 1.37). If a volume doesn't come in time, the
annotations are removed from the claims that are still unbound, so that the gang may use other nodes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from allaboard.binding.outcomes import Assignment
from allaboard.cluster.storage_objects import SELECTED_NODE, Claim
from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import Need, UnboundClaimError
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import CLAIMS, VOLUMES, ApiPath
from allaboard.kube.request_limits import RequestLimits, in_slices
from allaboard.kube.retry import Patience, Sleep, Turn, retried
from allaboard.leadership.lease import Fence, LeaseLostError, Unfenced, fenced
from allaboard.model.constraints import FreeVolume, UnboundClaim
from allaboard.model.node import Node
from allaboard.placement.rules.claims import volumes_for

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 600.0
"""The time within which volumes must be bound: kube-scheduler's default ``bindTimeoutSeconds``."""

_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_LOOK_SECONDS = 1.0  # how often it is checked that the gang still wants its volumes, beside each change of a claim
_WRITES, _WRITES_EACH = 32, 8
_PATIENCE = Patience(pauses=1.0, answers=5.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """A claim, by ``namespace/name``, the node of its pod, and the volume that it gets; None if one must be provisioned."""

    claim: str
    node_name: str
    volume: FreeVolume | None

    @property
    def namespace(self) -> str:
        """The namespace of the claim."""
        return self.claim.partition("/")[0]

    @property
    def name(self) -> str:
        """The name of the claim."""
        return self.claim.partition("/")[2]


@dataclass(frozen=True, slots=True)
class VolumeBinder:
    """Binds the volumes of gangs. Each write passes ``fence``, and names the version of the object on which it was decided."""

    server: ApiServer
    view: ClusterView
    fence: Fence = field(default_factory=Unfenced)
    timeout_seconds: float = TIMEOUT_SECONDS
    attempts: int = 4
    sleep: Sleep = asyncio.sleep
    _limits: RequestLimits = field(default_factory=lambda: RequestLimits(_WRITES, _WRITES_EACH))

    def are_missing(self, assignments: Iterable[Assignment]) -> bool:
        """Return whether a member has a claim without a volume."""
        claims, view = self.view.volumes.claims, self.view
        pods = (view.pod(assignment.pod.key) for assignment in assignments)
        found = (claims.get(f"{pod.namespace}/{name}") for pod in pods if pod is not None for name in pod.spec.claims)
        return any(claim is None or not claim.volume_name for claim in found)

    async def bind(self, assignments: Sequence[Assignment], is_wanted: Callable[[], bool]) -> str | None:
        """Bind the volumes of all claims of ``assignments``. Return None once all are bound; otherwise what went wrong.

        ``is_wanted`` returns whether the gang still waits for its volumes. Never raises for an answer of the API server.
        """
        try:
            choices = self.choices(assignments)
        except UnboundClaimError as error:
            return str(error)
        if choices is None:
            return "the volumes that were free have gone to other claims"
        if not choices:
            return None
        problem = None
        for choice, answer in zip(choices, await in_slices(self._write, choices), strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, ApiError | LeaseLostError):
                    raise answer
                problem = problem or f'persistentvolumeclaim "{choice.name}": {answer}'
        problem = problem or await self._bound(choices, is_wanted)
        if problem is not None:
            await in_slices(self._give_up, choices)
        return problem

    def choices(self, assignments: Iterable[Assignment]) -> list[Choice] | None:
        """Return the choice for each claim that has no volume yet; None if the free volumes aren't enough. Raises ``UnboundClaimError``."""
        needs: dict[str, tuple[Need, Node]] = {}
        for assignment in assignments:
            pod, node = self.view.pod(assignment.pod.key), self.view.node(assignment.node_name)
            if pod is None or node is None or not pod.spec.claims:
                continue
            for need in self.view.volumes.needs(pod):
                needs.setdefault(need.claim, (need, node))
        asked = list(needs.values())
        found = volumes_for([(need.unbound or UnboundClaim(provisioned=()), node) for need, node in asked])
        if found is None:
            return None
        return [Choice(need.claim, node.name, volume) for (need, node), volume in zip(asked, found, strict=True)]

    async def _write(self, choice: Choice) -> None:
        """Ask for the volume of a claim. Raises ``ApiError``, and ``LeaseLostError``."""
        claim = self.view.volumes.claims.get(choice.claim)
        if claim is None or claim.volume_name:
            return
        if choice.volume is None:
            if claim.selected_node != choice.node_name:
                await self._select(choice, claim, choice.node_name)
            return
        stored = self.view.volumes.volumes.get(choice.volume.name)
        if stored is None or stored.owner == (choice.claim, claim.uid):
            return
        owner = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": choice.namespace, "name": choice.name, "uid": claim.uid}
        metadata: dict[str, Any] = {"resourceVersion": stored.resource_version}
        if stored.owner is None:
            metadata["annotations"] = {_BY_CONTROLLER: "yes"}
        await self._patch(VOLUMES.clusterwide(choice.volume.name), {"metadata": metadata, "spec": {"claimRef": owner}}, choice)

    async def _bound(self, choices: Sequence[Choice], is_wanted: Callable[[], bool]) -> str | None:
        """Wait until all claims are bound. Return what went wrong, if they aren't in time."""
        changed = asyncio.Event()
        asked: set[str] = set()  # claims for which the cached state shows the choice
        waiting: Sequence[Choice] = choices
        with self.view.volumes.following(changed.set):
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    while True:
                        changed.clear()
                        waiting = [each for each in waiting if not self._is_bound(each)]
                        if not waiting:
                            return None
                        if problem := next(filter(None, (self._problem(each, asked) for each in waiting)), None):
                            return problem
                        if not is_wanted():
                            return "the gang has changed while its volumes were bound"
                        await _either(changed, _LOOK_SECONDS)
            except TimeoutError:
                names = ", ".join(sorted(each.name for each in waiting))
                return f"no volume after {self.timeout_seconds:g} s for persistentvolumeclaim {names}"

    def _is_bound(self, choice: Choice) -> bool:
        claim = self.view.volumes.claims.get(choice.claim)
        return claim is not None and bool(claim.volume_name) and self.view.volumes.volumes.get(claim.volume_name) is not None

    def _problem(self, choice: Choice, asked: set[str]) -> str:
        """Return why an unbound claim won't get its volume; empty if it still may.

        The claim is added to ``asked`` once the cached state shows that its volume was asked for.
        """
        claim = self.view.volumes.claims.get(choice.claim)
        if claim is None:
            return f'persistentvolumeclaim "{choice.name}" is gone'
        if choice.volume is None:
            is_asked = claim.selected_node == choice.node_name
        else:
            stored = self.view.volumes.volumes.get(choice.volume.name)
            if stored is None:
                return f'persistentvolume "{choice.volume.name}" of persistentvolumeclaim "{choice.name}" is gone'
            is_asked = stored.owner == (choice.claim, claim.uid)
        if is_asked:
            asked.add(choice.claim)
        elif choice.claim in asked and not claim.volume_name:
            # A provisioner that fails removes the annotation, so that another node is chosen.
            return f'no volume could be provisioned near {choice.node_name} for persistentvolumeclaim "{choice.name}"'
        return ""

    async def _give_up(self, choice: Choice) -> None:
        """Let a claim that is still unbound get its volume near another node. Errors are left: the claim then keeps its node."""
        claim = self.view.volumes.claims.get(choice.claim)
        if claim is None or claim.volume_name or choice.volume is not None or claim.selected_node != choice.node_name:
            return
        try:
            await self._select(choice, claim, None)
        except (ApiError, LeaseLostError) as error:
            logger.info("persistentvolumeclaim %s keeps its selected node: %s", choice.claim, error)

    async def _select(self, choice: Choice, claim: Claim, node_name: str | None) -> None:
        """Ask the provisioner for the volume of a claim near a node; with None stop asking."""
        metadata = {"uid": claim.uid, "resourceVersion": claim.resource_version, "annotations": {SELECTED_NODE: node_name}}
        await self._patch(CLAIMS.named(choice.namespace, choice.name), {"metadata": metadata}, choice)

    async def _patch(self, path: ApiPath, body: Mapping[str, Any], choice: Choice) -> None:
        async def send() -> None:
            async with fenced(self.fence):
                await self.server.write(path, body)

        turn: Turn = partial(self._limits.turn, choice.namespace)
        await retried(send, self.attempts, self.sleep, patience=_PATIENCE, turn=turn)


async def _either(changed: asyncio.Event, seconds: float) -> None:
    """Wait until ``changed`` is set, at most ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return
