"""The judge can convict: each scheduler that breaks a promise is found out by the schedule that aims at it, and nobody else is."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from . import directed
from .mutants import MUTANTS, Mutant, hunt, plant
from .simulation import quiet

DIRECTED = {
    name: schedule
    for name, schedule in vars(directed).items()
    if inspect.isfunction(schedule) and schedule.__module__ == directed.__name__ and name[0] != "_"
}


@pytest.fixture(autouse=True)
def silence() -> None:
    quiet()


@pytest.mark.parametrize("schedule", DIRECTED.values(), ids=DIRECTED.keys())
def test_a_scheduler_that_keeps_its_promises_is_acquitted(schedule: Callable[[], None]) -> None:
    schedule()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
async def test_a_scheduler_that_breaks_a_promise_is_convicted(mutant: Mutant) -> None:
    verdict = await hunt(mutant, "directed", mutant.directed)
    assert verdict.rule, "nothing was found"
    assert verdict.rule != "it doesn't start", verdict.found


def test_there_are_mutants_of_every_promise() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_patch_that_does_not_fit_any_more_is_said(tmp_path: Path) -> None:
    mutant = MUTANTS[0]
    edit = mutant.edits[0]
    with pytest.raises(ValueError, match="stands 0 times"):
        plant(Mutant("out of date", "", (type(edit)(edit.module, "no such line", ""),)), tmp_path / "copy")
