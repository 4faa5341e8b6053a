"""Table of what is done about the nodes that a gang lacks: the specification of ``scheduling.nodes_wanted``."""

from dataclasses import replace
from typing import Any, cast

import pytest

from allaboard.binding import reasons
from allaboard.cluster.reservations import Reservation
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, Hold
from allaboard.model.provisioning import Provisioning, Stage, our_name
from allaboard.model.provisioning_request import ProvisioningRequest
from allaboard.model.reasons import Cause, Code
from allaboard.placement import Plan
from allaboard.planning.answers import Refused
from allaboard.planning.prepared import PreparedGang
from allaboard.records.asked import Asked
from allaboard.scheduling.decide import Provision, Wait, after_search
from allaboard.scheduling.nodes_wanted import Annotate, Ask, GiveUp, Progress, is_needed, progress_of, shapes_of, wanted_members
from tests.unit.scheduling.test_decide import NOW, PLAN, a_gang, a_pod

NAME = our_name("gang", "0123456789")
OTHER = our_name("gang", "9876543210")
GANG = a_gang(waiting=4)
DEMAND = frozenset((kind, shape.count) for kind, shape in shapes_of(GANG.candidates).items())


def a_request(name: str = NAME, stage: Stage = Stage.PENDING, note: str = "") -> ProvisioningRequest:
    return ProvisioningRequest("default", name, "uid", 1, GANG.key, stage=stage, note=note)


def naming(gang: Gang, *names: str) -> Gang:
    """Return ``gang`` with members that name requests: the first member names the first of ``names``, and so on; the last is repeated."""
    named = (replace(pod, consumes=names[min(number, len(names) - 1)]) for number, pod in enumerate(gang.members))
    return replace(gang, members=tuple(named))


def progress(gang: Gang, asked: Asked | None = None, *requests: ProvisioningRequest, is_on: bool = True) -> Progress | None:
    return progress_of(gang, asked, requests, NOW, is_on=is_on)


def step_of(found: Progress | None) -> Any:
    return found and found.step and type(found.step)


MADE = Asked(DEMAND, NAME)
PAUSED = Asked(DEMAND, NAME, 1, NOW + 1, 5000.0, "no quota")


@pytest.mark.parametrize(
    ("gang", "asked", "requests", "step"),
    [
        (GANG, None, (), Ask),
        (GANG, None, (a_request(),), Ask),  # an earlier leader's: making it again shows whether it is the same
        (GANG, MADE, (), Ask),  # a user has deleted it
        (GANG, MADE, (a_request(),), Annotate),
        (naming(GANG, NAME, ""), MADE, (a_request(),), Annotate),
        (naming(GANG, NAME), MADE, (a_request(),), None),
        (naming(GANG, NAME), MADE, (a_request(stage=Stage.PROVISIONED),), None),
        (naming(GANG, NAME), MADE, (a_request(stage=Stage.FAILED),), GiveUp),
        (naming(GANG, NAME), MADE, (a_request(stage=Stage.BOOKING_EXPIRED),), GiveUp),
        (naming(GANG, NAME), MADE, (a_request(stage=Stage.CAPACITY_REVOKED),), GiveUp),
        (GANG, None, (a_request(stage=Stage.FAILED),), GiveUp),
        (naming(GANG, NAME), PAUSED, (a_request(stage=Stage.FAILED),), None),
        (naming(GANG, NAME), PAUSED, (), None),
        (naming(GANG, NAME), replace(PAUSED, retry_at=NOW), (), Ask),
        # other members than those that were asked for
        (naming(GANG, NAME), replace(MADE, demand="other"), (a_request(),), Ask),
        (naming(GANG, NAME), replace(PAUSED, demand="other"), (), Ask),
        (naming(GANG, OTHER), replace(MADE, demand="other"), (a_request(stage=Stage.FAILED),), Ask),
        # partially bound: the missing members only
        (a_gang(bound=2, waiting=2), None, (), Ask),
    ],
)
def test_the_step_follows_from_the_gang_the_record_and_the_requests(
    gang: Gang, asked: Asked | None, requests: tuple[ProvisioningRequest, ...], step: type | None
) -> None:
    found = progress(gang, asked, *requests)
    assert found is not None
    assert step_of(found) is step


@pytest.mark.parametrize(
    "gang",
    [
        a_gang(bound=4, waiting=1),
        naming(GANG, "made-by-kueue"),
        naming(GANG, NAME, "made-by-kueue"),
        replace(GANG, key=GANG.key._replace(kind="Pod")),
    ],
    ids=["whole", "of others", "one of others", "single pod"],
)
def test_no_request_is_made_for(gang: Gang) -> None:
    assert progress(gang) is None


def test_switched_off_only_annotations_of_this_scheduler_are_removed() -> None:
    assert progress(GANG, is_on=False) is None
    assert progress(naming(GANG, "made-by-kueue"), is_on=False) is None
    found = progress(naming(GANG, NAME, "made-by-kueue"), is_on=False)
    assert found is not None
    assert found.step == Annotate([naming(GANG, NAME).members[0]])


def test_members_are_counted_by_what_they_need_and_by_role() -> None:
    larger = replace(a_pod(9), spec=SchedulingSpec((("cpu", 9),)))
    role = replace(a_pod(8), options=(("role", "ps"),))
    pods = (a_pod(1), larger, a_pod(2), role, replace(a_pod(3), spec=SchedulingSpec((("pods", 1),))))
    assert [(shape.sample.name, shape.count) for shape in shapes_of(pods).values()] == [("pod-1", 3), ("pod-9", 1), ("pod-8", 1)]


def test_gang_of_too_many_kinds_gets_no_request_and_its_message_says_why() -> None:
    pods = tuple(replace(a_pod(number), spec=SchedulingSpec((("cpu", number),))) for number in range(100))
    found = progress(replace(GANG, members=pods, min_member=100))
    assert found is not None
    assert found.step is None
    assert found.shown is not None
    assert "more than 32 kinds" in found.shown.note


def test_nodes_are_asked_for_the_members_that_the_quorum_lacks() -> None:
    surplus = a_gang(waiting=6)
    assert wanted_members(surplus) == list(surplus.candidates[:4])
    roles = tuple(replace(a_pod(number), options=(("role", "ps" if number == 5 else "worker"),)) for number in range(6))
    wanted = wanted_members(replace(surplus, members=roles, role_minimums=(("ps", 1), ("worker", 1))))
    assert {pod.name for pod in wanted} == {"pod-5", "pod-0", "pod-1", "pod-2"}


@pytest.mark.parametrize(
    ("gang", "asked", "is_kept"),
    [
        (GANG, None, True),
        (GANG, MADE, True),
        (GANG, Asked(DEMAND, OTHER), False),
        (GANG, PAUSED, False),
        (None, None, False),
        (a_gang(bound=4), MADE, False),
        (a_gang(waiting=3), MADE, False),
        (replace(GANG, hold=Hold("BadLabel", "a label is wrong")), MADE, False),
    ],
    ids=["not attempted yet", "waits", "newer request", "given up", "gone", "bound", "lacks members", "held"],
)
def test_request_is_kept_only_while_its_gang_waits_for_it(gang: Gang | None, asked: Asked | None, is_kept: bool) -> None:
    assert is_needed(a_request(), gang, asked) is is_kept


def decided(cause: Cause | None, reservation: object = None, found: Progress | None = None) -> Provision | Wait:
    answer = Refused(PreparedGang(GANG), cast(Plan, PLAN), cause, cast(Reservation, reservation))
    decision = after_search(GANG, answer, None, NOW, progress=found)
    assert isinstance(decision, Provision | Wait)
    return decision


class _Reserved:
    victims = frozenset({"uid"})


@pytest.mark.parametrize(
    ("cause", "reservation", "is_asked"),
    [
        (Cause(Code.INSUFFICIENT), None, True),
        (Cause(Code.NEVER_FITS), None, True),
        (Cause(Code.RESERVED), None, False),
        (Cause(Code.INSUFFICIENT), _Reserved(), False),
        (None, None, False),
    ],
    ids=["insufficient", "never fits", "reserved", "pods are evicted", "surplus"],
)
def test_nodes_are_asked_for_only_if_the_gang_waits_for_no_capacity_of_existing_nodes(
    cause: Cause | None, reservation: object, is_asked: bool
) -> None:
    asks, waits = progress(GANG), progress(naming(GANG, NAME), MADE, a_request(note="soon"))
    assert isinstance(decided(cause, reservation, asks), Provision) is is_asked
    decision = decided(cause, reservation, waits)
    assert isinstance(decision, Wait)
    assert isinstance(decision.because, reasons.NoCapacity)
    shown = Provisioning(f"default/{NAME}", Stage.PENDING, "soon")
    assert decision.because.provisioning == (shown if is_asked else None)
