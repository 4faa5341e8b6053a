"""Malformed paths are answered as by a real API server, which resolves neither dots nor empty segments."""

import aiohttp
import pytest
from yarl import URL

from tests.cluster import Cluster

from .conftest import pod

NOT_FOUND = "the server could not find the requested resource"


@pytest.fixture
async def raw(cluster: Cluster) -> str:
    cluster.create(pod("a"))
    return cluster.url


async def sent(url: str, path: str, method: str = "GET", **options: object) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.request(method, URL(f"{url}{path}", encoded=True), **options) as response:  # type: ignore[arg-type]
        return response.status, await response.text()


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/pods/a/",
        "/api/v1/namespaces/default/pods/%61",
        "/api/v1/namespaces/default%2Fpods/a",
        "/api%2Fv1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/pods/a%2Fstatus",
    ],
)
async def test_paths_are_percent_decoded_and_trailing_slashes_are_ignored(path: str, raw: str) -> None:
    status, text = await sent(raw, path)
    assert status == 200
    assert '"kind":"Pod"' in text.replace(" ", "")


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default/pods//", "/api/v1/namespaces//pods"])
async def test_a_path_with_an_empty_object_name_or_namespace_lists_the_collection(path: str, raw: str) -> None:
    status, text = await sent(raw, path)
    assert status == 200
    assert '"kind":"PodList"' in text.replace(" ", "")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/v1/namespaces/other/pods/../../default/pods/a", NOT_FOUND),
        ("/api/v1/namespaces/other/pods/%2e%2e/%2e%2e/default/pods/a", NOT_FOUND),
        ("/api/v1/namespaces/other/pods/..%2F..%2Fdefault%2Fpods%2Fa", NOT_FOUND),
        ("/apis/batch/v1/namespaces/other/jobs/..%2f..%2fdefault%2fjobs%2ftrain", NOT_FOUND),
        ("/api/v1/namespaces/default//pods/a", NOT_FOUND),
        ("/api/v1//namespaces/default/pods/a", NOT_FOUND),
        ("/api/v1/namespaces/default/pods/./a", NOT_FOUND),
        ("/api/v1/../v1/namespaces/default/pods/a", NOT_FOUND),
        ("/api/v1/namespaces/default/pods/a/status/more", NOT_FOUND),
        ("//api/v1/namespaces/default/pods/a", "404 page not found"),
        ("/apis/../api/v1/pods", "404 page not found"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_dots_and_empty_segments_in_a_path_are_not_resolved(path: str, message: str, method: str, raw: str) -> None:
    status, text = await sent(raw, path, method, data=b"{}", headers={"Content-Type": "application/merge-patch+json"})
    assert status == 404
    assert message in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("..", "may not be '..'"),
        (".", "may not be '.'"),
        ("%2e%2e", "may not be '..'"),
        ("..%2f", "may not be '..'"),
        ("a%25", "may not contain '%'"),
    ],
)
async def test_a_name_that_no_object_can_have_is_refused(name: str, message: str, raw: str) -> None:
    status, text = await sent(raw, f"/api/v1/namespaces/default/pods/{name}")
    assert status == 400
    assert message in text


async def test_a_path_of_an_object_with_an_empty_namespace_is_refused(raw: str) -> None:
    status, text = await sent(raw, "/api/v1/namespaces//pods/a")
    assert status == 400
    assert "Namespace parameter required." in text


@pytest.mark.parametrize("name", ["a%3Fwatch=1", "a%00", "a%20b", "a;b", "A"])
async def test_an_object_name_with_unusual_characters_is_not_found(name: str, raw: str) -> None:
    status, text = await sent(raw, f"/api/v1/namespaces/default/pods/{name}")
    assert status == 404
    assert "not found" in text
