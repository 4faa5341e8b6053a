"""The connection to the API server: credentials from ``kubernetes.aio``, plain JSON in and out.

Requests are made on the client's HTTP session and not by the client's typed calls. The typed calls build pydantic models, which takes 20
times as long as handling a watch event. They also fail on the reply to a bind, which is a Status where a Binding is declared.
"""

import os
import socket
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration
from yarl import URL

from allaboard.kube.deep_json import loads
from allaboard.kube.errors import ApiError as ApiError
from allaboard.kube.errors import InvalidNameError, TooLargeError, WrongAnswerError
from allaboard.kube.paths import ApiPath
from allaboard.kube.rate_limit import RateLimit
from allaboard.model.errors import shown

RawObject = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PAGE_BYTES = 8 * 2**20
"""Size of the largest page of a list that is read into memory. A larger page is requested again with fewer objects."""

OBJECT_BYTES = 16 * 2**20
"""Upper bound of an object's size: etcd stores at most 2 MiB, and JSON makes that six times as large if every character is escaped."""

_CONNECTIONS = 256

_TCP_OPTIONS = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5000}
"""Limits after which a connection counts as dead.

In this order: seconds of silence before the first probe, seconds between probes, number of probes, and milliseconds that sent data may be
unacknowledged.
"""


class CredentialsError(Exception):
    """Neither a service account nor a kubeconfig can be used."""


_chosen = {"context": ""}


def choose_context(name: str) -> None:
    """Connect all later clients of this process by the context ``name`` of the kubeconfig, instead of its current context."""
    _chosen["context"] = name


def chosen_context() -> str:
    """Return the context that ``choose_context`` was called with; empty for the current context."""
    return _chosen["context"]


async def load_credentials(kubeconfig: str = "", place: str = "") -> Configuration:
    """Return the credentials for the API server. Raises ``CredentialsError``.

    They are read from the file ``kubeconfig``, if it is named. Otherwise they are those of the pod's service account. Outside of a pod they
    are read from the file that ``KUBECONFIG`` names, or from the kubeconfig in the home directory. ``place`` is where ``kubeconfig`` was
    named, for the error message; it is empty if that is obvious.
    """
    configuration = Configuration()
    try:
        if kubeconfig or _chosen["context"]:
            raise kube_config.ConfigException("a kubeconfig or a context is named")
        kube_config.load_incluster_config(client_configuration=configuration)
    except kube_config.ConfigException as in_cluster:
        path = kubeconfig or _kubeconfig()
        try:
            if not _is_there(path):
                raise CredentialsError("there is no such file")
            # The path is passed, since the client reads KUBECONFIG only once, at import.
            await kube_config.load_kube_config(
                config_file=path, context=_chosen["context"] or None, client_configuration=configuration, persist_config=False
            )
        except Exception as local:  # a malformed file or a credential plug-in may make the loader raise anything
            has_wrong_structure = isinstance(local, TypeError | AttributeError | KeyError)  # which the loader doesn't check
            problem = "it is no kubeconfig" if has_wrong_structure else " ".join(str(local).split())
            if kubeconfig:
                named = f", which {place} names," if place else ""
                raise CredentialsError(f"no cluster to connect to: kubeconfig {path}{named} can't be used ({problem})") from local
            raise CredentialsError(
                f"no cluster to connect to: not in a pod ({in_cluster}), and kubeconfig {path} can't be used ({problem}); "
                "set KUBECONFIG, or start `allaboard sandbox` and use the line it prints"
            ) from local
    configuration.proxy = configuration.proxy or _proxy_for(configuration.host)
    return configuration


def kubeconfig_in_use(kubeconfig: str = "") -> str:
    """Return the path and the context of the kubeconfig that ``load_credentials`` reads, for a message.

    Empty in a pod with a service account.
    """
    with suppress(kube_config.ConfigException):
        if kubeconfig or _chosen["context"]:
            raise kube_config.ConfigException
        kube_config.load_incluster_config(client_configuration=Configuration())
        return ""
    path, context = kubeconfig or _kubeconfig(), _chosen["context"]
    with suppress(Exception):  # a malformed file may make the loader raise anything
        context = context or kube_config.list_kube_config_contexts(config_file=path)[1]["name"]
    return f"kubeconfig {path}" + (f" (context {shown(context)})" if context else "")


def _kubeconfig() -> str:
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def _is_there(path: str) -> bool:
    return any(Path(each).expanduser().exists() for each in path.split(os.pathsep) if each)


def _proxy_for(url: str) -> str | None:
    """Return the proxy that the environment variables (``HTTPS_PROXY``, ``NO_PROXY``, …) name for ``url``; ``None`` without a proxy."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


class ApiServer:
    """A client of one API server. Use ``ApiServer.connect()``."""

    def __init__(
        self, configuration: Configuration, timeout_seconds: float = 15.0, *, kubeconfig: str = "", rate_limit: RateLimit | None = None
    ) -> None:
        configuration.connection_pool_maxsize = _CONNECTIONS
        # Callers decide about retries, since they know what the request means.
        configuration.retries = None
        # ``load_credentials`` has read the proxy from the environment; aiohttp would read it for each request, in threads.
        configuration.client_session_kwargs = {"trust_env": False}
        self.configuration = configuration
        self.kubeconfig = kubeconfig
        self._rate_limit = rate_limit or RateLimit()
        self._client = ApiClient(configuration)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, timeout_seconds: float = 15.0, *, kubeconfig: str = "", place: str = "", rate_limit: RateLimit | None = None
    ) -> AsyncIterator[Self]:
        """Yield a client with the credentials of ``load_credentials``, and close it after the block. Raises ``CredentialsError``."""
        server = cls(await load_credentials(kubeconfig, place), timeout_seconds, kubeconfig=kubeconfig, rate_limit=rate_limit)
        try:
            yield server
        finally:
            await server.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def get(self, path: ApiPath, query: Mapping[str, str] | None = None) -> RawObject:
        """Send a GET request. Raises ``ApiError``."""
        return await self.request("GET", path, query=query)

    async def post(self, path: ApiPath, body: Mapping[str, object], query: Mapping[str, str] | None = None) -> RawObject:
        """Send a POST request. Raises ``ApiError``."""
        return await self.request("POST", path, query=query, body=body)

    async def patch(self, path: ApiPath, body: Mapping[str, object], content_type: str = MERGE_PATCH) -> RawObject:
        """Send a PATCH request, by default a JSON merge patch. Raises ``ApiError``."""
        return await self.request("PATCH", path, body=body, content_type=content_type)

    async def write(self, path: ApiPath, body: Mapping[str, object], content_type: str = MERGE_PATCH) -> None:
        """Send a PATCH request and don't parse its answer, which may be large. Raises ``ApiError``."""
        await self.request("PATCH", path, body=body, content_type=content_type, is_read=False)

    async def delete(self, path: ApiPath, body: Mapping[str, object] | None = None) -> RawObject:
        """Send a DELETE request; ``body`` is DeleteOptions. Raises ``ApiError``."""
        return await self.request("DELETE", path, body=body)

    async def request(
        self,
        method: str,
        path: ApiPath,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        is_read: bool = True,
    ) -> RawObject:
        """Send one request, check that its JSON answer is about ``path``, and return the answer; empty unless ``is_read``.

        Raises ``ApiError``, also if the server can't be reached or the answer isn't JSON.
        """
        await self._rate_limit.wait()
        is_page = method == "GET" and not path.name and (query or {}).get("limit") != "1"
        try:
            async with self._session().request(
                method,
                self._url(path),
                params=query,
                data=None if body is None else orjson.dumps(body),
                headers=await self._headers(content_type),
                proxy=self.configuration.proxy,
                timeout=self._timeout,
                allow_redirects=False,
            ) as response:
                if not is_read and response.status < 300:
                    async for _ in response.content.iter_any():
                        pass  # a connection can be used again only after the answer was read
                    return {}
                payload = await _read(response, path, PAGE_BYTES if is_page else OBJECT_BYTES)
                if response.status >= 300:
                    raise api_error(response, payload)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"the API server can't be reached: {error or type(error).__name__}") from error
        return _checked(decoded(payload, path), method, path, body)

    @asynccontextmanager
    async def stream(self, path: ApiPath, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of a watch as they arrive. Raises ``ApiError``, also after ``silence_seconds`` without data."""
        async with self.download(path, query, silence_seconds) as chunks:
            yield _lines(chunks, path)

    @asynccontextmanager
    async def download(self, path: ApiPath, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the chunks of a GET's answer as they arrive. Raises ``ApiError``, also after ``silence_seconds`` without data."""
        await self._rate_limit.wait()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout.total, sock_read=silence_seconds)
        try:
            async with self._session().get(
                self._url(path),
                params=query,
                headers=await self._headers("application/json"),
                proxy=self.configuration.proxy,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                if response.status >= 300:
                    raise api_error(response, await _read(response, path, OBJECT_BYTES))
                yield response.content.iter_any()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"the answer broke off: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def websocket(self, path: ApiPath, query: Mapping[str, str], protocol: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Yield a WebSocket that the API server has opened to a subresource such as portforward. Raises ``ApiError`` if it doesn't."""
        await self._rate_limit.wait()
        headers = await self._headers("application/json")
        url = self._url(path).with_query(query)
        try:
            socket = await self._session().ws_connect(
                url, protocols=(protocol,), headers=headers, proxy=self.configuration.proxy, max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, "NotUpgraded", f"{path}: {error.message}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"the API server can't be reached: {error or type(error).__name__}") from error
        async with socket:
            yield socket

    def _session(self) -> aiohttp.ClientSession:
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest._create_connector = partial(
                aiohttp.TCPConnector, limit=_CONNECTIONS, ssl=rest.ssl_context, socket_factory=_socket_with_probes
            )
            rest.pool_manager = rest._create_pool_manager()
        session: aiohttp.ClientSession = rest.pool_manager
        return session

    def _url(self, path: ApiPath) -> URL:
        """Return the URL of a request with ``path`` unchanged: with dots resolved or characters decoded it could name another object."""
        url = URL(f"{self.configuration.host}{path}", encoded=True)
        if url.raw_path != f"{urlsplit(self.configuration.host).path}{path}":
            raise InvalidNameError(path.resource.kind, path.name)
        return url

    async def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "allaboard"}
        # auth_settings() also refreshes a token that is about to expire.
        try:
            settings = await self.configuration.auth_settings()
        except Exception as error:
            # A credential plug-in may raise anything, for an empty token file, a failed exec, or an identity provider that is down.
            raise ApiError(0, "Unauthenticated", f"no credentials for the API server: {error}") from error
        for setting in settings.values():
            if setting["value"]:
                headers[setting["key"]] = setting["value"]
        return headers


def _socket_with_probes(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that closes a dead connection within seconds, so that no request uses the connection again."""
    family, kind, protocol, *_ = address
    created = socket.socket(family, kind, protocol)
    created.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _TCP_OPTIONS.items():
        if hasattr(socket, option):  # some options are missing on development machines, none where the operator runs
            created.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return created


async def _read(response: aiohttp.ClientResponse, path: ApiPath, limit: int) -> bytes:
    """Return the body of an answer. Raises ``TooLargeError`` for a body of more than ``limit`` bytes, which closes the connection."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise TooLargeError(path, limit)
        chunks.append(chunk)
    return b"".join(chunks)


async def _lines(chunks: AsyncIterator[bytes], path: ApiPath) -> AsyncIterator[bytes]:
    """Yield the lines of an answer, which may be as large as an object, too large for ``readline``. Raises ``TooLargeError``."""
    pending: list[bytes] = []
    size = 0
    async for chunk in chunks:
        head, *rest = chunk.split(b"\n")
        pending.append(head)
        size += len(head)
        for part in rest:
            line = b"".join(pending)
            if line:
                yield line
            pending, size = [part], len(part)
        if size > OBJECT_BYTES:
            raise TooLargeError(path, OBJECT_BYTES)


def api_error(response: aiohttp.ClientResponse, payload: bytes) -> ApiError:
    """Return the error that an answer describes. An answer that isn't a JSON Status, such as a proxy's page, is quoted as the message."""
    retry_after = response.headers.get("Retry-After", "")
    seconds = float(retry_after) if retry_after.isdecimal() else None
    try:
        status = orjson.loads(payload)
        details = status.get("details") or {}
        asked = details.get("retryAfterSeconds")
        if seconds is None and isinstance(asked, int) and asked > 0:
            seconds = float(asked)
        return ApiError(response.status, status.get("reason") or response.reason or "", str(status["message"]), seconds, details)
    except (ValueError, TypeError, KeyError, AttributeError):
        quoted = payload[:200].decode(errors="replace").strip()
        return ApiError(response.status, response.reason or "", quoted or f"HTTP {response.status}", seconds)


def decoded(payload: bytes, path: ApiPath) -> RawObject:
    """Return the JSON object of an answer. Raises ``ApiError`` if the answer is anything else."""
    try:
        answer = loads(payload)
    except ValueError as error:
        raise ApiError(0, "Malformed", f"{path}: the answer is not JSON: {payload[:100]!r}") from error
    if not isinstance(answer, dict):
        raise ApiError(0, "Malformed", f"{path}: the answer is not an object: {payload[:100]!r}")
    return answer


def _checked(answer: RawObject, method: str, path: ApiPath, body: Mapping[str, object] | None = None) -> RawObject:
    """Return ``answer`` after checking that it is about the requested object or collection. Raises ``WrongAnswerError``."""
    if method == "GET" and not path.name:
        check_list(answer, path)
    elif method != "DELETE" and path.subresource in ("", "status"):
        # The answers to deletions, binds and evictions aren't checked: they are a Status, or an object that isn't used.
        _check_object(answer, path, _mapping(body or {}, "metadata"))
    return answer


def check_list(answer: RawObject, path: ApiPath) -> None:
    """Raise ``WrongAnswerError`` unless ``answer`` is a list of the collection that ``path`` names."""
    _check_kind(answer, path, f"{path.resource.kind}List")
    for item in answer.get("items") or ():
        if not isinstance(item, dict) or path.namespace not in ("", _mapping(item, "metadata").get("namespace")):
            raise WrongAnswerError(f"{path}: the answer has objects of another namespace")


def _check_object(answer: RawObject, path: ApiPath, sent: Mapping[str, object]) -> None:
    _check_kind(answer, path, path.resource.kind)
    metadata = _mapping(answer, "metadata")
    asked = {"namespace": path.namespace, "name": path.name or sent.get("name"), "uid": sent.get("uid")}
    for field, value in asked.items():
        if value and metadata.get(field) != value:
            raise WrongAnswerError(f"{path}: the answer has the {field} {shown(metadata.get(field))}")


def _check_kind(answer: RawObject, path: ApiPath, kind: str) -> None:
    found = answer.get("apiVersion"), answer.get("kind")
    if found != (path.resource.api_version, kind):
        raise WrongAnswerError(f"{path}: the answer is of the kind {shown(found)}")


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object under ``key``; empty if there is none."""
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}
