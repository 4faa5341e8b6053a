"""Decides what the sender of a request may read, by the Host header or by asking the API server about a bearer token.

Only users that may forward a port of the operator's pod, or are logged in on its host, reach the loopback address. They may read all. A web
page of another host could make the browser of its visitor send requests there, too, under a name that the owner of the page controls (DNS
rebinding). So the Host header must be a name of the loopback address.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError
from allaboard.kube.paths import NODES, POD_GROUPS, Resource

_TOKEN_REVIEWS = Resource("authentication.k8s.io/v1", "TokenReview", "tokenreviews")
_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews")

_KEPT_SECONDS = 30.0  # for so long an answer of the API server counts; a right that is withdrawn ends at most so much later
_MOST_CALLERS = 256
_AT_ONCE = 16  # reviews that are in flight for one caller
_LONGEST_TOKEN = 16_384

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""The addresses on which no token is needed."""


class RefusedError(Exception):
    """A request that isn't answered. ``status`` is the HTTP status of the refusal."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a caller: the ``namespaces`` whose gangs the caller may read, None for all; and whether it may read nodes."""

    namespaces: frozenset[str] | None
    nodes: bool

    def allows(self, namespace: str) -> bool:
        """Return whether the caller may read the gangs of a namespace."""
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING = Rights(None, nodes=True)


class Access(Protocol):
    """Decides what the sender of a request may read."""

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        """Return the rights of the sender of a request with ``headers``, for ``namespaces``. Raises ``RefusedError``."""


class ByHost:
    """Access on the loopback address: a request may read all if its Host header names that address."""

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        """Return all rights. Raises ``RefusedError`` for a request to another host's name."""
        host = headers.get("Host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name not in LOOPBACK:
            raise RefusedError(403, "the request is for another host; send it to 127.0.0.1 or localhost")
        return EVERYTHING


@dataclass(slots=True)
class _Caller:
    """The answers of the API server about one token, until ``until``. ``user`` is None if the API server doesn't know the token."""

    user: Mapping[str, object] | None
    until: float
    answers: dict[tuple[Resource, str], bool] = field(default_factory=dict)
    """By resource and namespace, whether the caller may list the resource; the namespace is empty for all namespaces."""


@dataclass(slots=True)
class ByToken:
    """Access by a bearer token, about which the API server is asked: TokenReview, then SubjectAccessReview.

    A caller who may list PodGroups in all namespaces sees all gangs. Another caller sees those of the namespaces of which that caller may
    list PodGroups. A caller who may list nodes sees nodes. Any client can send tokens, so ``server`` should have a rate limit of its own.
    """

    server: ApiServer
    clock: Callable[[], float] = time.monotonic
    _callers: OrderedDict[bytes, _Caller] = field(default_factory=OrderedDict)
    """The callers by the hash of their tokens; the caller that has been kept for longest is the first."""

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        """Return the rights of a caller. Raises ``RefusedError``."""
        try:
            caller = await self._caller(_token_in(headers))
            if caller.user is None:
                raise RefusedError(401, "the API server doesn't know this bearer token, or the token has expired")
            nodes, everywhere = await self._may(caller, NODES), await self._may(caller, POD_GROUPS)
            if everywhere:
                return Rights(None, nodes)
            at_once = asyncio.Semaphore(_AT_ONCE)
            allowed = await asyncio.gather(*(self._may(caller, POD_GROUPS, namespace, at_once) for namespace in namespaces))
        except ApiError as error:
            raise RefusedError(503, f"the API server can't be asked what you may read: {error}") from error
        return Rights(frozenset(name for name, is_allowed in zip(namespaces, allowed, strict=True) if is_allowed), nodes)

    async def _caller(self, token: str) -> _Caller:
        """Return the caller with a token. Raises ``ApiError``."""
        key = hashlib.sha256(token.encode()).digest()
        caller = self._callers.get(key)
        if caller is None or caller.until < self.clock():
            self._callers.pop(key, None)
            status = await self._review(_TOKEN_REVIEWS, {"token": token})
            user = status.get("user") if status.get("authenticated") is True else None
            caller = self._callers[key] = _Caller(user if isinstance(user, dict) else None, self.clock() + _KEPT_SECONDS)
            if len(self._callers) > _MOST_CALLERS:
                self._callers.popitem(last=False)
        return caller

    async def _may(self, caller: _Caller, resource: Resource, namespace: str = "", at_once: asyncio.Semaphore | None = None) -> bool:
        """Return whether a caller may list a resource, in a namespace or everywhere. Raises ``ApiError``."""
        known = caller.answers.get((resource, namespace))
        if known is not None:
            return known
        group = resource.api_version.rpartition("/")[0]
        asked = {"verb": "list", "group": group, "resource": resource.plural, "namespace": namespace}
        user = caller.user or {}
        about = {"user": user.get("username"), "uid": user.get("uid"), "groups": user.get("groups"), "extra": user.get("extra")}
        async with at_once or nullcontext():
            status = await self._review(_ACCESS_REVIEWS, {**about, "resourceAttributes": asked})
        found = caller.answers[resource, namespace] = status.get("allowed") is True and status.get("denied") is not True
        return found

    async def _review(self, resource: Resource, spec: Mapping[str, object]) -> Mapping[str, object]:
        """Return the status of a review. Raises ``ApiError``."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, "spec": spec}
        status = (await self.server.post(resource.everywhere, body)).get("status")
        return status if isinstance(status, dict) else {}


def _token_in(headers: Mapping[str, str]) -> str:
    """Return the bearer token of a request. Raises ``RefusedError``."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise RefusedError(401, "a bearer token is needed: Authorization: Bearer TOKEN, as kubectl create token makes it")
    if len(token) > _LONGEST_TOKEN or not token.isascii():
        raise RefusedError(401, "the bearer token isn't one that the API server makes")
    return token
