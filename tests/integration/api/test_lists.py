"""Lists: selectors, pages, and revisions that can't be listed."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from tests.cluster import Cluster

from .conftest import PODS, answer, group, named, pod, revision_of


async def test_a_list_of_a_built_in_kind_is_sorted_and_its_items_state_no_kind(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    created = [cluster.create(pod(name)) for name in ("b", "a")]
    status, body = await answer(http, "GET", PODS)
    assert (status, body["kind"], body["apiVersion"]) == (200, "PodList", "v1")
    assert set(body["metadata"]) == {"resourceVersion"}
    assert int(revision_of(body)) >= int(revision_of(created[-1]))
    assert named(body["items"]) == ["a", "b"]
    assert not {"kind", "apiVersion"} & body["items"][0].keys()


async def test_the_items_of_a_custom_kind_state_their_kind(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(group(minMember=1))
    _, body = await answer(http, "GET", "/apis/scheduling.x-k8s.io/v1alpha1/podgroups")
    assert (body["kind"], body["items"][0]["kind"]) == ("PodGroupList", "PodGroup")


async def test_all_pages_of_a_list_show_the_state_at_the_first_page(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    for number in range(5):
        cluster.create(pod(f"p{number}"))
    _, first = await answer(http, "GET", PODS, params={"limit": "2"})
    assert first["metadata"]["remainingItemCount"] == 3
    cluster.delete("pods", "p3")
    cluster.create(pod("p25"))
    _, second = await answer(http, "GET", PODS, params={"limit": "2", "continue": first["metadata"]["continue"]})
    _, third = await answer(http, "GET", PODS, params={"limit": "2", "continue": second["metadata"]["continue"]})
    assert named([*first["items"], *second["items"], *third["items"]]) == ["p0", "p1", "p2", "p3", "p4"]
    assert second["metadata"]["remainingItemCount"] == 1
    assert revision_of(third) == revision_of(second) == revision_of(first)
    assert not {"continue", "remainingItemCount"} & third["metadata"].keys()


async def test_the_remaining_items_of_a_filtered_list_are_not_counted(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    for number in range(3):
        cluster.create(pod(f"p{number}", {"app": "x"}))
    _, page = await answer(http, "GET", PODS, params={"limit": "2", "labelSelector": "app=x"})
    assert named(page["items"]) == ["p0", "p1"]
    assert page["metadata"]["continue"]
    assert "remainingItemCount" not in page["metadata"]


async def test_a_page_at_a_forgotten_revision_is_expired_and_offers_a_token_for_the_remaining_items(
    cluster: Cluster, http: aiohttp.ClientSession, forget: Callable[[], Awaitable[None]]
) -> None:
    for number in range(3):
        cluster.create(pod(f"p{number}"))
    _, first = await answer(http, "GET", PODS, params={"limit": "1"})
    cluster.delete("pods", "p1")
    await forget()
    second = {"limit": "1", "continue": first["metadata"]["continue"]}
    async with asyncio.timeout(50):
        while (await answer(http, "GET", PODS, params=second))[0] == 200:  # noqa: ASYNC110  # nothing to wait for but the answer
            await asyncio.sleep(0.1)  # a real API server learns of the compaction a moment later
    status, body = await answer(http, "GET", PODS, params=second)
    assert (status, body["code"], body["reason"]) == (410, 410, "Expired")
    assert body["message"].startswith("The provided continue parameter is too old to display a consistent list result.")
    _, rest = await answer(http, "GET", PODS, params={"limit": "5", "continue": body["metadata"]["continue"]})
    assert named(rest["items"]) == ["p2"]


async def test_a_list_at_a_forgotten_revision_is_expired(
    cluster: Cluster, http: aiohttp.ClientSession, forget: Callable[[], Awaitable[None]]
) -> None:
    old = revision_of(cluster.create(pod("a")))
    exactly = {"resourceVersion": old, "resourceVersionMatch": "Exact"}
    cluster.create(pod("b"))
    status, body = await answer(http, "GET", PODS, params=exactly)
    assert (status, named(body["items"])) == (200, ["a"])
    await forget()
    async with asyncio.timeout(50):
        while (await answer(http, "GET", PODS, params=exactly))[0] == 200:  # noqa: ASYNC110  # nothing to wait for but the answer
            await asyncio.sleep(0.1)  # a real API server learns of the compaction a moment later
    status, body = await answer(http, "GET", PODS, params=exactly)
    assert (status, body["reason"], body["message"]) == (410, "Expired", "The resourceVersion for the provided list is too old.")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"labelSelector": "app=x"}, ["a", "b"]),
        ({"labelSelector": "app!=x"}, ["c", "d"]),
        ({"labelSelector": "app in (x, y),tier"}, ["b"]),
        ({"labelSelector": "app notin (x)"}, ["c", "d"]),
        ({"labelSelector": "!app"}, ["d"]),
        ({"fieldSelector": "spec.nodeName="}, ["a", "c", "d"]),
        ({"fieldSelector": "spec.nodeName!="}, ["b"]),
        ({"fieldSelector": "spec.nodeName=nowhere"}, ["b"]),
        ({"fieldSelector": "spec.schedulerName=allaboard"}, ["c"]),
        ({"fieldSelector": "status.phase=Pending,spec.schedulerName!=allaboard", "labelSelector": "app"}, ["a", "b"]),
        ({"fieldSelector": "metadata.name=d"}, ["d"]),
    ],
)
async def test_lists_are_filtered_by_labels_and_fields(
    params: dict[str, str], expected: list[str], cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.create(pod("a", {"app": "x"}))
    cluster.create(pod("b", {"app": "x", "tier": "1"}, nodeName="nowhere"))
    cluster.create(pod("c", {"app": "y"}, schedulerName="allaboard"))
    cluster.create(pod("d"))
    _, body = await answer(http, "GET", PODS, params=params)
    assert named(body["items"]) == expected


@pytest.mark.parametrize(
    ("params", "status", "reason", "message"),
    [
        ({"continue": "nonsense"}, 400, "BadRequest", "invalid continue token: continue key is not valid: "),
        ({"fieldSelector": "spec.priority=1"}, 400, "BadRequest", "field label not supported: spec.priority"),
        ({"labelSelector": "a b"}, 400, "BadRequest", "unable to parse requirement: "),
        (
            {"resourceVersionMatch": "Exact"},
            422,
            "Invalid",
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
            422,
            "Invalid",
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            {"resourceVersion": "999999999", "resourceVersionMatch": "NotOlderThan"},
            504,
            "Timeout",
            "Timeout: Too large resource version: 999999999, current: ",
        ),
    ],
)
async def test_invalid_list_options_are_refused(
    params: dict[str, str], status: int, reason: str | None, message: str, http: aiohttp.ClientSession
) -> None:
    code, body = await answer(http, "GET", PODS, params=params)
    assert (code, body.get("reason"), body["status"], body["code"]) == (status, reason, "Failure", status)
    assert body["message"].startswith(message)


async def test_a_missing_object_is_named_in_the_answer(http: aiohttp.ClientSession) -> None:
    status, body = await answer(http, "GET", f"{PODS}/nope")
    assert (status, body["reason"], body["message"]) == (404, "NotFound", 'pods "nope" not found')
    assert body["details"] == {"name": "nope", "kind": "pods"}


async def test_an_unknown_path_is_answered_404_in_plain_text(http: aiohttp.ClientSession) -> None:
    async with http.get("/apis/example.com/v1/things") as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")
