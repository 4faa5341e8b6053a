"""HTTP requests to Prometheus and exporters, limited in time and size.

Redirects are not followed, so that credentials go nowhere else. Answers are requested uncompressed: a few KiB that decompress to a GiB
would block the process during decompression.
"""

import os
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import aiohttp
from yarl import URL

from allaboard.gpu.errors import SourceError, TooLongError
from allaboard.settings.gpu_metrics import GpuMetricsOptions

_CONNECTIONS = 16
_LONGEST_SECRET = 64 * 2**10
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "allaboard"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files with the credentials for Prometheus. The files are read for each request, since tokens are renewed."""

    token_file: str = ""
    username_file: str = ""
    password_file: str = ""

    @classmethod
    def from_options(cls, options: GpuMetricsOptions) -> Self:
        """Return the credentials that the settings name."""
        return cls(options.token_file, options.username_file, options.password_file)

    def headers(self) -> Mapping[str, str]:
        """Return the headers for a request. Raises ``SourceError``, which names the file, if a file can't be used."""
        if self.token_file:
            return {"Authorization": f"Bearer {_secret(self.token_file)}"}
        if self.username_file:
            pair = f"{_secret(self.username_file)}:{_secret(self.password_file)}"
            return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
        return {}


NO_CREDENTIALS = Credentials()


class Web:
    """An HTTP client with the limits of the settings; created by ``Web.open()``."""

    def __init__(self, session: aiohttp.ClientSession, options: GpuMetricsOptions) -> None:
        self._session = session
        self._options = options
        self._trust: ssl.SSLContext | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, options: GpuMetricsOptions) -> AsyncIterator[Self]:
        """Yield a client with the time limit and the certificates of ``options``."""
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
        timeout = aiohttp.ClientTimeout(total=options.timeout_seconds)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
        async with session:
            yield cls(session, options)

    @asynccontextmanager
    async def get(
        self, url: str, query: Mapping[str, str] | None = None, credentials: Credentials = NO_CREDENTIALS, most_bytes: int = 2**20
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the body of an answer in chunks.

        Raises ``SourceError``, also for a status other than 200, and for more than ``most_bytes``.
        """
        target = URL(url, encoded=True)
        place = f"{target.scheme}://{target.authority}{target.raw_path}"
        try:
            headers = {**_HEADERS, **credentials.headers()}
            trust = self._trusted() if target.scheme == "https" else True
            async with self._session.get(target, params=query, headers=headers, ssl=trust, allow_redirects=False) as response:
                if response.status != 200:
                    raise StatusError(place, response.status)
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise SourceError(f"{place}: the answer is compressed, although that wasn't requested")
                yield _bounded(response.content.iter_any(), place, most_bytes)
        except TimeoutError as error:
            raise SourceError(f"{place}: no complete answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise SourceError(f"{place}: can't be reached: {_reason(error)}") from error

    def _trusted(self) -> ssl.SSLContext:
        """Return the TLS context with the trusted certificates.

        Raises ``SourceError`` if the certificates in the settings can't be read.
        """
        if self._trust is None:
            path = self._options.ca_file
            try:
                self._trust = ssl.create_default_context(cafile=path) if path else _trusted_by_the_system()
            except OSError as error:  # SSLError is one
                raise SourceError(f"{path}: can't be used as certificates: {error.strerror or 'the file contains none'}") from error
            if self._options.insecure_skip_verify:
                self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                self._trust.check_hostname, self._trust.verify_mode = False, ssl.CERT_NONE
        return self._trust


class StatusError(SourceError):
    """Raised for an answer with another status than 200, whose body is ignored."""

    def __init__(self, place: str, status: int) -> None:
        note = ", a redirect, which isn't followed" if 300 <= status < 400 else ""
        super().__init__(f"{place}: status {status}{note}")
        self.status = status


def _reason(error: Exception) -> str:
    """Return why a connection failed, without details of the HTTP library."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        refused = error.certificate_error
        return f"its certificate isn't trusted: {getattr(refused, 'verify_message', '') or str(refused)[:200]}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "the server doesn't speak TLS, or no common version of it"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no host of that name is known"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return f"{type(error).__name__}: {str(error)[:200]}"


async def whole(chunks: AsyncIterator[bytes]) -> bytes:
    """Return the chunks of a short body as one value."""
    return b"".join([chunk async for chunk in chunks])


async def _bounded(chunks: AsyncIterator[bytes], place: str, most_bytes: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most_bytes:
            raise TooLongError(f"{place}: the answer is longer than {most_bytes} bytes")
        yield chunk


@lru_cache(maxsize=1)
def _trusted_by_the_system() -> ssl.SSLContext:
    return ssl.create_default_context()  # cached: reading a hundred certificates takes 50 ms


def _secret(path: str) -> str:
    """Return the content of a file, without blanks and line ends before and after it. Raises ``SourceError``."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LONGEST_SECRET).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: can't be read: {getattr(error, 'strerror', None) or 'not a text'}") from error
    if not content.isprintable():
        raise SourceError(f"{path}: contains more than one line")
    return content
