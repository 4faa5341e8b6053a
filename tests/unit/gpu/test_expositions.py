"""Tests that an exporter's page is parsed as by Prometheus' own library, and that a malformed line affects no other line."""

import json
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from allaboard.gpu.expositions import samples

NAME = "DCGM_FI_DEV_FB_FREE"


async def read(page: bytes, size: int = 2**16, more: Mapping[str, str] | None = None) -> list[tuple[dict[str, Any], float]]:
    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(page), size):
            yield page[begin : begin + size]

    found = await samples(chunks(), [NAME], more or {})
    assert found.keys() <= {NAME}
    return [(json.loads(b"{" + labels + b"}"), float(value)) for labels, _, value in found.get(NAME, [])]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(['"} 1', "\\", "a\\nb", 'x="y",', "\n"])


@given(st.dictionaries(st.tuples(TEXTS, TEXTS), st.floats(), max_size=4), st.integers(1, 200))
async def test_metrics_page_that_prometheus_client_writes_is_parsed(values: dict[tuple[str, str], float], size: int) -> None:
    registry = CollectorRegistry()
    gauge = Gauge(NAME, "Free memory.", ["gpu", "modelName"], registry=registry)
    for (card, model), value in values.items():
        gauge.labels(card, model).set(value)
    found = await read(generate_latest(registry), size)
    parsed = {(labels["gpu"], labels["modelName"]): value for labels, value in found}
    assert parsed.keys() == values.keys()
    assert all(parsed[key] == value or (math.isnan(parsed[key]) and math.isnan(value)) for key, value in values.items())


@pytest.mark.parametrize(
    "line",
    [
        NAME + '{gpu="0"} 1',
        NAME + '{gpu="0",} 1',
        NAME + ' { gpu = "0" , Hostname="n\\\\1\\"" }  1.5e3 1732725000123',
        NAME + '{gpu="\\q"}\t+Inf',
        NAME + "{} 3",
    ],
)
async def test_valid_line_of_a_metrics_page_is_parsed_as_by_prometheus_client(line: str) -> None:
    [family] = text_string_to_metric_families(line)
    assert await read(line.encode() + b"\r\n" if "\t" not in line else line.encode()) == [
        (dict(sample.labels), sample.value) for sample in family.samples
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"# HELP DCGM_FI_DEV_FB_FREE{ free",
        b'OTHER{gpu="0"} 1',
        b'DCGM_FI_DEV_FB_FREE{gpu="0"}',
        b'DCGM_FI_DEV_FB_FREE{gpu="0} 1',
        b"DCGM_FI_DEV_FB_FREE{gpu=0} 1",
        b'DCGM_FI_DEV_FB_FREE{gpu="0" x="1"} 1',
        b'DCGM_FI_DEV_FB_FREE{gpu="\xff"} 1',
        b'DCGM_FI_DEV_FB_FREE{gpu="0"} 1 2 3',
        b'DCGM_FI_DEV_FB_FREE{gpu="' + b"\\" * 8001 + b'"} 1',
        b'DCGM_FI_DEV_FB_FREE{gpu="' + b"x" * 10_000 + b'"} 1',
        b"DCGM_FI_DEV_FB_FREE{" + b'a="",' * 1500 + b"{",
    ],
)
async def test_malformed_line_of_a_metrics_page_affects_no_other_line(line: bytes) -> None:
    fine = b'DCGM_FI_DEV_FB_FREE{gpu="7"} 1'
    assert await read(b"\n".join([line, fine, line])) == [({"gpu": "7"}, 1.0)]


async def test_label_that_is_added_to_a_series_replaces_the_label_on_the_metrics_page() -> None:
    assert await read(b'DCGM_FI_DEV_FB_FREE{instance="other",gpu="0"} 1', more={"instance": "n1"}) == [
        ({"instance": "n1", "gpu": "0"}, 1.0)
    ]


@given(st.binary(max_size=200), st.integers(0, 100))
async def test_metrics_page_with_random_bytes_raises_no_error(noise: bytes, at: int) -> None:
    page = b'DCGM_FI_DEV_FB_FREE{gpu="7",Hostname="n1"} 1\nDCGM_FI_DEV_FB_FREE{gpu="8",Hostname="n1"} 1\n'
    for labels, _ in await read(page[:at] + noise.replace(b"\n", b"") + page[at:]):
        assert isinstance(labels, dict)
