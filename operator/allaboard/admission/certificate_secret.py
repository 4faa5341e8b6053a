"""Keeps the certificate that all replicas serve, in a Secret of our namespace, and tells the API server whom to trust.

Whoever comes first makes the Secret. From then on the leader alone renews it, in this order: the API server is told to trust the next
authority beside the present one, then the Secret is written, then each replica takes it from there; so at no moment is a certificate served
that isn't trusted.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from allaboard.admission.certificates import Pair, made, read
from allaboard.kube.client import STRATEGIC_PATCH, ApiError
from allaboard.kube.paths import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, ApiPath, Resource
from allaboard.model.raw_fields import items, mapping, text

logger = logging.getLogger(__name__)

NAME = "allaboard-admission"
"""Of the Secret, the Service and both webhook configurations."""

HEARD_SECONDS = 5.0
"""How long after they were told all API servers have heard whom to trust."""

_TYPE = "kubernetes.io/tls"
_FILES = ("ca.crt", "tls.crt", "tls.key")


class Server(Protocol):
    """What of the API server a keeper needs."""

    async def request(
        self, method: str, path: ApiPath, *, body: Mapping[str, object] | None = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """One request and its JSON answer. Raises ``ApiError``."""


class CertificateSecret:
    """``look`` again and again. ``hosts`` are the names by which the API server reaches the webhooks, ``leads`` tells whether we lead."""

    def __init__(
        self,
        server: Server,
        *,
        namespace: str,
        hosts: Sequence[str],
        life: timedelta,
        leads: Callable[[], bool],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.is_settled = False
        """Whether the API server was seen to trust what is served; without its being told, by nobody so far, it calls in vain."""
        self._server = server
        self._secrets, self._secret = SECRETS.within(namespace), SECRETS.named(namespace, NAME)
        self._namespace, self._hosts, self._life = namespace, hosts, life
        self._leads, self._now, self._sleep = leads, now, sleep
        self._pair: Pair | None = None
        self._others: set[ApiPath] = set()

    async def look(self) -> Pair:
        """The pair to serve from now on. Raises ``ApiError`` when there is none, or it can't be found out."""
        self.is_settled = False
        stored, version = await self._stored()
        if stored is not None:
            self._pair = stored
        now = self._now()
        is_lost = stored is None or not stored.is_good(now)
        if is_lost and self._pair is None:
            # Nobody is served yet who could be cut off.
            return await self._trusted(await self._write(made(self._hosts, now, self._life), version))
        if (is_lost or (stored is not None and stored.is_due(now))) and self._leads():
            following = made(self._hosts, now, self._life, self._pair)
            await self._trust(following)
            await self._sleep(HEARD_SECONDS)
            return await self._trusted(await self._write(following, version))
        if self._pair is None:
            raise ApiError(0, "NoCertificate", f"the Secret {self._namespace}/{NAME} can't be used")
        return await self._trusted(self._pair)

    async def _stored(self) -> tuple[Pair | None, str]:
        """What the Secret holds, if it can be used, and its version; empty when there is no Secret. Raises ``ApiError``."""
        try:
            raw = await self._server.request("GET", self._secret)
        except ApiError as error:
            if error.status != 404:
                raise
            return None, ""
        if (kind := text(raw, "type") or "Opaque") != _TYPE:
            words = f"the Secret {self._namespace}/{NAME} is of type {kind}, which can't be changed: delete it, and it is made as {_TYPE}"
            raise ApiError(0, "NoCertificate", words)
        version = text(mapping(raw, "metadata"), "resourceVersion")
        try:
            authorities, certificate, key = (_decoded(mapping(raw, "data").get(name)) for name in _FILES)
            return read(authorities, certificate, key, self._hosts), version
        except ValueError as error:
            logger.warning("the Secret %s/%s can't be used: %s; the leader makes it anew", self._namespace, NAME, error)
            return None, version

    async def _write(self, pair: Pair, version: str) -> Pair:
        """Store ``pair`` unless somebody has stored another meanwhile; the one that is stored then. Raises ``ApiError``."""
        metadata = {"name": NAME, "namespace": self._namespace, "labels": {"app.kubernetes.io/managed-by": "allaboard"}}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": _TYPE,
            "metadata": {**metadata, "resourceVersion": version} if version else metadata,
            "data": {name: base64.b64encode(value.encode()).decode() for name, value in zip(_FILES, _values(pair), strict=True)},
        }
        try:
            if version:
                await self._server.request("PUT", self._secret, body=body)
            else:
                await self._server.request("POST", self._secrets, body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            stored, _ = await self._stored()
            if stored is None:
                raise
            pair = stored
        else:
            logger.info("the webhooks have a new certificate, good until %s", f"{pair.ends:%Y-%m-%d}")
        self._pair = pair
        return pair

    async def _trusted(self, pair: Pair) -> Pair:
        self.is_settled = await self._trust(pair)
        return pair

    async def _trust(self, pair: Pair) -> bool:
        """See to it that the API server trusts ``pair``, as far as it is ours to do; whether it does. Raises ``ApiError``."""
        bundle = base64.b64encode(pair.authorities.encode()).decode()
        return all([await self._trust_in(kind, bundle) for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)])

    async def _trust_in(self, kind: Resource, bundle: str) -> bool:
        path = kind.clusterwide(NAME)
        try:
            found = await self._server.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return True  # it isn't installed: nobody calls, and nobody need be told
        all_of_them = [webhook for _, webhook in items(found, "webhooks")]
        ours = [webhook for webhook in all_of_them if _called_in(webhook) in ("", self._namespace)]
        if all_of_them and not ours and path not in self._others:
            self._others.add(path)
            theirs = _called_in(all_of_them[0])
            logger.warning("%s calls the namespace %s, not %s: of several installations one has webhooks", path, theirs, self._namespace)
        webhooks = [text(webhook, "name") for webhook in ours if _bundle_of(webhook) != bundle]
        if not webhooks:
            return True
        if not self._leads():
            return False
        told = [{"name": name, "clientConfig": {"caBundle": bundle}} for name in webhooks]
        await self._server.request("PATCH", path, body={"webhooks": told}, content_type=STRATEGIC_PATCH)
        return True


def _called_in(webhook: Mapping[str, object]) -> str:
    """The namespace of the Service that is called; empty where it is an address."""
    return text(mapping(mapping(webhook, "clientConfig"), "service"), "namespace")


def _bundle_of(webhook: Mapping[str, object]) -> object:
    return mapping(webhook, "clientConfig").get("caBundle")


def _values(pair: Pair) -> tuple[str, str, str]:
    return pair.authorities, pair.certificate, pair.key


def _decoded(value: object) -> str:
    """What a field of a Secret holds. Raises ``ValueError``."""
    if not isinstance(value, str):
        raise ValueError("a file is missing")
    try:
        return base64.b64decode(value, validate=True).decode()
    except binascii.Error as error:
        raise ValueError("a file isn't base64") from error
