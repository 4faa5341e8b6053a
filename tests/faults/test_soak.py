"""Tests that a short soak of gangs that come and go while requests fail violates nothing; `make faults` plays a long one."""

from pathlib import Path

from .soak import Soak

SECONDS, ROUNDS = 20, 3


async def test_gangs_that_come_and_go_while_requests_fail_violate_nothing_and_nothing_grows(tmp_path: Path) -> None:
    soaked = await Soak(tmp_path, seed=1).run(SECONDS, ROUNDS)
    assert soaked.violations == []
    assert soaked.growth() == []
