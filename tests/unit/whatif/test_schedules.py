"""Test that schedules are refused as kube-apiserver 1.37 refuses them. Its answer to each schedule of this file was observed."""

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
def test_schedule_of_a_cron_job_that_the_api_server_accepts_is_accepted(schedule: str) -> None:
    refuse_schedule(schedule, "spec.schedule")


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("", "is missing"),
        ("* * * *", "has 4 fields instead of 5"),
        ("* * * * * *", "has 6 fields instead of 5"),
        ("TZ=UTC * * * * *", "states a time zone, which belongs in the field timeZone"),
        ("CRON_TZ=UTC * * * * *", "states a time zone"),
        ("60 * * * *", "'60' is not a valid minute: 0 to 59, or a range of these"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day of month"),
        ("* * * january *", "'january' is not a valid month: 1 to 12 or jan to dec, or a range of these"),
        ("* * * * 7", "'7' is not a valid day of week: 0 to 6 or sun to sat"),
        ("* * * * L", "'L' is not a valid day of week"),
        ("*/0 * * * *", "'*/0' is not a valid minute"),
        ("5-1 * * * *", "'5-1' is not a valid minute"),
        ("1-2-3 * * * *", "'1-2-3' is not a valid minute"),
        ("1/2/3 * * * *", "'1/2/3' is not a valid minute"),
        ("@reboot", "is not one of @yearly"),
        ("@Daily", "is not one of @yearly"),
        ("@hourly ", "is not one of @yearly"),
        ("@every", "is not one of @yearly"),
        ("@every 5", "is not one of @yearly"),
    ],
)
def test_schedule_of_a_cron_job_that_the_api_server_refuses_is_refused(schedule: str, problem: str) -> None:
    with pytest.raises(MalformedError) as caught:
        refuse_schedule(schedule, "spec.schedule")
    assert caught.value.field == "spec.schedule"
    assert problem in caught.value.problem
