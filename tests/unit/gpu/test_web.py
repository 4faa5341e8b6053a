"""Tests that a server of metrics may answer late, at length, wrongly or not at all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gpu.errors import SourceError
from allaboard.gpu.expositions import samples
from allaboard.gpu.web import Credentials, Web, whole
from allaboard.settings.gpu_metrics import GpuMetricsOptions

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, trust: Any = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    try:
        yield f"{'https' if trust else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def answering(body: bytes, headers: dict[str, str] | None = None) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body, headers=headers)

    return handler


async def ask(url: str, credentials: Credentials | None = None, **options: Any) -> bytes:
    async with Web.open(GpuMetricsOptions(**options)) as asker, asker.get(url, None, credentials or Credentials(), 1000) as chunks:
        return await whole(chunks)


async def test_redirect_is_not_followed() -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async with serving(handler) as url:
        with pytest.raises(SourceError, match="a redirect"):
            await ask(f"{url}/here")
    assert asked == ["/here"]


async def test_answer_that_is_too_long_is_not_read() -> None:
    async with serving(answering(b"x" * 1001)) as url:
        with pytest.raises(SourceError, match="longer than 1000 bytes"):
            await ask(url)


async def test_compressed_answer_is_not_decompressed() -> None:
    async with serving(answering(b"x", {"Content-Encoding": "gzip"})) as url:
        with pytest.raises(SourceError, match="compressed"):
            await ask(url)


async def test_answer_without_end_is_given_up_at_the_time_limit() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b".")
            await asyncio.sleep(0.01)

    async with serving(handler) as url:
        with pytest.raises(SourceError, match="in time"):
            await ask(url, timeout_seconds=0.2)


async def test_credentials_are_read_for_each_request_and_never_shown_in_errors(tmp_path: Path) -> None:
    sent: list[str | None] = []

    async def handler(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Authorization"))
        return web.Response(status=500, text=str(sent[-1]))

    token, name, word = tmp_path / "token", tmp_path / "name", tmp_path / "word"
    credentials = Credentials(token_file=str(token))
    async with serving(handler) as url:
        for secret in ("s3cret-1", "s3cret-2"):
            token.write_text(f"{secret}\n")
            with pytest.raises(SourceError) as caught:
                await ask(url, credentials)
            assert "s3cret" not in str(caught.value)
        name.write_text("me")
        word.write_text("s3cret-3")
        with pytest.raises(SourceError):
            await ask(url, Credentials(username_file=str(name), password_file=str(word)))
        token.write_text("two\nlines")
        with pytest.raises(SourceError, match="more than one line") as caught:
            await ask(url, credentials)
    assert sent == ["Bearer s3cret-1", "Bearer s3cret-2", "Basic bWU6czNjcmV0LTM="]


async def test_server_certificate_is_trusted_only_if_the_settings_name_its_ca_or_skip_verification(tmp_path: Path) -> None:
    import ssl

    authority = trustme.CA()
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(trust)
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    (tmp_path / "broken.pem").write_text("no certificate")
    async with serving(answering(b"fine"), trust) as url:
        with pytest.raises(SourceError, match="can't be reached"):
            await ask(url)
        assert await ask(url, ca_file=str(ca_file)) == b"fine"
        assert await ask(url, insecure_skip_verify=True) == b"fine"
        for unusable in ("broken.pem", "missing.pem"):
            with pytest.raises(SourceError, match=unusable):
                await ask(url, ca_file=str(tmp_path / unusable))


LINES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=40).map(lambda text: f"DCGM_FI_DEV_GPU_TEMP{{{text}}} 1".encode(errors="replace")),
    st.text(max_size=40).map(lambda text: f'DCGM_FI_DEV_GPU_TEMP{{gpu="0"}} {text}'.encode(errors="replace")),
)


@given(st.lists(LINES, max_size=8), st.integers(1, 64))
async def test_malformed_line_of_a_page_affects_no_other_line(lines: list[bytes], size: int) -> None:
    page = b"\n".join([*(line.replace(b"\n", b"") for line in lines), b'DCGM_FI_DEV_GPU_TEMP{gpu="right"} 42', b""])

    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(page), size):
            yield page[begin : begin + size]

    found = await samples(chunks(), {"DCGM_FI_DEV_GPU_TEMP"}, {})
    assert (b'"gpu":"right"', b"0", b"42") in found["DCGM_FI_DEV_GPU_TEMP"]


async def test_line_without_end_is_skipped() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'DCGM_FI_DEV_GPU_TEMP{gpu="'
        for _ in range(100):
            yield b"x" * 1000
        yield b'"} 1\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} 2\n'

    found = await samples(chunks(), {"DCGM_FI_DEV_GPU_TEMP"}, {})
    assert [value for _, _, value in found["DCGM_FI_DEV_GPU_TEMP"]] == [b"2"]
