"""A changed configuration file is taken while the scheduler runs, as far as it can be."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from allaboard.model.fit import Strategy
from allaboard.model.gang import Objective
from allaboard.reloading import Reloading
from allaboard.settings.options import Settings, load_settings

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: batch
  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
"""

Write = Callable[[str], None]


class Taken(list[Settings]):
    """What was applied, and how each change was counted."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[str] = []


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Swaps the file as kubelets do: by a symbolic link to another folder."""
    monkeypatch.setenv("ALLABOARD_CONFIG", str(tmp_path / "..data" / "scheduler.yaml"))
    number = 0

    def swap(text: str) -> None:
        nonlocal number
        number += 1
        folder = tmp_path / f"..{number}"
        folder.mkdir()
        (folder / "scheduler.yaml").write_text(text)
        (tmp_path / "new").symlink_to(folder)
        (tmp_path / "new").rename(tmp_path / "..data")

    return swap


def begin() -> tuple[Reloading, Taken]:
    taken = Taken()
    return Reloading(load_settings(), taken.append, taken.results.append), taken


async def test_a_changed_file_is_taken_and_an_unchanged_one_is_not(write: Write) -> None:
    write("objective: binpack\n")
    reloading, taken = begin()
    await reloading.look()
    assert taken == []
    write("objective: binpack\n")
    await reloading.look()
    assert taken == []
    write("objective: spread\ntopology: rack\npacking: {shape: {0: 10, 100: 0}}\nschedule_timeout_seconds: 9\n")
    await reloading.look()
    [settings] = taken
    assert (settings.objective, settings.topology, settings.schedule_timeout_seconds) == (Objective.SPREAD, "rack", 9)
    assert settings.packing.parsed.shape == ((0, 10), (100, 0))
    assert taken.results == ["applied"]


async def test_profiles_change_with_their_file(write: Write) -> None:
    write(PROFILE)
    reloading, taken = begin()
    write(PROFILE.replace("Most", "Least"))
    await reloading.look()
    [settings] = taken
    assert settings.profiles["batch"].scoring.strategy is Strategy.LEAST


async def test_a_name_whose_profile_has_gone_keeps_it_and_is_named(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    write(PROFILE)
    reloading, taken = begin()
    for text in (PROFILE.replace("batch", "batched"), PROFILE.partition("profiles")[0], "objective: spread\n"):
        caplog.clear()
        write(text)
        await reloading.look()
        assert taken[-1].scheduler_names == ("allaboard", "batch")
        assert {name: each.scoring.strategy for name, each in taken[-1].profiles.items()} == {"batch": Strategy.MOST}
        assert "'batch' has no profile in the file any more; it keeps its scoring until the operator starts again" in caplog.text
        assert ("'batched' isn't ours until the operator starts again" in caplog.text) == ("batched" in text)
    for text in (PROFILE.replace("Most", "Least"), "objective: spread\n"):
        write(text)
        await reloading.look()
        assert taken[-1].profiles["batch"].scoring.strategy is Strategy.LEAST


@pytest.mark.parametrize("text", ["", "# objective: spread\n", "---\n---\n"])
async def test_a_file_that_states_nothing_any_more_is_refused(write: Write, caplog: pytest.LogCaptureFixture, text: str) -> None:
    write(PROFILE)
    reloading, taken = begin()
    write(text)
    await reloading.look()
    assert (taken, taken.results) == ([], ["refused"])
    assert "scheduler.yaml: states nothing; was it cut off?" in caplog.text


async def test_a_wrong_file_changes_nothing_and_says_why_once(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    write(PROFILE)
    reloading, taken = begin()
    write(PROFILE.replace("MostAllocated", "Most"))
    await reloading.look()
    await reloading.look()
    assert (taken, taken.results) == ([], ["refused"])
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "scheduler.yaml: profiles[0].pluginConfig[0].args.scoringStrategy.type: must be one of" in record.getMessage()
    write(PROFILE.replace("Most", "Least"))
    await reloading.look()
    assert taken[0].profiles["batch"].scoring.strategy is Strategy.LEAST


async def test_a_file_that_has_gone_changes_nothing(write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write("objective: spread\n")
    reloading, taken = begin()
    (tmp_path / "..data").unlink()
    await reloading.look()
    assert (taken, taken.results) == ([], ["refused"])
    assert "can't be read: No such file or directory" in caplog.text
    write("objective: spread\n")
    await reloading.look()
    assert taken.results == ["refused", "applied"]


async def test_what_can_not_change_at_run_time_is_kept_and_named(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    write("metrics_port: 8080\nobjective: spread\n")
    reloading, taken = begin()
    write(f"{PROFILE}---\napiVersion: allaboard.dev/v1alpha1\nkind: AllaboardConfiguration\nmetricsPort: 9090\nobjective: binpack\n")
    await reloading.look()
    [settings] = taken
    assert (settings.metrics_port, settings.scheduler_names, settings.objective) == (8080, ("allaboard",), Objective.BINPACK)
    kept = [record.getMessage() for record in caplog.records if "stays as it was" in record.getMessage()]
    assert [message.split(": ")[1] for message in kept] == ["metrics_port", "scheduler_names"]
    assert "'batch' isn't ours until the operator starts again" in caplog.text


async def test_whatever_goes_wrong_with_a_change_the_next_one_is_taken(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    write("objective: spread\n")
    results: list[str] = []
    taken: list[Settings] = []
    defects = [OverflowError("int too large to convert to float")]

    def load() -> Settings:
        if defects:
            raise defects.pop()
        return load_settings()

    reloading = Reloading(load_settings(), taken.append, results.append, load)
    write("objective: binpack\n")
    await reloading.look()
    assert (taken, results) == ([], ["refused"])
    assert "int too large" in caplog.text
    write("objective: fragmentation\n")
    await reloading.look()
    assert ([each.objective for each in taken], results) == ([Objective.FRAGMENTATION], ["refused", "applied"])


@pytest.mark.parametrize(
    "text",
    [f"{PROFILE}podInitialBackoffSeconds: {'9' * 400}\n", f"apiVersion: 0x{'f' * 5000}\nkind: x\n", f"? 0x{'f' * 5000}\n: 1\n"],
)
async def test_a_number_that_nobody_can_print_is_refused_in_one_line(write: Write, caplog: pytest.LogCaptureFixture, text: str) -> None:
    write(PROFILE)
    reloading, taken = begin()
    write(text)
    await reloading.look()
    assert (taken, taken.results) == ([], ["refused"])
    [record] = caplog.records
    assert record.exc_info is None
    assert "\n" not in record.getMessage()
