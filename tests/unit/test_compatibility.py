"""The page about fields of pods quotes the messages that users see for refused fields, and names all fields that the client knows."""

import json
import re
from pathlib import Path

import pytest

from allaboard.cluster.resource_claims import ResourceClaim, ResourceClaims, UnallocatedClaimError
from tests.documented import PAGE, documented
from tests.unit.placement.clusters import pods

ROOT = Path(__file__).parents[2]


def test_message_for_an_unallocated_resource_claim_is_quoted_as_users_see_it() -> None:
    view = ResourceClaims()
    view.upsert("default/gpus", ResourceClaim())
    (pod,) = pods("a", 1, {}, resource_claims=(("gpu", "gpus"),))
    with pytest.raises(UnallocatedClaimError) as error:
        view.resolve(pod)
    assert str(error.value) in re.findall(r"`([^`]+)`", PAGE.read_text(encoding="utf-8"))


def fields_of(kind: str) -> set[str]:
    kubernetes = json.loads((ROOT / "operator/allaboard/whatif/fields.json").read_text(encoding="utf-8"))[0]
    return {field.partition(":")[0] for field in kubernetes["types"][kind].split()}


@pytest.mark.parametrize("kind", ["PodSpec", "Container", "PodAffinityTerm", "TopologySpreadConstraint", "Volume"])
def test_page_names_every_field_of_a_pod_that_the_client_knows(kind: str) -> None:
    assert fields_of(kind) - documented() == set()
