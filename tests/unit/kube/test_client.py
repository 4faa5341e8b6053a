"""The client reads the proxy from the environment and the kubeconfig, and the pause before a retry from an error."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from allaboard.kube import client
from allaboard.kube.client import api_error, load_credentials

PROXY, OTHER = "http://proxy.example:3128", "http://other.example:3128"


async def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], **cluster: str) -> str | None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://api.example:6443", **cluster}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(path))
    found = (await load_credentials()).proxy
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "api.example"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": ".example,10.0.0.1"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "elsewhere.example"}, PROXY),
    ],
)
async def test_proxy_is_read_from_the_environment(
    environment: dict[str, str], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await proxy(tmp_path, monkeypatch, environment) == expected


async def test_proxy_in_the_kubeconfig_takes_precedence_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await proxy(tmp_path, monkeypatch, {"HTTPS_PROXY": PROXY}, **{"proxy-url": OTHER}) == OTHER


@pytest.mark.parametrize(
    ("header", "asked", "expected"),
    [
        ("7", 3, 7.0),
        ("", 3, 3.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None, None),
        ("²", None, None),
        ("-1", -86400, None),
        ("", "nan", None),
        ("", [], None),
    ],
)
def test_retry_after_header_is_read_only_if_it_is_a_number_of_seconds(header: str, asked: object, expected: float | None) -> None:
    response: Any = SimpleNamespace(headers={"Retry-After": header} if header else {}, status=429, reason="Too Many Requests")
    payload = json.dumps({"message": "slow down", "details": {"retryAfterSeconds": asked}}).encode()
    assert api_error(response, payload).retry_after == expected


async def test_a_chosen_context_is_used_instead_of_the_current_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}.example"}} for name in ("a", "b")],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}} for name in ("a", "b")],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    monkeypatch.setitem(client._chosen, "context", "")
    client.choose_context("b")
    assert (await load_credentials(str(path))).host == "http://b.example"
    assert client.kubeconfig_in_use(str(path)) == f"kubeconfig {path} (context 'b')"
    client.choose_context("none")
    with pytest.raises(client.CredentialsError, match="none"):
        await load_credentials(str(path))
