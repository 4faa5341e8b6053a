"""Decides what the sender of a request may read, by the Host header or by asking the API server about a bearer token.

Only users that may forward a port of the operator's pod, or are logged in on its host, reach the loopback address. They may read all. A web
page of another host could make the browser of its visitor send requests there, too, under a name that the owner of the page controls (DNS
rebinding). So the Host header must be a name of the loopback address.
"""

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError
from allaboard.kube.paths import NODES, POD_GROUPS, Resource
from allaboard.kube.rate_limit import RateLimit
from allaboard.sight.refusals import RefusedError as RefusedError
from allaboard.sight.turns import Turns

_TOKEN_REVIEWS = Resource("authentication.k8s.io/v1", "TokenReview", "tokenreviews")
_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews")

_KEPT_SECONDS = 30.0  # For so long an answer of the API server counts. A right that is withdrawn ends at most so much later.
_KEPT_REFUSAL_SECONDS = 300.0  # For so long a namespace counts as refused. Most callers may read few of many namespaces.
_MOST_CALLERS = 256
_MOST_REFUSED = 256  # Tokens that the API server doesn't know.
_MOST_UNKNOWN = 32  # Requests with unknown tokens that wait for the API server at once.
_AT_ONCE = 16  # Reviews that are in flight for one request.
_LONGEST_TOKEN = 16_384

_LOOPBACK_HOST = re.compile(r"(127\.0\.0\.1|\[::1\]|localhost)(:[0-9]*)?")  # the addresses on which no token is needed


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
        if not _LOOPBACK_HOST.fullmatch(headers.get("Host", "")):
            raise RefusedError(403, "the request is for another host; send it to 127.0.0.1 or localhost")
        return EVERYTHING


@dataclass(slots=True)
class _Answer:
    """An answer of the API server, which counts until ``until``. Requests that need the same answer wait for the same ``review``."""

    allowed: bool = False
    until: float = 0.0
    review: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class _Caller:
    """The answers of the API server about a token that the API server knows. ``user`` is the sender, as of the last TokenReview."""

    user: Mapping[str, object]
    until: float
    answers: dict[tuple[Resource, str], _Answer] = field(default_factory=dict)
    """By resource and namespace, whether the caller may list the resource; the namespace is empty for all namespaces."""


@dataclass(slots=True)
class ByToken:
    """Access by a bearer token, about which the API server is asked: TokenReview, then SubjectAccessReview.

    A caller who may list PodGroups in all namespaces sees all gangs. Another caller sees those of the namespaces of which that caller may
    list PodGroups. A caller who may list nodes sees nodes.

    Any client can send tokens. So reviews of tokens that were never valid have a rate limit of their own, ``of_unknown``, and few requests
    wait for that. Reviews about callers whose tokens were valid have the rate limit ``of_known``.
    """

    server: ApiServer
    clock: Callable[[], float] = time.monotonic
    of_unknown: RateLimit = field(default_factory=RateLimit)
    of_known: RateLimit = field(default_factory=RateLimit)
    _callers: OrderedDict[bytes, _Caller] = field(default_factory=OrderedDict)
    """The callers by the hash of their tokens; the caller that has sent nothing for longest is the first."""
    _refused: OrderedDict[bytes, float] = field(default_factory=OrderedDict)
    """By the hash of a token that the API server doesn't know, until when that counts. They are apart, so that they displace no caller."""
    _unknown: Turns = field(
        default_factory=lambda: Turns(_MOST_UNKNOWN, 0, f"{_MOST_UNKNOWN} requests with unknown tokens wait for the API server already")
    )
    _reviews: WeakValueDictionary[bytes, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """The TokenReviews that are in flight, by the hash of the token. Requests with the same token wait for the same review."""

    async def rights(self, headers: Mapping[str, str], namespaces: Sequence[str]) -> Rights:
        """Return the rights of a caller. Raises ``RefusedError``."""
        try:
            caller = await self._caller(_token_in(headers))
            nodes, everywhere = await self._may(caller, NODES), await self._may(caller, POD_GROUPS)
            if everywhere:
                return Rights(None, nodes)
            at_once = asyncio.Semaphore(_AT_ONCE)
            allowed = await asyncio.gather(*(self._may(caller, POD_GROUPS, namespace, at_once) for namespace in namespaces))
        except ApiError as error:
            raise RefusedError(503, f"the API server can't be asked what you may read: {error}") from error
        return Rights(frozenset(name for name, is_allowed in zip(namespaces, allowed, strict=True) if is_allowed), nodes)

    async def _caller(self, token: str) -> _Caller:
        """Return the caller with a token. Raises ``ApiError``, and ``RefusedError`` for a token that the API server doesn't know."""
        key = hashlib.sha256(token.encode()).digest()
        caller = self._callers.get(key)
        if caller is None or caller.until < self.clock():
            is_refused = self._refused.get(key, 0.0) > self.clock()
            async with nullcontext() if caller is not None or is_refused else self._unknown.take():
                caller = await self._reviewed(key, token)
        if key in self._callers:
            self._callers.move_to_end(key)
        return caller

    async def _reviewed(self, key: bytes, token: str) -> _Caller:
        """Return the caller with a token, by a review unless another request has made one meanwhile. Raises like ``_caller``."""
        review = self._reviews.setdefault(key, asyncio.Lock())
        async with review:
            caller, now = self._callers.get(key), self.clock()
            if caller is not None and caller.until >= now:
                return caller
            if self._refused.get(key, 0.0) <= now:
                limit = self.of_unknown if caller is None else self.of_known
                status = await self._review(limit, _TOKEN_REVIEWS, {"token": token})
                until = self.clock() + _KEPT_SECONDS
                user = status.get("user")
                if status.get("authenticated") is True and isinstance(user, dict):
                    return self._keep(key, user, until)
                self._callers.pop(key, None)
                self._refused.pop(key, None)
                self._refused[key] = until
                if len(self._refused) > _MOST_REFUSED:
                    self._refused.popitem(last=False)
        raise RefusedError(401, "the API server doesn't know this bearer token, or the token has expired")

    def _keep(self, key: bytes, user: Mapping[str, object], until: float) -> _Caller:
        """Keep the caller with a valid token until ``until``, with the answers about the same user that still count."""
        known, now = self._callers.get(key), self.clock()
        if known is not None and known.user == user:
            known.until = until
            known.answers = {asked: each for asked, each in known.answers.items() if each.until >= now or each.review.locked()}
            return known
        caller = self._callers[key] = _Caller(user, until)
        self._refused.pop(key, None)
        if len(self._callers) > _MOST_CALLERS:
            self._callers.popitem(last=False)
        return caller

    async def _may(self, caller: _Caller, resource: Resource, namespace: str = "", at_once: asyncio.Semaphore | None = None) -> bool:
        """Return whether a caller may list a resource, in a namespace or everywhere. Raises ``ApiError``."""
        answer = caller.answers.setdefault((resource, namespace), _Answer())
        if answer.until > self.clock():
            return answer.allowed
        group = resource.api_version.rpartition("/")[0]
        asked = {"verb": "list", "group": group, "resource": resource.plural, "namespace": namespace}
        user = caller.user
        about = {"user": user.get("username"), "uid": user.get("uid"), "groups": user.get("groups"), "extra": user.get("extra")}
        async with at_once or nullcontext(), answer.review:
            if answer.until <= self.clock():
                status = await self._review(self.of_known, _ACCESS_REVIEWS, {**about, "resourceAttributes": asked})
                answer.allowed = status.get("allowed") is True and status.get("denied") is not True
                answer.until = self.clock() + (_KEPT_REFUSAL_SECONDS if namespace and not answer.allowed else _KEPT_SECONDS)
        return answer.allowed

    async def _review(self, limit: RateLimit, resource: Resource, spec: Mapping[str, object]) -> Mapping[str, object]:
        """Return the status of a review, once ``limit`` lets it pass. Raises ``ApiError``."""
        await limit.wait()
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
