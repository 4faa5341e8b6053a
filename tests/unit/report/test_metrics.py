"""Tests the HTTP endpoints ``/metrics`` and ``/readyz``."""

import socket

import aiohttp
from prometheus_client import generate_latest

from allaboard import __version__
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


def test_start_of_a_gang_is_counted_by_its_size_and_by_the_error_of_its_expected_start() -> None:
    metrics = Metrics()
    metrics.started(5, 3.0, late=None)
    metrics.started(200, 3.0, late=-70.0)
    text = generate_latest(metrics.registry).decode()
    assert 'allaboard_podgroup_scheduling_sli_duration_seconds_count{members="2-8"} 1.0' in text
    assert 'allaboard_podgroup_scheduling_sli_duration_seconds_count{members="129+"} 1.0' in text
    assert 'allaboard_expected_start_error_seconds_sum{start="early"} 70.0' in text
    assert f'allaboard_build_info{{version="{__version__}"}} 1.0' in text
    assert "_created" not in text
