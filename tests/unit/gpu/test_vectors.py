"""Tests that answers of Prometheus are parsed in parts, and that a malformed answer raises ``SourceError`` and nothing else."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gpu import vectors
from allaboard.gpu.errors import SourceError, TooLongError
from allaboard.gpu.gathering import Sample
from allaboard.gpu.vectors import vector


async def read(body: bytes, size: int = 2**20, left_out: list[None] | None = None) -> list[Sample]:
    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(body), size):
            yield body[begin : begin + size]

    leave_out = (lambda: None) if left_out is None else (lambda: left_out.append(None))
    return [sample async for part in vector(chunks(), "http://p", leave_out) for sample in part]


def an_answer(series: Sequence[tuple[dict[str, Any], str]], separators: tuple[str, str] = (",", ":"), **more: Any) -> bytes:
    result = [{"metric": labels, "value": [1732725000.123, value]} for labels, value in series]
    document = {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
    return json.dumps(document, separators=separators).encode()


def parsed(samples: list[Sample]) -> list[tuple[dict[str, Any], str]]:
    return [(json.loads(b"{" + labels + b"}"), value.decode()) for labels, _, value in samples]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(['},{"metric":{', '"]}', "\\", '"result":['])


@given(
    st.lists(st.tuples(st.dictionaries(TEXTS, TEXTS, max_size=3), st.sampled_from(["1", "NaN", "1e+09"]))), st.integers(1, 400), st.data()
)
async def test_parsed_series_do_not_depend_on_chunks_and_spacing(
    series: list[tuple[dict[str, Any], str]], size: int, data: st.DataObject
) -> None:
    before, vectors._BLOCK = vectors._BLOCK, data.draw(st.integers(1, 300))
    try:
        spaced = data.draw(st.booleans())
        body = an_answer(series, (", ", ": ") if spaced else (",", ":"), warnings=["beware [of] this"])
        assert parsed(await read(body, size)) == series
    finally:
        vectors._BLOCK = before


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(1, 50))
async def test_corrupted_answer_raises_source_error_or_gives_samples(noise: bytes, at: int, size: int) -> None:
    body = an_answer([({"gpu": str(card)}, "1") for card in range(3)])
    try:
        found = await read(body[:at] + noise + body[at:], size)
    except SourceError:
        return
    assert all(isinstance(part, bytes) for sample in found for part in sample)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"<html>it works</html>",
        b'{"status":"error","errorType":"bad_data","error":"no"}',
        b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
        b'{"status":"success","data":{"resultType":"vector","result":{}}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":[],"value":[1,"1"]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]},',
        an_answer([({"gpu": "0"}, "1")])[:-2],
        b"[" * 100_000,
        b'{"status":"success","data":{"resultType":"vector","result":[' + b"x" * 2**21,
    ],
)
async def test_answer_that_is_no_vector_raises_source_error(body: bytes) -> None:
    with pytest.raises(SourceError):
        await read(body)


async def test_only_the_first_series_of_an_answer_with_too_many_series_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_MOST_SERIES", 1000)
    left_out: list[None] = []
    found = await read(an_answer([({"gpu": str(card)}, "1") for card in range(5000)]), 2**16, left_out)
    assert parsed(found) == [({"gpu": str(card)}, "1") for card in range(1000)]
    assert len(left_out) == 1


@pytest.mark.parametrize("size", [997, 2**16])
@pytest.mark.parametrize("too_long", [[0], [2], [4], [1, 2], [0, 1, 2, 3, 4]])
async def test_series_is_left_out_only_if_it_is_too_long(too_long: list[int], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_LONGEST", 5000)
    monkeypatch.setattr(vectors, "_BLOCK", 1000)
    left_out: list[None] = []
    text = 'an "},{"metric":{" x' * 5000
    series = [({"gpu": str(card), "text": text if card in too_long else ""}, "1") for card in range(5)]
    found = await read(an_answer(series, warnings=["beware"]), size, left_out)
    assert parsed(found) == [each for card, each in enumerate(series) if card not in too_long]
    assert len(left_out) == len(too_long)


async def test_complete_series_of_an_answer_that_is_cut_off_are_taken() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield an_answer([({"gpu": str(card)}, "1") for card in range(5000)])
        raise TooLongError("longer than the limit")

    left_out: list[None] = []
    found = [sample async for part in vector(chunks(), "http://p", lambda: left_out.append(None)) for sample in part]
    assert (len(found), len(left_out)) == (4999, 1)
