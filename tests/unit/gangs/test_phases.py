"""The phase of a PodGroup, which follows from the gang's members and their ends."""

from dataclasses import replace
from typing import Any

import pytest

from allaboard.gangs.endings import Ends
from allaboard.gangs.phases import Ending, Phase, ending_of, phase_of
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Owner, Pod

POD = Pod("ns", "p", "uid", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec((("pods", 1),)), owner=Owner("v1", "Job", "j", "run"))

BOUND: dict[str, Any] = {"node_name": "n1", "stamped_min_member": 3, "transaction": "a"}


def a_gang(*phases: str, minimum: int = 3) -> Gang:
    """Return a gang with a member for each phase. ``Bound``: a bound pod that doesn't run yet; ``Deleted``: a terminating pod."""
    members = tuple(
        replace(
            POD,
            name=str(number),
            uid=str(number),
            phase="Pending" if phase == "Bound" else "Running" if phase == "Deleted" else phase,
            is_terminating=phase == "Deleted",
            **({} if phase == "Pending" else BOUND),
        )
        for number, phase in enumerate(phases)
    )
    return Gang(GangKey("ns", "g"), minimum, members, 0, 0.0, Objective.BINPACK, 60)


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ((), "Pending"),
        (("Pending", "Pending"), "Pending"),
        (("Pending",) * 3, "Pending"),  # before the first attempt as well as after a refusal
        (("Bound", "Pending", "Pending"), "Scheduling"),
        (("Bound",) * 3, "Scheduling"),
        (("Running", "Running", "Pending"), "Scheduling"),
        (("Running", "Running"), "Scheduling"),
        (("Running",) * 3, "Running"),
        (("Running",) * 3 + ("Bound",), "Running"),
        (("Running",) * 3 + ("Pending",), "Running"),
        (("Running", "Running", "Succeeded"), "Running"),
        (("Succeeded",) * 3, "Finished"),
        (("Succeeded",) * 3 + ("Failed",), "Finished"),
        (("Succeeded", "Succeeded", "Failed"), "Failed"),
        (("Failed",), "Failed"),
        (("Running", "Succeeded", "Failed"), "Scheduling"),  # a member is alive
        (("Failed", "Running", "Running", "Running"), "Running"),
        (("Failed", "Pending", "Running", "Running"), "Scheduling"),
        (("Succeeded", "Deleted", "Deleted"), "Finished"),
        (("Deleted",) * 3, "Pending"),
    ],
)
def test_the_phase_follows_from_the_members(phases: tuple[str, ...], expected: str) -> None:
    assert phase_of(a_gang(*phases)) == expected


@pytest.mark.parametrize("before", ["Finished", "Failed"])
@pytest.mark.parametrize("phases", [(), ("Succeeded",), ("Failed", "Deleted")])
def test_phase_of_an_ended_gang_is_taken_from_its_podgroups_status_when_its_pods_are_deleted(before: str, phases: tuple[str, ...]) -> None:
    stated = {"phase": before, "succeeded": 3, "failed": 1}
    assert ending_of(a_gang(*phases), None, stated) == Ending(Phase(before), 3, 1)


@pytest.mark.parametrize("before", ["Finished", "Failed"])
def test_ended_gang_that_gets_a_living_member_is_pending_again(before: str) -> None:
    gang = a_gang("Pending")
    assert ending_of(gang, Ends(3, 1), {"phase": before}) is None
    assert phase_of(gang, Ends(3, 1), {"phase": before}) == "Pending"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (Ends(1, 0), Ending(Phase.FINISHED, 1, 0)),  # a TFJob is done when its chief is
        (Ends(3, 1), Ending(Phase.FINISHED, 3, 1)),
        (Ends(2, 1), Ending(Phase.FAILED, 2, 1)),
        (Ends(0, 1), Ending(Phase.FAILED, 0, 1)),
        (Ends(0, 0), None),
    ],
)
def test_phase_of_a_gang_whose_pods_are_deleted_follows_from_the_ends_that_were_seen(ends: Ends, expected: Ending | None) -> None:
    assert ending_of(a_gang(), ends, {"phase": "Running", "succeeded": 3}) == expected


@pytest.mark.parametrize("written", [None, "3", -1, True, 2**40, {}])
def test_invalid_counts_in_a_podgroups_status_are_ignored(written: object) -> None:
    stated = {"phase": "Running", "succeeded": written, "failed": written}
    assert ending_of(a_gang(), None, stated) is None
