"""Reads what an operator shows from its API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import ValidationError

from allaboard.model.errors import shown
from allaboard.sight.values import Decisions, Domains, Gang, Gangs, Nodes, Problem, Queue, Snapshot, Status, Value

_Value = TypeVar("_Value", bound=Value)

_SECONDS = 15.0
_MOST_BYTES = 256 << 20  # of an answer; the snapshot of ten thousand gangs has a tenth of it
_PIECE = 1 << 16


class UnreadableError(Exception):
    """An API that can't be reached, refuses the request, or answers something else. ``status`` is 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class RemoteBoard:
    """The board of the operator whose API is at ``url``. Its methods raise ``UnreadableError``."""

    url: str
    session: aiohttp.ClientSession

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, token: str = "") -> AsyncIterator["RemoteBoard"]:
        """Yield the board of the API at ``url``, such as http://127.0.0.1:8082. Without a ``token``, none is sent."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=_SECONDS)) as session:
            yield cls(url.rstrip("/"), session)

    async def status(self) -> Status:
        """Return the state of the replica."""
        return await self._get("status", Status)

    async def queue(self) -> Queue:
        """Return the gangs that wait."""
        return await self._get("queue", Queue)

    async def gangs(self) -> Gangs:
        """Return all gangs."""
        return await self._get("gangs", Gangs)

    async def gang(self, namespace: str, name: str) -> Gang | None:
        """Return a gang; None if there is none."""
        try:
            return await self._get(f"gangs/{quote(namespace, safe='')}/{quote(name, safe='')}", Gang)
        except UnreadableError as error:
            if error.status == 404:
                return None
            raise

    async def nodes(self) -> Nodes:
        """Return all nodes."""
        return await self._get("nodes", Nodes)

    async def domains(self, label: str = "") -> Domains:
        """Return the groups of nodes by a label; without one, by the label of racks."""
        return await self._get(f"domains?label={quote(label, safe='')}", Domains)

    async def decisions(self) -> Decisions:
        """Return the last decisions."""
        return await self._get("decisions", Decisions)

    async def snapshot(self) -> Snapshot:
        """Return all gangs, nodes and decisions."""
        return await self._get("snapshot", Snapshot)

    async def _get(self, path: str, model: type[_Value]) -> _Value:
        url = f"{self.url}/api/v1/{path}"
        try:
            # A redirect isn't followed: it may lead to another host, and no operator redirects.
            async with self.session.get(url, allow_redirects=False) as response:
                refuse_redirect(url, response)
                status, payload = response.status, await _read(url, response)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnreadableError(0, f"{url} can't be read: {error or type(error).__name__}") from error
        try:
            if status == 200:
                return model.model_validate_json(payload)
            raise UnreadableError(status, Problem.model_validate_json(payload).message)
        except ValidationError as error:
            raise UnreadableError(status, f"{url}: the answer isn't that of Allaboard's API of this version (status {status})") from error


def refuse_redirect(url: str, response: aiohttp.ClientResponse) -> None:
    """Raise ``UnreadableError`` for an answer that names another address."""
    if 300 <= response.status < 400:
        place = shown(response.headers.get("Location", ""))
        raise UnreadableError(response.status, f"{url} redirects to {place}, which isn't followed; name the address that answers by --api")


async def _read(url: str, response: aiohttp.ClientResponse) -> bytes:
    """Return the whole answer. Raises ``UnreadableError`` if it is too large."""
    payload = bytearray()
    async for piece in response.content.iter_chunked(_PIECE):
        payload += piece
        if len(payload) > _MOST_BYTES:
            raise UnreadableError(response.status, f"{url}: the answer is larger than {_MOST_BYTES >> 20} MiB")
    return bytes(payload)
