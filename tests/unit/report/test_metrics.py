"""Tests the HTTP endpoints ``/metrics`` and ``/readyz``."""

import socket

import aiohttp

from allaboard.report.metrics import Metrics, serve


async def test_metrics_are_served_and_readyz_answers_200_only_when_the_operator_is_ready() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    metrics, states = Metrics(), iter([False, True])
    metrics.binds.labels("bound").inc()
    async with serve(metrics, port, lambda: next(states)), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/metrics") as response:
            assert 'allaboard_binds_total{result="bound"} 1.0' in await response.text()
            assert response.headers["Content-Type"].startswith("text/plain")
        for status in (503, 200):
            async with session.get("/readyz") as response:
                assert response.status == status
