"""Makes and deletes ProvisioningRequests, and annotates the members that use them.

1. The PodTemplates are made, then the request that refers to them. Members are annotated only then: an autoscaler ignores annotated pods,
   so a pod that names a missing request would get no node.
2. Every step may be repeated. An object that exists already, since an answer was lost or the operator was killed, is taken as made.
3. A request's PodTemplates are deleted before the request. So the next leader finds the PodTemplates that are left by their request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from allaboard.binding.provisioning_objects import Shape, pod_template, provisioning_request
from allaboard.kube.client import ApiError, ApiServer, RawObject
from allaboard.kube.lists import listed
from allaboard.kube.paths import POD_TEMPLATES, PODS, PROVISIONING_REQUESTS, Resource
from allaboard.kube.request_limits import RequestLimits, in_slices
from allaboard.kube.retry import Answer, Patience, Sleep, Turn, retried
from allaboard.leadership.lease import Fence, Unfenced, fenced
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.model.provisioning import CONSUMES, MANAGED_BY, OURS, PROVISIONING_CLASS
from allaboard.model.provisioning_request import ProvisioningRequest, request_from

_REQUESTS, _REQUESTS_EACH = 32, 8
_PATIENCE = Patience(pauses=1.0, answers=5.0)  # the gang isn't bound meanwhile


@dataclass(frozen=True, slots=True)
class Requester:
    """Asks an autoscaler for the nodes of gangs.

    ``class_name`` is the provisioning class of the requests; empty if none are made. ``parameters`` are the parameters of that class.
    ``namespaces`` are the namespaces of gangs; empty for all.
    """

    server: ApiServer
    class_name: str
    parameters: Mapping[str, str]
    fence: Fence = field(default_factory=Unfenced)
    namespaces: Collection[str] = ()
    attempts: int = 4
    sleep: Sleep = asyncio.sleep
    _limits: RequestLimits = field(default_factory=lambda: RequestLimits(_REQUESTS, _REQUESTS_EACH))

    async def objects_for(self, gang: Gang, uid: str, shapes: Sequence[Shape]) -> list[RawObject]:
        """Return the objects that ask for the nodes of ``shapes``: the PodTemplates, and as the last the request. Raises ``ApiError``.

        ``uid`` is the UID of the gang's PodGroup.
        """
        counts: dict[str, int] = {}
        templates: dict[str, RawObject] = {}
        for shape in shapes:
            template = pod_template(gang.key, uid, await self._read(PODS, shape.sample.namespace, shape.sample.name))
            name = template["metadata"]["name"]
            templates[name], counts[name] = template, counts.get(name, 0) + shape.count
        request = provisioning_request(gang, uid, self.class_name, self.parameters, sorted(counts.items()))
        return [*templates.values(), request]

    async def make(self, objects: Sequence[RawObject]) -> ProvisioningRequest | None:
        """Make ``objects``, unless they exist; return the last of them, the request. Raises ``ApiError``, and ``LeaseLostError``."""
        raw: RawObject = {}
        for body in objects:
            raw = await self._made(POD_TEMPLATES if body["kind"] == POD_TEMPLATES.kind else PROVISIONING_REQUESTS, body)
        return request_from(raw)

    async def annotate(self, pods: Sequence[Pod], name: str) -> int:
        """Write to ``pods`` that they use the nodes of the request ``name``; if that is empty, that they use none.

        Return the number of pods for which that failed.
        """
        annotations = {CONSUMES: name or None, PROVISIONING_CLASS: self.class_name or None if name else None}
        answers = await in_slices(partial(self._annotate, annotations), pods)
        return sum(isinstance(answer, Exception) for answer in answers)

    async def delete(self, request: ProvisioningRequest) -> None:
        """Delete a request and its PodTemplates. Raises ``ApiError``, and ``LeaseLostError``."""
        for name in request.templates:
            await self._gone(POD_TEMPLATES, request.namespace, name, {})
        await self._gone(PROVISIONING_REQUESTS, request.namespace, request.name, {"uid": request.uid})

    async def left(self) -> list[ProvisioningRequest]:
        """Return all requests that this scheduler has made. Raises ``ApiError``."""
        found = await listed(self.server, PROVISIONING_REQUESTS.everywhere, {"labelSelector": f"{MANAGED_BY}={OURS}"})
        return [request for request in map(request_from, found) if request is not None]

    async def _made(self, resource: Resource, body: RawObject) -> RawObject:
        """Make one object, and return it; if it exists already, return that object."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        try:
            return await self._retried(partial(self._fenced, partial(self.server.post, resource.within(namespace), body)), namespace)
        except ApiError as error:
            if error.status != 409:
                raise
        raw = await self._read(resource, namespace, name)
        if (raw["metadata"].get("labels") or {}).get(MANAGED_BY) != OURS:
            raise ApiError(409, "AlreadyExists", f"there is a {resource.kind} {namespace}/{name} already, which isn't this gang's")
        if raw["metadata"].get("deletionTimestamp") is not None:
            raise ApiError(409, "AlreadyExists", f"{resource.kind} {namespace}/{name} is being deleted")
        return raw

    async def _annotate(self, annotations: Mapping[str, str | None], pod: Pod) -> None:
        # The status subresource accepts annotations, too. The permission to patch pods would include replacing their images.
        path = PODS.named(pod.namespace, pod.name, "status")
        body = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
        try:
            await self._retried(partial(self._fenced, partial(self.server.write, path, body)), pod.namespace)
        except ApiError as error:
            if error.status not in (404, 409):  # the pod is gone
                raise

    async def _gone(self, resource: Resource, namespace: str, name: str, preconditions: Mapping[str, str]) -> None:
        body: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if preconditions:
            body["preconditions"] = dict(preconditions)
        try:
            await self._retried(partial(self._fenced, partial(self.server.delete, resource.named(namespace, name), body)), namespace)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _read(self, resource: Resource, namespace: str, name: str) -> RawObject:
        return await self._retried(partial(self.server.get, resource.named(namespace, name)), namespace)

    async def _fenced(self, send: Callable[[], Awaitable[Answer]]) -> Answer:
        async with fenced(self.fence):
            return await send()

    async def _retried(self, call: Callable[[], Awaitable[Answer]], namespace: str) -> Answer:
        turn: Turn = partial(self._limits.turn, namespace)
        return await retried(call, self.attempts, self.sleep, patience=_PATIENCE, turn=turn)
