"""The PHASE column."""

from dataclasses import replace
from typing import Any

import pytest

from allaboard.gangs.phases import phase_of
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Owner, Pod

POD = Pod("ns", "p", "uid", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec((("pods", 1),)), owner=Owner("v1", "Job", "j", "run"))

BOUND: dict[str, Any] = {"node_name": "n1", "promise": 3, "transaction": "a"}


def a_gang(*phases: str, minimum: int = 3) -> Gang:
    members = tuple(
        replace(POD, name=str(number), uid=str(number), phase=phase, **({} if phase == "Pending" else BOUND))
        for number, phase in enumerate(phases)
    )
    return Gang(GangKey("ns", "g"), minimum, members, 0, 0.0, Objective.BINPACK, 60)


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ((), "Pending"),
        (("Pending", "Pending"), "Pending"),
        (("Pending",) * 3, "Scheduling"),
        (("Running", "Running", "Pending"), "Scheduling"),
        (("Running",) * 3, "Running"),
        (("Running", "Running", "Succeeded"), "Running"),
        (("Succeeded",) * 3, "Finished"),
        (("Running", "Succeeded", "Failed"), "Failed"),
        (("Failed", "Running", "Running", "Running"), "Failed"),
        (("Failed", "Pending", "Running", "Running"), "Scheduling"),
    ],
)
def test_the_phase_follows_from_the_members(phases: tuple[str, ...], expected: str) -> None:
    assert phase_of(a_gang(*phases)) == expected
