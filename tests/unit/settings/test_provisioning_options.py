"""Tests of the options by which autoscalers are asked for nodes."""

import json
import re

import pytest

from allaboard.settings.options import SettingsError, load_settings


def test_parameters_may_be_stated_as_pairs_or_as_a_mapping_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().provisioning_class == ""
    assert load_settings({"provisioning_parameters": {"ValidUntilSeconds": 60}}).provisioning_parameters == {"ValidUntilSeconds": "60"}
    monkeypatch.setenv("ALLABOARD_PROVISIONING_PARAMETERS", "ValidUntilSeconds=60,noRetry=true")
    assert load_settings().provisioning_parameters == {"ValidUntilSeconds": "60", "noRetry": "true"}


@pytest.mark.parametrize(
    ("option", "value", "wrong"),
    [
        ("provisioning_class", "Best Effort", "provisioning_class: must be the name of a class"),
        ("provisioning_class", "a" * 254, "provisioning_class: must be the name of a class"),
        ("provisioning_parameters", {"a": "b" * 256}, "provisioning_parameters.a: "),
        ("provisioning_parameters", {str(number): "b" for number in range(101)}, "provisioning_parameters: "),
        ("provisioning_backoff_seconds", 0, "provisioning_backoff_seconds: "),
    ],
    ids=["no name", "long name", "long value", "many parameters", "no pause"],
)
def test_message_names_what_the_api_server_would_refuse(option: str, value: object, wrong: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(wrong)) as raised:
        load_settings({option: value})
    assert len(str(raised.value)) < 300, json.dumps(str(raised.value))
