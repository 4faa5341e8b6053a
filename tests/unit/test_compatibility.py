"""The page about fields of pods quotes the messages that users see for refused fields, and names all fields that the client knows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from allaboard.model.pod import pod_from
from tests.documented import PAGE, documented

ROOT = Path(__file__).parents[2]


def unsupported(**spec: Any) -> str:
    metadata = {"name": "a", "namespace": "default", "uid": "1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod = pod_from({"metadata": metadata, "spec": {"containers": [], **spec}, "status": {"phase": "Pending"}})
    return "; ".join(pod.spec.unsupported)


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [{"name": "gpu"}]},
    ],
)
def test_messages_for_refused_fields_are_quoted_as_users_see_them(spec: dict[str, Any]) -> None:
    quoted = re.findall(r'"([^"]+)"', PAGE.read_text(encoding="utf-8"))
    assert unsupported(**spec) in quoted


def fields_of(kind: str) -> set[str]:
    kubernetes = json.loads((ROOT / "operator/allaboard/whatif/fields.json").read_text(encoding="utf-8"))[0]
    return {field.partition(":")[0] for field in kubernetes["types"][kind].split()}


@pytest.mark.parametrize("kind", ["PodSpec", "Container", "PodAffinityTerm", "TopologySpreadConstraint", "Volume"])
def test_page_names_every_field_of_a_pod_that_the_client_knows(kind: str) -> None:
    assert fields_of(kind) - documented() == set()
