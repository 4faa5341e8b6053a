"""The connection to the API server: credentials from ``kubernetes.aio``, plain JSON in and out.

The typed calls of the client build pydantic models, which costs 20 times what a watch event is worth and fails on the reply to a
bind (a Status where a Binding is declared), so requests are made on the client's own HTTP session.
"""

import asyncio
import os
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

RawObject = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_CONNECTIONS = 256


class CredentialsError(Exception):
    """Neither a service account nor a kubeconfig could be used."""


@dataclass
class ApiError(Exception):
    """An answer of the API server that isn't a success, or no answer at all (``status`` 0)."""

    status: int
    reason: str
    message: str
    retry_after: float | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.message} ({self.status} {self.reason})" if self.status else self.message

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later, or may even have succeeded: no answer, an expired token, 429, a server error."""
        return self.status in (0, 401, 429) or self.status >= 500


async def load_credentials() -> Configuration:
    """In-cluster credentials, else the kubeconfig of ``KUBECONFIG`` or the home directory. Raises ``CredentialsError``."""
    configuration = Configuration()
    try:
        kube_config.load_incluster_config(client_configuration=configuration)
    except kube_config.ConfigException as in_cluster:
        path = os.environ.get("KUBECONFIG") or "~/.kube/config"
        try:
            if not _is_there(path):
                raise CredentialsError("there is no such file")
            # Read anew, since the client remembers the variable as it was when it was imported.
            await kube_config.load_kube_config(config_file=path, client_configuration=configuration, persist_config=False)
        except Exception as local:  # whatever a malformed file, or a credential plug-in, makes the loader raise
            is_misread = isinstance(local, TypeError | AttributeError | KeyError)  # the loader takes for granted what it finds
            problem = "it is no kubeconfig" if is_misread else " ".join(str(local).split())
            raise CredentialsError(
                f"no cluster to connect to: not in a pod ({in_cluster}), and kubeconfig {path} can't be used ({problem}); "
                "set KUBECONFIG, or start `allaboard sandbox` and use the line it prints"
            ) from local
    configuration.proxy = configuration.proxy or _proxy_for(configuration.host)
    return configuration


def _is_there(path: str) -> bool:
    return any(Path(each).expanduser().exists() for each in path.split(os.pathsep) if each)


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment (``HTTPS_PROXY``, ``NO_PROXY``, …) names for ``url``."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


class ApiServer:
    """Requests to one API server. Use ``ApiServer.connect()``."""

    def __init__(self, configuration: Configuration, timeout_seconds: float = 15.0) -> None:
        configuration.connection_pool_maxsize = _CONNECTIONS
        # Retrying is decided where the meaning of the request is known.
        configuration.retries = None
        # What the environment says of proxies is looked up once; aiohttp would do it for each request, in threads.
        configuration.client_session_kwargs = {"trust_env": False}
        self.configuration = configuration
        self._client = ApiClient(configuration)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    @classmethod
    @asynccontextmanager
    async def connect(cls, timeout_seconds: float = 15.0) -> AsyncIterator[Self]:
        """Connect with whatever credentials there are. Raises ``CredentialsError``."""
        server = cls(await load_credentials(), timeout_seconds)
        try:
            yield server
        finally:
            await server.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> RawObject:
        """GET. Raises ``ApiError``."""
        return await self.request("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, object], query: Mapping[str, str] | None = None) -> RawObject:
        """POST. Raises ``ApiError``."""
        return await self.request("POST", path, query=query, body=body)

    async def patch(self, path: str, body: Mapping[str, object], content_type: str = MERGE_PATCH) -> RawObject:
        """PATCH, a JSON merge patch unless said otherwise. Raises ``ApiError``."""
        return await self.request("PATCH", path, body=body, content_type=content_type)

    async def write(self, path: str, body: Mapping[str, object], content_type: str = MERGE_PATCH) -> None:
        """PATCH what may be large, when what has become of it is of no interest: the answer isn't looked at. Raises ``ApiError``."""
        await self.request("PATCH", path, body=body, content_type=content_type, is_read=False)

    async def delete(self, path: str, body: Mapping[str, object] | None = None) -> RawObject:
        """DELETE, ``body`` being DeleteOptions. Raises ``ApiError``."""
        return await self.request("DELETE", path, body=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        is_read: bool = True,
    ) -> RawObject:
        """One request and its JSON answer; that of one which isn't to be read is empty.

        Raises ``ApiError``, also when nobody answers or the answer isn't JSON.
        """
        try:
            async with self._session().request(
                method,
                self._url(path),
                params=query,
                data=None if body is None else orjson.dumps(body),
                headers=await self._headers(content_type),
                proxy=self.configuration.proxy,
                timeout=self._timeout,
            ) as response:
                if not is_read and response.status < 400:
                    async for _ in response.content.iter_any():
                        pass  # so that the connection can be used again
                    return {}
                payload = await response.read()
                if response.status >= 400:
                    raise _api_error(response, payload)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"the API server can't be reached: {error or type(error).__name__}") from error
        return _decoded(payload, path)

    @asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch: the lines of the answer as they come. ``silence_seconds`` without any data end it. Raises ``ApiError``."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout.total, sock_read=silence_seconds)
        try:
            async with self._session().get(
                self._url(path),
                params=query,
                headers=await self._headers("application/json"),
                proxy=self.configuration.proxy,
                timeout=timeout,
            ) as response:
                if response.status >= 400:
                    raise _api_error(response, await response.read())
                yield _lines(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"the watch broke off: {error or type(error).__name__}") from error

    def _session(self) -> aiohttp.ClientSession:
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        session: aiohttp.ClientSession = rest.pool_manager
        return session

    def _url(self, path: str) -> str:
        return f"{self.configuration.host}{path}"

    async def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "allaboard"}
        # auth_settings() also refreshes a token that is about to expire.
        try:
            settings = await self.configuration.auth_settings()
        except Exception as error:
            # Whatever a credential plug-in raises: an empty token file, a failed exec, an identity provider that is down.
            raise ApiError(0, "Unauthenticated", f"no credentials for the API server: {error}") from error
        for setting in settings.values():
            if setting["value"]:
                headers[setting["key"]] = setting["value"]
        return headers


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length: a watch event may be larger than the buffer that ``readline`` allows."""
    pending: list[bytes] = []
    async for chunk in response.content.iter_any():
        head, *rest = chunk.split(b"\n")
        pending.append(head)
        for part in rest:
            line = b"".join(pending)
            if line:
                yield line
            pending = [part]


def _api_error(response: aiohttp.ClientResponse, payload: bytes) -> ApiError:
    """The error an answer describes; whatever isn't a JSON Status (a proxy's page, an unknown path) is quoted."""
    retry_after = response.headers.get("Retry-After", "")
    seconds = float(retry_after) if retry_after.isdigit() else None
    try:
        status = orjson.loads(payload)
        details = status.get("details") or {}
        if seconds is None and details.get("retryAfterSeconds"):
            seconds = float(details["retryAfterSeconds"])
        return ApiError(response.status, status.get("reason") or response.reason or "", str(status["message"]), seconds, details)
    except (ValueError, TypeError, KeyError, AttributeError):
        quoted = payload[:200].decode(errors="replace").strip()
        return ApiError(response.status, response.reason or "", quoted or f"HTTP {response.status}", seconds)


def _decoded(payload: bytes, path: str) -> RawObject:
    try:
        decoded = orjson.loads(payload)
    except ValueError as error:
        raise ApiError(0, "Malformed", f"{path}: the answer is not JSON: {payload[:100]!r}") from error
    if not isinstance(decoded, dict):
        raise ApiError(0, "Malformed", f"{path}: the answer is not an object: {payload[:100]!r}")
    return decoded


async def pages(server: ApiServer, path: str, *, page_size: int = 500, query: Mapping[str, str] | None = None) -> AsyncIterator[RawObject]:
    """The pages of a list, in order. A continuation that has expired ends in ``ApiError`` 410: start over."""
    continuation = ""
    while True:
        page = await server.get(path, {**(query or {}), "limit": str(page_size), **({"continue": continuation} if continuation else {})})
        yield page
        continuation = str((page.get("metadata") or {}).get("continue") or "")
        if not continuation:
            return
        await asyncio.sleep(0)
