"""Reads GPU metrics from a Prometheus: one query for each metric that Prometheus has, with few labels.

An instant vector has each series' last value of the past five minutes, even if Prometheus has scraped nothing for four of these minutes. So
the times of the last scrapes are queried as well.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import orjson

from allaboard.gpu.dialects import Dialect, Metric
from allaboard.gpu.errors import SourceError
from allaboard.gpu.gathering import Gathering, Sample
from allaboard.gpu.vectors import vector
from allaboard.gpu.web import Credentials, StatusError, Web, whole

_MOST_BYTES = 32 * 2**20
"""The most bytes of one answer: twice the size of an answer for 10,000 nodes of eight GPUs with all labels."""

_HIDDEN = (401, 403, 404, 405)
"""Statuses with which a proxy before Prometheus answers requests for paths outside Prometheus' API."""

_ESCAPED = re.compile(r'[\\"\n]')


class Prometheus:
    """Queries a Prometheus at ``url``, or a server with the same API (Thanos, Mimir, VictoriaMetrics)."""

    def __init__(self, web: Web, url: str, credentials: Credentials, matchers: Mapping[str, str]) -> None:
        self.url = url
        self._web = web
        self._credentials = credentials
        self._matchers = [f"{label}={_quoted(value)}" for label, value in matchers.items()]

    async def probe(self) -> None:
        """Check that the server is a Prometheus and is ready. Raises ``SourceError``."""
        try:
            async with self._web.get(f"{self.url}/-/ready", None, self._credentials, 2**16) as chunks:
                await whole(chunks)
        except StatusError as error:
            if error.status not in _HIDDEN:
                raise
        async with self._web.get(f"{self.url}/api/v1/status/buildinfo", None, self._credentials, 2**16) as chunks:
            body = await whole(chunks)
        try:
            answer = orjson.loads(body)
            is_prometheus = answer["status"] == "success" and isinstance(answer["data"]["version"], str)
        except (ValueError, TypeError, KeyError):
            is_prometheus = False
        if not is_prometheus:
            raise SourceError(f"{self.url}: not a Prometheus")

    async def metrics(self, dialects: Sequence[Dialect]) -> frozenset[str]:
        """Return the names of the metrics of ``dialects`` that this Prometheus has. Raises ``SourceError``."""
        names = "|".join(metric.name for dialect in dialects for metric in dialect.metrics)
        matchers = ",".join((f'__name__=~"{names}"', *self._matchers))
        found = [labels async for part in self._query(f"count by (__name__) ({{{matchers}}})", lambda: None) for labels, _, _ in part]
        known = {f'"__name__":"{name}"'.encode(): name for name in names.split("|")}
        return frozenset(known[labels] for labels in found if labels in known)

    async def read(self, dialects: Sequence[Dialect], existing: frozenset[str], into: Gathering) -> None:
        """Query the metrics whose names are ``existing``, and add their samples to ``into``. Raises ``SourceError``."""
        for dialect in dialects:
            all_labels = (*dialect.nodes, *dialect.cards, *dialect.models)
            labels: frozenset[str] = frozenset()
            for metric in dialect.metrics:
                if metric.name not in existing or not into.lacks(dialect, metric):
                    continue
                by = sorted(labels) or all_labels  # the first query finds out which labels name nodes and GPUs
                function = "min" if metric.takes_least else "max"
                query = f"{function} by ({', '.join(by)}) ({self._selector(dialect, metric)})"
                used: set[str] = set()
                async for part in self._query(query, into.leave_out):
                    used |= into.take(dialect, metric, part)
                if not labels and used:
                    labels = frozenset(used)
                    into.forget_labels()
                    await self._read_times(dialect, metric, labels.intersection(dialect.nodes), into)

    async def _read_times(self, dialect: Dialect, metric: Metric, nodes: frozenset[str], into: Gathering) -> None:
        query = f"min by ({', '.join(sorted(nodes))}) (timestamp({self._selector(dialect, metric)}))"
        async for part in self._query(query, into.leave_out):
            into.take_times(dialect, part)

    def _selector(self, dialect: Dialect, metric: Metric) -> str:
        whole_cards = [f'{dialect.parts}=""'] if dialect.parts and not metric.of_parts else []
        return f"{metric.name}{{{','.join((*whole_cards, *self._matchers))}}}"

    async def _query(self, query: str, leave_out: Callable[[], None]) -> AsyncIterator[Sequence[Sample]]:
        url = f"{self.url}/api/v1/query"
        async with self._web.get(url, {"query": query}, self._credentials, _MOST_BYTES) as chunks:
            async for part in vector(chunks, url, leave_out):
                yield part


def _quoted(value: str) -> str:
    escape: Callable[[re.Match[str]], str] = lambda found: "\\n" if found[0] == "\n" else f"\\{found[0]}"  # noqa: E731
    return f'"{_ESCAPED.sub(escape, value)}"'
