"""Tests that the judge convicts each mutant by its directed schedule, and acquits the unchanged scheduler."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .directed import SCHEDULES
from .forks import Forks, forking
from .mutants import MUTANTS, Mutant, hunt, plant

pytestmark = pytest.mark.usefixtures("silence")


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_judge_finds_no_fault_with_a_scheduler_that_keeps_its_guarantees(schedule: Callable[[], None]) -> None:
    schedule()


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with forking() as started:
        yield started


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
async def test_judge_reports_a_scheduler_that_breaks_a_guarantee(mutant: Mutant, forks: Forks) -> None:
    verdict = await hunt(forks, mutant, "directed", mutant.directed)
    assert mutant.rule in verdict.rules, verdict.found or "nothing was found"


def test_mutants_are_many_and_have_unique_names() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_mutant_whose_patch_does_not_fit_the_code_raises_an_error(tmp_path: Path) -> None:
    mutant = MUTANTS[0]
    edit = mutant.edits[0]
    with pytest.raises(ValueError, match="occurs 0 times"):
        plant(Mutant("out of date", "", "", (type(edit)(edit.place, "no_such_name", ""),)), tmp_path / "copy")
