"""Tests how large a request to the webhooks may be, and how long it may take."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import orjson
import pytest
from aiohttp.test_utils import TestServer

from allaboard.admission import server as servers
from allaboard.admission.review import Rules
from allaboard.admission.server import PATH, application

MEBIBYTE = 2**20
LIMIT = 4 * MEBIBYTE


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async with TestServer(application(Rules(("allaboard",)))) as server:
        yield server


async def status_line_for(server: TestServer, header: str, body: Iterable[bytes] = ()) -> bytes:
    """Return the status line of the answer to a request with this header and body. The connection stays open meanwhile."""
    assert server.port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: webhooks\r\n{header}\r\n\r\n".encode())
        writer.writelines(body)
        return await reader.readline()
    finally:
        writer.transport.abort()


def in_chunks(body: bytes) -> list[bytes]:
    """Return a chunked body, whose length is not sent in advance."""
    return [b"%x\r\n" % len(body), body, b"\r\n0\r\n\r\n"]


async def test_request_with_too_large_a_content_length_is_refused_before_its_body_is_sent(server: TestServer) -> None:
    assert b" 413 " in await status_line_for(server, f"Content-Length: {LIMIT + 1}")


async def test_request_body_without_a_content_length_is_read_up_to_the_limit(server: TestServer) -> None:
    assert b" 413 " in await status_line_for(server, "Transfer-Encoding: chunked", in_chunks(b" " * (LIMIT + 1)))


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_request_body_below_the_limit_is_read_completely(server: TestServer, is_chunked: bool) -> None:
    body = orjson.dumps({"request": {"uid": "1"}}).ljust(LIMIT - 1)
    if is_chunked:
        answer = await status_line_for(server, "Transfer-Encoding: chunked", in_chunks(body))
    else:
        answer = await status_line_for(server, f"Content-Length: {len(body)}", [body])
    assert b" 200 " in answer


@pytest.mark.parametrize(
    ("header", "body"), [("Content-Length: 10", [b"{"]), ("Transfer-Encoding: chunked", [b"1\r\n{\r\n"])], ids=["length", "chunked"]
)
async def test_request_body_that_never_ends_is_given_up_at_the_time_limit(
    server: TestServer, monkeypatch: pytest.MonkeyPatch, header: str, body: list[bytes]
) -> None:
    monkeypatch.setattr(servers, "_LONGEST_SECONDS", 0.01)
    assert b" 408 " in await status_line_for(server, header, body)
