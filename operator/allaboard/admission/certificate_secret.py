"""Keeps the webhooks' certificate in a Secret of our namespace, and the trusted certificate authority in ``caBundle``.

All replicas serve the certificate of the Secret. The first replica creates the Secret; afterwards only the leader renews it. A renewal
first adds the next authority to ``caBundle``, then writes the Secret, from which each replica reads. So every served certificate is trusted
at any time.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from allaboard.admission.certificates import Pair, make_pair, read_pair
from allaboard.kube.client import STRATEGIC_PATCH, ApiError
from allaboard.kube.paths import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, ApiPath, Resource
from allaboard.model.raw_fields import items, mapping, text

logger = logging.getLogger(__name__)

NAME = "allaboard-admission"
"""Name of the Secret, the Service and both webhook configurations."""

PROPAGATION_SECONDS = 5.0
"""Seconds after a write of ``caBundle`` until all API servers use it."""

_TYPE = "kubernetes.io/tls"
_FILES = ("ca.crt", "tls.crt", "tls.key")


class Server(Protocol):
    """The part of the API server's client that ``CertificateSecret`` needs."""

    async def request(
        self, method: str, path: ApiPath, *, body: Mapping[str, object] | None = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Send a request and return its JSON answer. Raises ``ApiError``."""


class CertificateSecret:
    """Keeps the certificate in a Secret, and makes the API server trust the certificate's authority. Call ``refresh`` periodically.

    ``hosts``: the names by which the API server reaches the webhooks. ``life``: how long a certificate is valid. ``leads`` returns whether
    this replica is the leader.
    """

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
        """True if, at the last ``refresh``, the API server trusted the served certificate. Until then its calls fail."""
        self._server = server
        self._secrets, self._secret = SECRETS.within(namespace), SECRETS.named(namespace, NAME)
        self._namespace, self._hosts, self._life = namespace, hosts, life
        self._leads, self._now, self._sleep = leads, now, sleep
        self._pair: Pair | None = None
        self._foreign: set[ApiPath] = set()

    async def refresh(self) -> Pair:
        """Return the certificate pair to serve, after creating or renewing it if that is due. Raises ``ApiError`` if there is none."""
        self.is_settled = False
        stored, version = await self._stored()
        if stored is not None:
            self._pair = stored
        now = self._now()
        is_lost = stored is None or not stored.is_good(now)
        if is_lost and self._pair is None:
            # No certificate is in use yet, so there is none that must stay trusted.
            return await self._trusted(await self._write(make_pair(self._hosts, now, self._life), version))
        if (is_lost or (stored is not None and stored.is_due(now))) and self._leads():
            following = make_pair(self._hosts, now, self._life, self._pair)
            await self._trust(following)
            await self._sleep(PROPAGATION_SECONDS)
            return await self._trusted(await self._write(following, version))
        if self._pair is None:
            raise ApiError(0, "NoCertificate", f"the Secret {self._namespace}/{NAME} can't be used")
        return await self._trusted(self._pair)

    async def _stored(self) -> tuple[Pair | None, str]:
        """Return the certificate pair in the Secret, and the Secret's resourceVersion. Raises ``ApiError``.

        The pair is None if it doesn't exist or can't be used. The resourceVersion is empty without a Secret.
        """
        try:
            raw = await self._server.request("GET", self._secret)
        except ApiError as error:
            if error.status != 404:
                raise
            return None, ""
        if (kind := text(raw, "type") or "Opaque") != _TYPE:
            problem = f"is of type {kind}, which can't be changed: delete it, so that it is created as {_TYPE}"
            raise ApiError(0, "NoCertificate", f"the Secret {self._namespace}/{NAME} {problem}")
        version = text(mapping(raw, "metadata"), "resourceVersion")
        try:
            authorities, certificate, key = (_decoded(mapping(raw, "data").get(name)) for name in _FILES)
            return read_pair(authorities, certificate, key, self._hosts), version
        except ValueError as error:
            logger.warning("the Secret %s/%s can't be used: %s; the leader replaces it", self._namespace, NAME, error)
            return None, version

    async def _write(self, pair: Pair, version: str) -> Pair:
        """Store ``pair`` unless another replica has stored a pair since ``version``. Return the stored pair. Raises ``ApiError``."""
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
            logger.info("the webhooks have a new certificate, valid until %s", f"{pair.ends:%Y-%m-%d}")
        self._pair = pair
        return pair

    async def _trusted(self, pair: Pair) -> Pair:
        """Return ``pair`` after making the API server trust it, and record whether it does."""
        self.is_settled = await self._trust(pair)
        return pair

    async def _trust(self, pair: Pair) -> bool:
        """Write the certificate authorities of ``pair`` to both webhook configurations if this replica leads.

        Return whether both have them. Raises ``ApiError``.
        """
        bundle = base64.b64encode(pair.authorities.encode()).decode()
        return all([await self._trust_in(kind, bundle) for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)])

    async def _trust_in(self, kind: Resource, bundle: str) -> bool:
        path = kind.clusterwide(NAME)
        try:
            found = await self._server.request("GET", path)
        except ApiError as error:
            if error.status != 404:
                raise
            return True  # not installed: the API server doesn't call the webhooks
        installed = [webhook for _, webhook in items(found, "webhooks")]
        ours = [webhook for webhook in installed if _called_in(webhook) in ("", self._namespace)]
        if installed and not ours and path not in self._foreign:
            self._foreign.add(path)
            other = _called_in(installed[0])
            logger.warning("%s calls namespace %s, not %s: only one installation in a cluster has webhooks", path, other, self._namespace)
        webhooks = [text(webhook, "name") for webhook in ours if _bundle_of(webhook) != bundle]
        if not webhooks:
            return True
        if not self._leads():
            return False
        changes = [{"name": name, "clientConfig": {"caBundle": bundle}} for name in webhooks]
        await self._server.request("PATCH", path, body={"webhooks": changes}, content_type=STRATEGIC_PATCH)
        return True


def _called_in(webhook: Mapping[str, object]) -> str:
    """Return the namespace of the Service that a webhook calls; empty if it calls a URL."""
    return text(mapping(mapping(webhook, "clientConfig"), "service"), "namespace")


def _bundle_of(webhook: Mapping[str, object]) -> object:
    return mapping(webhook, "clientConfig").get("caBundle")


def _values(pair: Pair) -> tuple[str, str, str]:
    return pair.authorities, pair.certificate, pair.key


def _decoded(value: object) -> str:
    """Return the decoded text of a field of a Secret. Raises ``ValueError``."""
    if not isinstance(value, str):
        raise ValueError("a file is missing")
    try:
        return base64.b64decode(value, validate=True).decode()
    except binascii.Error as error:
        raise ValueError("a file isn't base64") from error
