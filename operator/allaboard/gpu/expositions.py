"""Parses an exporter's page in Prometheus' text format line by line. A malformed line is skipped and affects no other line.

Only lines of samples are parsed. The parser of prometheus_client handles everything that a page may hold, and takes seconds for a MiB.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping

import orjson

from allaboard.gpu.gathering import Sample

_LONGEST_LINE = 8 * 2**10
_PAIR = rb'[ \t]*+[a-zA-Z_][a-zA-Z0-9_]*+[ \t]*+=[ \t]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"[ \t]*+'
_NUMBER = rb"[-+]?+(?:(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][-+]?+[0-9]++)?+|[Ii]nf|[Nn]a[Nn])"
_LINE = re.compile(
    rb"[ \t]*+([a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+\{((?:%b(?:,%b)*+,?+)?+[ \t]*+)\}[ \t]*+(%b)(?:[ \t]++-?[0-9]++)?+[ \t\r]*+"
    % (_PAIR, _PAIR, _NUMBER)
)
"""A line with a sample that has labels: the metric, the text between the braces, and the value; a timestamp may follow.

(Prometheus' text format 0.0.4)
"""

_LABEL = re.compile(r'([a-zA-Z0-9_]++)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_ESCAPED = re.compile(r'\\([\\"n])')


async def samples(chunks: AsyncIterator[bytes], names: Collection[str], more: Mapping[str, str]) -> Mapping[str, list[Sample]]:
    """Return the samples of the metrics ``names``, by metric name.

    The labels ``more`` are added to each sample, and replace labels of the same name.
    """
    page = _Page({name.encode(): name for name in names}, more)
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            page.take(line)
        if len(rest) > _LONGEST_LINE:
            rest = rest[:_LONGEST_LINE]  # a line this long is skipped anyway
    page.take(rest)
    return page.found


class _Page:
    """Collects the samples of one page. Most metrics have the same label sets, one for each GPU, so each label set is parsed once."""

    def __init__(self, names: Mapping[bytes, str], more: Mapping[str, str]) -> None:
        self.found: dict[str, list[Sample]] = defaultdict(list)
        self._names = names
        self._more = more
        self._known: dict[bytes, bytes] = {}

    def take(self, line: bytes) -> None:
        """Add the sample of a line; skip a line that is malformed or of another metric."""
        name = self._names.get(line.partition(b"{")[0].strip())
        if name is None or len(line) >= _LONGEST_LINE or (parts := _LINE.fullmatch(line)) is None:
            return
        _, inside, value = parts.groups()
        labels = self._known.get(inside)
        if labels is None:
            try:
                labels = self._known[inside] = self._labels(inside.decode())
            except UnicodeDecodeError:
                return
        self.found[name].append((labels, b"0", value))

    def _labels(self, inside: str) -> bytes:
        labels = {name: _ESCAPED.sub(_unescaped, text) if "\\" in text else text for name, text in _LABEL.findall(inside)}
        return orjson.dumps({**labels, **self._more})[1:-1]


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
