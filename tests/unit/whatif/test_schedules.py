"""A schedule is refused as kube-apiserver 1.37 refuses it: each of these was asked there."""

import pytest

from allaboard.model.errors import MalformedError
from allaboard.whatif.schedules import refuse_schedule


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        " */5  0-12/3 1,15 jan-JUN mon-fri ",
        "? ? ? ? ?",
        "5/5 * * * *",
        "+5 * * * *",
        "*-x * * * *",
        "1,,2 * * * *",
        ", * * * *",
        "*/100 * * * *",
        "@daily",
        "@every 5m",
        "@every 1h2m3.5s",
        "@every 0",
        "@every -1h",
    ],
)
def test_a_schedule_that_the_api_server_takes_is_taken(schedule: str) -> None:
    refuse_schedule(schedule, "spec.schedule")


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("", "is missing"),
        ("* * * *", "has 4 fields instead of 5"),
        ("* * * * * *", "has 6 fields instead of 5"),
        ("TZ=UTC * * * * *", "states a time zone; that is the field timeZone"),
        ("CRON_TZ=UTC * * * * *", "states a time zone"),
        ("60 * * * *", "'60' is no minute, which is 0 to 59, and no range of these"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of month"),
        ("* * * january *", "'january' is no month, which is 1 to 12 or jan to dec, and no range of these"),
        ("* * * * 7", "'7' is no day of week, which is 0 to 6 or sun to sat"),
        ("* * * * L", "'L' is no day of week"),
        ("*/0 * * * *", "'*/0' is no minute"),
        ("5-1 * * * *", "'5-1' is no minute"),
        ("1-2-3 * * * *", "'1-2-3' is no minute"),
        ("1/2/3 * * * *", "'1/2/3' is no minute"),
        ("@reboot", "is none of @yearly"),
        ("@Daily", "is none of @yearly"),
        ("@hourly ", "is none of @yearly"),
        ("@every", "is none of @yearly"),
        ("@every 5", "is none of @yearly"),
    ],
)
def test_a_schedule_that_the_api_server_refuses_is_refused(schedule: str, problem: str) -> None:
    with pytest.raises(MalformedError) as caught:
        refuse_schedule(schedule, "spec.schedule")
    assert caught.value.field == "spec.schedule"
    assert problem in caught.value.problem
