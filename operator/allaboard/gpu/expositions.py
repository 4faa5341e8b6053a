"""Reads what an exporter's own page says, a line at a time: a line that can't be understood costs nothing but itself."""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping

import orjson
from prometheus_client.parser import text_string_to_metric_families

from allaboard.gpu.gathering import Sample

_LONGEST_LINE = 8 * 2**10


async def samples(chunks: AsyncIterator[bytes], names: Collection[str], more: Mapping[str, str]) -> Mapping[str, list[Sample]]:
    """The samples of the metrics ``names``, by name, with the labels ``more`` instead of what is said of the same."""
    found: dict[str, list[Sample]] = defaultdict(list)
    wanted = {name.encode() for name in names}
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _take(line, wanted, found, more)
        if len(rest) > _LONGEST_LINE:
            rest = rest[:_LONGEST_LINE]  # it will be no line that counts, however it ends
    _take(rest, wanted, found, more)
    return found


def _take(line: bytes, wanted: Collection[bytes], found: dict[str, list[Sample]], more: Mapping[str, str]) -> None:
    name, bracket, _ = line.partition(b"{")
    if not bracket or name.strip() not in wanted or len(line) >= _LONGEST_LINE:
        return
    try:
        text = line.decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name].append((orjson.dumps({**sample.labels, **more})[1:-1], b"0", str(sample.value).encode()))
    except (ValueError, KeyError, IndexError, AttributeError, TypeError):  # as its parser has it
        return
