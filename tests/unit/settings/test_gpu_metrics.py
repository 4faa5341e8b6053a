"""Tests of the options ``gpu_metrics``: their values, and the messages for mistakes."""

from typing import Any

import pytest

from allaboard.settings.options import SettingsError, load_settings


def test_gpu_metrics_options_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SOURCE": "exporters",
        "NAMESPACES": "one,two",
        "MATCHERS": "job=dcgm",
        "METRICS": "acme_free=free:bytes",
        "STALE_SECONDS": "45",
    }.items():
        monkeypatch.setenv(f"ALLABOARD_GPU_METRICS__{name}", value)
    found = load_settings().gpu_metrics
    assert (found.source, found.namespaces, found.stale_seconds) == ("exporters", ("one", "two"), 45.0)
    assert (found.matchers, found.metrics) == ({"job": "dcgm"}, {"acme_free": "free:bytes"})


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"url": "prometheus:9090"}, "gpu_metrics.url: must be like https"),
        ({"url": "http://p:99999"}, "gpu_metrics.url: must be like https"),
        ({"url": "http://p/?x=1"}, "gpu_metrics.url: must be like https"),
        ({"source": "magic"}, "gpu_metrics.source: must be 'auto', 'exporters' or 'off'"),
        ({"namespaces": ["Big"]}, "gpu_metrics.namespaces.0: must be the name of a namespace"),
        ({"path_prefix": "prometheus/"}, "gpu_metrics.path_prefix: must be a path such as /prometheus"),
        ({"matchers": {"a-b": "c"}}, "'a-b' is no label of metrics"),
        ({"metrics": {"acme_free": "fre"}}, "'fre' is no measure; known are memory, free"),
        ({"metrics": {"acme_free": "free:stone"}}, "'stone' is no unit of free; known are bytes, kib, mib, gib, or a factor more than 0"),
        ({"metrics": {"acme": "utilization:bytes"}}, "'bytes' is no unit of utilization; known are ratio, percent, or a factor"),
        ({"metrics": {"acme": "xid:c"}}, "'c' is no unit of xid; known are a factor more than 0"),
        ({"source": "exporters", "url": "http://p:9090"}, "gpu_metrics.url: isn't used with gpu_metrics.source: exporters"),
        ({"metrics": {"acme_free": "free:nan"}}, "'nan' is no unit"),
        ({"metrics": {'x"}': "free"}}, "is no metric's name"),
        ({"stale_seconds": 10, "interval_seconds": 10}, "stale_seconds must be more than gpu_metrics.interval_seconds"),
        ({"username_file": "/a"}, "must be named together"),
        ({"token_file": "/t", "username_file": "/a", "password_file": "/b"}, "name one of them"),
    ],
)
def test_message_names_the_mistake_in_gpu_metrics_options(stated: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"gpu_metrics": stated})
    assert words in str(caught.value)
    assert str(caught.value).count("gpu_metrics: ") == 0


def test_url_with_a_password_is_refused_without_repeating_the_password() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"gpu_metrics": {"url": "https://me:s3cret@prometheus.example"}})
    assert "s3cret" not in str(caught.value)
