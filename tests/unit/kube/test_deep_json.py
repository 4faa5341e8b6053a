"""JSON values that are nested too deeply for parsers are left out, and all other values are kept."""

import asyncio
import json
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from allaboard.kube.deep_json import DEEPEST, PrunedResponse, loads, pruned
from allaboard.kube.lists import _objects

TEXT = st.text(alphabet='{}[]",:\\\\\u00e9\U0001f600 ab\n', max_size=12)
JSON = st.recursive(st.none() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)
FURTHER = DEEPEST + 20
"""A depth of nesting that the operator cuts off, and that Python's own JSON parser can still read."""


def nested(levels: int, inmost: Any = 1) -> Any:
    """Return ``inmost`` within so many levels of alternating objects and lists."""
    for level in range(levels):
        inmost = {"f:a": inmost} if level % 2 else [inmost]
    return inmost


def cut(value: Any, levels: int = DEEPEST) -> Any:
    """Return ``value`` with None in place of values nested deeper than ``levels``, computed in a slow and obvious way."""
    if not isinstance(value, dict | list):
        return value
    if not levels:
        return None
    if isinstance(value, list):
        return [cut(each, levels - 1) for each in value]
    return {key: cut(each, levels - 1) for key, each in value.items()}


@given(st.lists(st.tuples(TEXT, st.sampled_from([0, 3, DEEPEST - 2, DEEPEST - 1, DEEPEST, FURTHER]), JSON), max_size=4))
def test_json_documents_are_read_without_the_values_that_are_nested_too_deeply(parts: list[tuple[str, int, Any]]) -> None:
    documents = [[text, nested(levels, inmost), text] for text, levels, inmost in parts]
    lines = pruned(b"\n".join(json.dumps(each, ensure_ascii=False).encode() for each in documents))
    assert [json.loads(line) for line in lines.split(b"\n") if line] == [cut(each) for each in documents]


@given(st.binary(max_size=300) | st.text(alphabet='{}[]"\\\\,1', max_size=300).map(str.encode))
def test_invalid_json_raises_a_value_error(payload: bytes) -> None:
    try:
        expected = orjson.loads(payload)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            loads(payload)
    else:
        assert loads(payload) == expected


def deep(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("levels", [900, 1100, 10_000])
def test_list_with_objects_as_deep_as_the_api_server_accepts_is_read(levels: int) -> None:
    answer = loads(b'{"items":[{"metadata":{"name":"a","managedFields":%b}},{"metadata":{"name":"b"}}]}' % deep(levels))
    assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "b"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_deep_objects_of_a_streamed_list_are_read(is_whole: bool) -> None:
    first, second = (b'{"metadata":{"name":"%b","managedFields":%b}}' % (name, deep(9000)) for name in (b"a", b"b"))
    found, left, is_end = _objects(f"{first.decode()},{second.decode()}]}}" if is_whole else f"{first.decode()},{second.decode()[:-3]}")
    assert [each["metadata"]["name"] for each in found] == (["a", "b"] if is_whole else ["a"])
    assert (is_end, bool(left)) == (is_whole, not is_whole)


async def test_http_session_of_another_library_reads_answers_without_values_nested_too_deeply() -> None:
    lines = [b'{"type":"ADDED","object":%b}\n' % deep(levels) for levels in (1, 5000, 2)]

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/whole":
            return web.Response(body=deep(5000), content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (lines[0][:9], lines[0][9:] + lines[1][:777], lines[1][777:], lines[2], b"the end"):
            await response.write(part)
            await asyncio.sleep(0)
        return response

    application = web.Application()
    application.router.add_get("/{path}", answer)
    async with TestServer(application) as server, aiohttp.ClientSession(server.make_url(""), response_class=PrunedResponse) as session:
        async with session.get("/whole") as response:
            assert json.dumps(await response.json()).count("f:a") == DEEPEST
        async with session.get("/lines") as response:
            read = b"".join([chunk async for chunk in response.content.iter_chunked(1 << 20)])
    *documents, end = read.split(b"\n")
    assert [json.dumps(json.loads(each)).count("f:a") for each in documents] == [1, DEEPEST - 1, 2]
    assert end == b"the end"
