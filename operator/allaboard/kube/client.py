"""The connection to the API server: credentials from ``kubernetes.aio``, plain JSON in and out.

The typed calls of the client build pydantic models, which costs 20 times what a watch event is worth and fails on the reply to a
bind (a Status where a Binding is declared), so requests are made on the client's own HTTP session.
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
from allaboard.kube.rate_limit import Pace
from allaboard.model.errors import shown

RawObject = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PAGE_BYTES = 8 * 2**20
"""The largest page of a list that is read into memory; a larger page is requested again with fewer objects."""

OBJECT_BYTES = 16 * 2**20
"""The size of the largest object: etcd takes 2 MiB at most, which JSON makes six times as large if every character is escaped."""

_CONNECTIONS = 256

_TCP_OPTIONS = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5000}
"""When a connection counts as dead.

Seconds of silence before the first probe, seconds between probes, number of probes; milliseconds that sent data may be unacknowledged.
"""


class CredentialsError(Exception):
    """Neither a service account nor a kubeconfig could be used."""


async def load_credentials(kubeconfig: str = "", place: str = "") -> Configuration:
    """Return the credentials of ``kubeconfig``, else those of the pod, else those of ``KUBECONFIG`` or of the home directory's kubeconfig.

    ``place`` is where ``kubeconfig`` is named, for the error message; empty if that is obvious. Raises ``CredentialsError``.
    """
    configuration = Configuration()
    try:
        if kubeconfig:
            raise kube_config.ConfigException("a kubeconfig is named")
        kube_config.load_incluster_config(client_configuration=configuration)
    except kube_config.ConfigException as in_cluster:
        path = kubeconfig or _kubeconfig()
        try:
            if not _is_there(path):
                raise CredentialsError("there is no such file")
            # The path is passed, since the client caches the variable's value at import.
            await kube_config.load_kube_config(config_file=path, client_configuration=configuration, persist_config=False)
        except Exception as local:  # a malformed file or a credential plug-in may make the loader raise anything
            is_misread = isinstance(local, TypeError | AttributeError | KeyError)  # the loader doesn't check the file's structure
            problem = "it is no kubeconfig" if is_misread else " ".join(str(local).split())
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
    """Return the kubeconfig that ``load_credentials`` reads and its context, in words; empty in a pod with a service account."""
    with suppress(kube_config.ConfigException):
        if kubeconfig:
            raise kube_config.ConfigException
        kube_config.load_incluster_config(client_configuration=Configuration())
        return ""
    path, context = kubeconfig or _kubeconfig(), ""
    with suppress(Exception):  # as above
        context = f" (context {shown(kube_config.list_kube_config_contexts(config_file=path)[1]['name'])})"
    return f"kubeconfig {path}{context}"


def _kubeconfig() -> str:
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def _is_there(path: str) -> bool:
    return any(Path(each).expanduser().exists() for each in path.split(os.pathsep) if each)


def _proxy_for(url: str) -> str | None:
    """Return the proxy that the environment (``HTTPS_PROXY``, ``NO_PROXY``, …) names for ``url``; ``None`` without one."""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


class ApiServer:
    """Requests to one API server. Use ``ApiServer.connect()``."""

    def __init__(
        self, configuration: Configuration, timeout_seconds: float = 15.0, *, kubeconfig: str = "", pace: Pace | None = None
    ) -> None:
        configuration.connection_pool_maxsize = _CONNECTIONS
        # Callers decide about retries, since they know what the request means.
        configuration.retries = None
        # The proxy is read from the environment once; aiohttp would read it for each request, in threads.
        configuration.client_session_kwargs = {"trust_env": False}
        self.configuration = configuration
        self.kubeconfig = kubeconfig
        self._pace = pace or Pace()
        self._client = ApiClient(configuration)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, timeout_seconds: float = 15.0, *, kubeconfig: str = "", place: str = "", pace: Pace | None = None
    ) -> AsyncIterator[Self]:
        """Connect with the credentials that ``load_credentials`` finds. Raises ``CredentialsError``."""
        server = cls(await load_credentials(kubeconfig, place), timeout_seconds, kubeconfig=kubeconfig, pace=pace)
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
        """Send a PATCH request without parsing its answer, which may be large. Raises ``ApiError``."""
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
        """Send one request and return its JSON answer, after checking that the answer is about ``path``; empty unless ``is_read``.

        Raises ``ApiError``, also if the server can't be reached or the answer isn't JSON.
        """
        await self._pace.wait()
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
                        pass  # so that the connection can be used again
                    return {}
                payload = await _read(response, path, PAGE_BYTES if is_page else OBJECT_BYTES)
                if response.status >= 300:
                    raise api_error(response, payload)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"the API server can't be reached: {error or type(error).__name__}") from error
        return _checked(decoded(payload, path), method, path, body)

    @asynccontextmanager
    async def stream(self, path: ApiPath, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of a watch as they come. ``silence_seconds`` without any data end the watch. Raises ``ApiError``."""
        async with self.download(path, query, silence_seconds) as chunks:
            yield _lines(chunks, path)

    @asynccontextmanager
    async def download(self, path: ApiPath, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the chunks of a GET's answer as they come. ``silence_seconds`` without any data end it. Raises ``ApiError``."""
        await self._pace.wait()
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

    def _session(self) -> aiohttp.ClientSession:
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest._create_connector = partial(
                aiohttp.TCPConnector, limit=_CONNECTIONS, ssl=rest.ssl_context, socket_factory=_socket_that_notices_death
            )
            rest.pool_manager = rest._create_pool_manager()
        session: aiohttp.ClientSession = rest.pool_manager
        return session

    def _url(self, path: ApiPath) -> URL:
        """Return the URL of a request, unchanged: resolving dots or decoding a character would request another object."""
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
            # A credential plug-in may raise anything: an empty token file, a failed exec, an identity provider that is down.
            raise ApiError(0, "Unauthenticated", f"no credentials for the API server: {error}") from error
        for setting in settings.values():
            if setting["value"]:
                headers[setting["key"]] = setting["value"]
        return headers


def _socket_that_notices_death(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket whose connection breaks within seconds of silence if its other end is gone, so that no request reuses it."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _TCP_OPTIONS.items():
        if hasattr(socket, option):  # some are missing on development machines, none where the operator runs
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


async def _read(response: aiohttp.ClientResponse, path: ApiPath, limit: int) -> bytes:
    """Return the body of an answer. Raises ``TooLargeError``, which closes the connection."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise TooLargeError(path, limit)
        chunks.append(chunk)
    return b"".join(chunks)


async def _lines(chunks: AsyncIterator[bytes], path: ApiPath) -> AsyncIterator[bytes]:
    """Yield lines of up to an object's size, which is more than ``readline`` can buffer. Raises ``TooLargeError``."""
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
    """Return the error that an answer describes; an answer that isn't a JSON Status (a proxy's page, an unknown path) is quoted."""
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
        # Deletions, binds and evictions are answered with a Status, or with an object that isn't used.
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
