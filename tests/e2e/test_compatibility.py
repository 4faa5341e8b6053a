"""The page about fields of pods names every field that the API server has."""

from typing import Any

import pytest

from tests.documented import documented

KINDS = ("PodSpec", "Container", "PodAffinityTerm", "TopologySpreadConstraint", "Volume")


@pytest.mark.parametrize("kind", KINDS)
def test_page_names_every_field_of_a_pod_that_the_api_server_has(kind: str, control_plane: Any) -> None:
    schemas = control_plane.api.request("GET", "/openapi/v3/api/v1")["components"]["schemas"]
    (schema,) = [each for name, each in schemas.items() if name.endswith(f".core.v1.{kind}")]
    assert set(schema["properties"]) - documented() == set()
