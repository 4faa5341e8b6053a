"""Tests of the store of ProvisioningRequests: requests by gang, and which changes are passed on."""

from dataclasses import replace

from allaboard.cluster.provisioning_requests import ProvisioningRequests
from allaboard.model.gang import GangKey
from allaboard.model.provisioning import Stage
from allaboard.model.provisioning_request import ProvisioningRequest

GANG = GangKey("ml", "train")
REQUEST = ProvisioningRequest("ml", "r", "uid", 1, GANG)


def test_only_answers_and_the_end_of_a_request_are_passed_on() -> None:
    store, heard = ProvisioningRequests(), list[GangKey]()
    store.on_change = heard.append
    store.upsert("ml/r", REQUEST)
    store.upsert("ml/r", replace(REQUEST, version=2))
    assert heard == []
    store.upsert("ml/r", replace(REQUEST, version=3, stage=Stage.ACCEPTED))
    store.upsert("ml/r", replace(REQUEST, version=4, stage=Stage.ACCEPTED, note="soon"))
    store.upsert("ml/r", REQUEST)  # an older state
    assert heard == [GANG] * 2
    assert [each.version for each in store.of(GANG)] == [4]
    store.remove("ml/r")
    store.remove("ml/r")
    assert heard == [GANG] * 3
    assert store.of(GANG) == [*store] == [*store.known()] == []


def test_requests_of_another_installation_are_not_kept() -> None:
    store = ProvisioningRequests(lambda request: request.scheduler_name == "allaboard")
    store.upsert("ml/r", replace(REQUEST, scheduler_name="second"))
    assert [*store.known()] == []
    store.upsert("ml/r", replace(REQUEST, scheduler_name="allaboard"))
    assert [*store.known()] == ["ml/r"]


def test_requests_of_others_and_requests_that_are_being_deleted_do_not_count() -> None:
    store = ProvisioningRequests()
    store.upsert("ml/kueue", None)
    store.upsert("ml/r", replace(REQUEST, is_terminating=True))
    assert store.of(GANG) == []
    assert [*store.known()] == ["ml/r"]
    store.upsert("ml/r", replace(REQUEST, version=2, owner=GangKey("ml", "other")))
    assert [each.name for each in store.of(GangKey("ml", "other"))] == ["r"]
    store.upsert("ml/r", None)
    assert [*store.known()] == []
