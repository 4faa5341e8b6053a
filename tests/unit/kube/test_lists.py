"""A list is read completely, even if its pages are too large or expire."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.aio.client import Configuration

from allaboard.kube import client as client_module
from allaboard.kube import lists
from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError, TooLargeError
from allaboard.kube.lists import pages
from allaboard.kube.paths import PODS


def a_pod(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team", **more}}


def a_list(items: list[Any] | None, version: str = "7", continuation: str = "") -> dict[str, Any]:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version, "continue": continuation}, "items": items}


class Server:
    """A server with one collection, in pages or as one answer. The page that begins at ``expires_at`` has expired when requested."""

    def __init__(self, names: list[str], *, expires_at: int = -1, chunk: int = 64) -> None:
        self.pods = [a_pod(name) for name in names]
        self.expires_at, self.chunk = expires_at, chunk
        self.queries: list[dict[str, str]] = []
        self.version = "7"

    async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        self.queries.append(dict(query))
        start = int(query.get("continue", 0))
        if start == self.expires_at:
            self.version = "9"
            raise ApiError(410, "Expired", "The provided continue parameter is too old")
        end = start + int(query["limit"])
        return a_list(self.pods[start:end], self.version, str(end) if end < len(self.pods) else "")

    @asynccontextmanager
    async def download(self, path: str, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        self.queries.append(dict(query))
        yield chunked(json.dumps(a_list(self.pods, self.version)).encode(), self.chunk)


async def chunked(answer: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(answer), size):
        yield answer[start : start + size]


async def names_in(server: Any, **options: Any) -> tuple[list[str], str]:
    """Return the names and the version that a reader has at the end, if it starts over with each first page."""
    found: list[str] = []
    version = ""
    async for page in pages(cast(ApiServer, server), PODS.everywhere, **options):
        if page.begins:
            found, version = [], page.version
        found += [raw["metadata"]["name"] for raw in page.items]
    return found, version


ALL = [f"p{number}" for number in range(10)]


async def test_list_is_read_in_pages() -> None:
    server = Server(ALL)
    assert await names_in(server, page_size=4, query={"labelSelector": "a=b"}) == (ALL, "7")
    assert server.queries == [
        {"labelSelector": "a=b", "limit": "4"},
        {"labelSelector": "a=b", "limit": "4", "continue": "4"},
        {"labelSelector": "a=b", "limit": "4", "continue": "8"},
    ]


async def test_list_whose_pages_expire_is_read_again_in_one_answer() -> None:
    server = Server(ALL, expires_at=4)
    assert await names_in(server, page_size=4, query={"labelSelector": "a=b"}) == (ALL, "9")
    assert server.queries[2:] == [{"labelSelector": "a=b"}]


async def test_object_deleted_before_the_list_starts_over_is_not_in_the_list() -> None:
    server = Server(ALL, expires_at=4)

    class Deleting(Server):
        @asynccontextmanager
        async def download(self, *arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
            self.pods = self.pods[2:]
            async with super().download(*arguments) as chunks:
                yield chunks

    server = Deleting(ALL, expires_at=4)
    assert (await names_in(server, page_size=4))[0] == ALL[2:]


async def test_expired_first_page_is_an_error() -> None:
    with pytest.raises(ApiError) as caught:
        await names_in(Server(ALL, expires_at=0))
    assert caught.value.status == 410


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(values, max_size=5), st.integers(1, 40), st.booleans())
def test_objects_of_an_answer_do_not_depend_on_the_size_of_its_chunks(specs: list[Any], size: int, is_ascii: bool) -> None:
    items = [{**a_pod("a"), "spec": spec, "items": [{"}]": '"items":[{'}]} for spec in specs]
    answer = json.dumps(a_list(items), ensure_ascii=is_ascii).encode(errors="surrogatepass" if is_ascii else "replace")

    async def read() -> list[Any]:
        return [page async for page in lists._pieces(chunked(answer, size), PODS.everywhere)]

    read_pages = asyncio.run(read())
    assert [item for page in read_pages for item in page.items] == json.loads(answer)["items"]
    assert [page.begins for page in read_pages] == [True] + [False] * (len(read_pages) - 1)
    assert {page.version for page in read_pages} == {"7"}


async def test_items_of_an_empty_collection_may_be_null() -> None:
    answer = json.dumps(a_list(None)).encode()
    assert [page.items async for page in lists._pieces(chunked(answer, 9), PODS.everywhere)] == [[]]


@pytest.mark.parametrize("kept", [0, 5, 90, 150])
async def test_answer_that_breaks_off_is_an_error(kept: int) -> None:
    answer = json.dumps(a_list([a_pod("a"), a_pod("b")])).encode()[:kept]
    with pytest.raises(ApiError, match="broke off"):
        [page async for page in lists._pieces(chunked(answer, 16), PODS.everywhere)]


async def test_streamed_list_of_another_kind_or_namespace_is_refused() -> None:
    answer = json.dumps(a_list([a_pod("a")])).encode()
    for path in (PODS.within("other"),):
        with pytest.raises(ApiError, match="another namespace"):
            [page async for page in lists._pieces(chunked(answer, 16), path)]
    with pytest.raises(ApiError, match="of the kind"):
        [page async for page in lists._pieces(chunked(answer.replace(b"PodList", b"JobList"), 16), PODS.everywhere)]


class Large:
    """An API server whose pods have annotations of the given sizes, and which records the limit of each list request."""

    def __init__(self, sizes: list[int]) -> None:
        self.pods = [a_pod(f"p{number}", annotations={"a": "x" * size}) for number, size in enumerate(sizes)]
        self.limits: list[int] = []

    async def handle(self, request: web.Request) -> web.Response:
        if not request.path.endswith("/pods"):
            return web.json_response({**self.pods[0], "kind": "Pod", "apiVersion": "v1"})
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        self.limits.append(limit)
        end = start + limit
        return web.json_response(a_list(self.pods[start:end], continuation=str(end) if end < len(self.pods) else ""))


@asynccontextmanager
async def connected(large: Large) -> AsyncIterator[ApiServer]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", large.handle)
    async with TestServer(application) as server:
        api = ApiServer(Configuration(host=f"http://127.0.0.1:{server.port}"))
        yield api
        await api.close()


async def test_too_large_pages_are_requested_with_fewer_objects_and_grow_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE_BYTES", 4000)
    large = Large([10] * 16 + [3500, 3500] + [10] * 30)
    async with connected(large) as server:
        assert len((await names_in(server, page_size=16))[0]) == 48
    assert large.limits == [16, 16, 4, 1, 2, 4, 8, 16, 16]


async def test_answer_larger_than_any_object_is_not_read_and_not_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "OBJECT_BYTES", 4000)
    async with connected(Large([5000])) as server:
        for work in (server.get(PODS.named("team", "p0")), names_in(server, page_size=1)):
            with pytest.raises(TooLargeError, match="the answer is larger than") as caught:
                await work  # type: ignore[misc]
            assert not caught.value.is_transient


async def test_watch_ends_at_a_line_longer_than_any_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "OBJECT_BYTES", 100)

    async def lines(answer: bytes) -> list[bytes]:
        return [line async for line in client_module._lines(chunked(answer, 30), PODS.everywhere)]

    assert await lines(b"a" * 90 + b"\n\n" + b"b" * 90 + b"\n") == [b"a" * 90, b"b" * 90]
    with pytest.raises(TooLargeError):
        await lines(b"a" * 200)


async def test_streamed_list_ends_at_an_object_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "OBJECT_BYTES", 500)
    answer = json.dumps(a_list([a_pod("a"), a_pod("b", annotations={"a": "x" * 2000})])).encode()
    with pytest.raises(TooLargeError):
        [page async for page in lists._pieces(chunked(answer, 16), PODS.everywhere)]
