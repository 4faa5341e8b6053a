"""A request goes to the object of the given name only, whatever the name is."""

import re
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import example, given
from hypothesis import strategies as st
from kubernetes.aio.client import Configuration
from yarl import URL

from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError, InvalidNameError
from allaboard.kube.paths import EVENTS, JOBS, LEASES, NODES, POD_GROUPS, PODS, ApiPath, Resource

HOSTILE = (
    "",
    ".",
    "..",
    "a/b",
    "../../victim/jobs/train",
    "..%2f..%2fvictim",
    "%2e%2e",
    "a%00",
    "a\x00",
    "a\n",
    "a b",
    "a?watch=1",
    "a#b",
    "a;b",
    "A",
    "-a",
    "a-",
    "a..b",
    ".a",
    "ä",
    "a" * 254,
    "\ud800",
    "١",
)
NAMESPACED = (PODS, JOBS, EVENTS, LEASES, POD_GROUPS)

letters = st.sampled_from("ab0-./%.?#\\\n A")
valid = st.from_regex(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", fullmatch=True)
names = st.one_of(st.text(), st.text(letters, max_size=12), st.sampled_from(HOSTILE), valid)


def sent(path: ApiPath, host: str = "https://api.example:6443") -> URL:
    return ApiServer(Configuration(host=host))._url(path)


@given(st.sampled_from(NAMESPACED), names, names, st.sampled_from(["", "status", "binding"]))
@example(JOBS, "evil", "../../victim/jobs/train", "")
@example(JOBS, "evil", "../../../../../../api/v1/pods", "")
@example(PODS, "..", "a", "")
def test_path_consists_of_the_given_names_unless_a_name_is_invalid(resource: Resource, namespace: str, name: str, subresource: str) -> None:
    try:
        path = resource.named(namespace, name, subresource)
    except InvalidNameError as error:
        assert not error.is_transient  # whether this name is valid isn't tested here
        return
    group = ["apis", *resource.api_version.split("/")] if "/" in resource.api_version else ["api", "v1"]
    segments = [*group, "namespaces", namespace, resource.plural, name, *([subresource] if subresource else [])]
    assert [unquote(segment) for segment in path.split("/")] == ["", *segments]
    # The URL library doesn't change the path.
    assert URL(f"https://api.example{path}").raw_path == path
    assert sent(path).raw_path == path
    assert sent(path, "https://rancher.example/k8s/clusters/c-1").raw_path == f"/k8s/clusters/c-1{path}"
    assert sent(path).extend_query({"labelSelector": "a=../.."}).raw_path == path


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="can't be the name of a Job"):
        JOBS.named("default", name)
    with pytest.raises(InvalidNameError, match="can't be the name of a Namespace"):
        PODS.within(name)
    with pytest.raises(InvalidNameError):
        PODS.named(name, "a")


def test_namespace_has_no_dots_and_at_most_63_characters() -> None:
    assert PODS.within("a" * 63) == f"/api/v1/namespaces/{'a' * 63}/pods"
    for name in ("a.b", "a" * 64):
        with pytest.raises(InvalidNameError):
            PODS.within(name)


def test_paths_are_those_of_the_kubernetes_api() -> None:
    assert NODES.everywhere == "/api/v1/nodes"
    assert JOBS.everywhere == "/apis/batch/v1/jobs"
    assert POD_GROUPS.within("team") == "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups"
    assert PODS.named("team", "a.b-0", "binding") == "/api/v1/namespaces/team/pods/a.b-0/binding"


def test_path_that_the_url_library_would_change_is_not_sent() -> None:
    class Forged(ApiPath):
        __slots__ = ()

    forged = Forged("/api/v1/pods#/x")
    forged.resource, forged.name = PODS, "#"
    with pytest.raises(InvalidNameError):
        sent(forged)


POD: dict[str, Any] = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "team", "uid": "1"}}


class Answering:
    """An API server that gives ``answer`` to each request."""

    def __init__(self) -> None:
        self.answer: Any = POD
        self.paths: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.raw_path)
        return self.answer if isinstance(self.answer, web.StreamResponse) else web.json_response(self.answer)


@pytest.fixture
async def answering() -> Any:
    answering = Answering()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answering.handle)
    async with TestServer(application) as server:
        client = ApiServer(Configuration(host=f"http://127.0.0.1:{server.port}"))
        yield answering, client
        await client.close()


def changed(where: str, value: Any) -> dict[str, Any]:
    return {**POD, "metadata": {**POD["metadata"], where: value}} if where in POD["metadata"] else {**POD, where: value}


@pytest.mark.parametrize(
    "answer",
    [
        changed("namespace", "victim"),
        changed("namespace", None),
        changed("name", "b"),
        changed("kind", "PodList"),
        changed("kind", "Status"),
        changed("apiVersion", "v2"),
        changed("metadata", "none"),
        {},
    ],
)
async def test_answer_about_another_object_is_an_error_that_is_not_retried(answer: Any, answering: Any) -> None:
    server, client = answering
    assert await client.get(PODS.named("team", "a")) == POD
    server.answer = answer
    for request in (client.get(PODS.named("team", "a")), client.patch(PODS.named("team", "a", "status"), {})):
        with pytest.raises(ApiError, match="the answer") as caught:
            await request
        assert not caught.value.is_transient


async def test_answer_with_another_uid_than_the_request_is_refused(answering: Any) -> None:
    _, client = answering
    assert await client.patch(PODS.named("team", "a"), {"metadata": {"uid": "1"}}) == POD
    with pytest.raises(ApiError, match="the answer has the uid '1'"):
        await client.patch(PODS.named("team", "a"), {"metadata": {"uid": "2"}})


async def test_answer_to_a_creation_must_have_the_name_that_was_sent(answering: Any) -> None:
    _, client = answering
    assert await client.post(PODS.within("team"), {"metadata": {"name": "a"}}) == POD
    with pytest.raises(ApiError, match="the answer has the name 'a'"):
        await client.post(PODS.within("team"), {"metadata": {"name": "b"}})


async def test_list_of_another_kind_or_namespace_is_refused(answering: Any) -> None:
    server, client = answering
    server.answer = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [POD]}
    for path in (PODS.within("team"), PODS.everywhere):
        assert len((await client.get(path))["items"]) == 1
    for path in (PODS.within("victim"), JOBS.within("team")):
        with pytest.raises(ApiError, match="the answer"):
            await client.get(path)


async def test_redirect_to_another_object_is_not_followed(answering: Any) -> None:
    server, client = answering
    server.answer = web.Response(status=302, headers={"Location": "/api/v1/namespaces/victim/pods/a"})
    with pytest.raises(ApiError) as caught:
        await client.get(PODS.named("team", "a"))
    assert caught.value.status == 302
    assert server.paths == ["/api/v1/namespaces/team/pods/a"]


async def test_server_receives_the_path_and_query_unchanged(answering: Any) -> None:
    server, client = answering
    await client.get(PODS.named("team", "a"), {"limit": "1", "labelSelector": "a=../../b"})
    assert re.fullmatch(r"/api/v1/namespaces/team/pods/a\?limit=1&labelSelector=a[^#]*", server.paths[0])
