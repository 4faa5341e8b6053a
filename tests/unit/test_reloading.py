"""Tests that a changed configuration file is applied while the scheduler runs."""

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


class Applied(list[Settings]):
    """The settings that were applied, and the results that were counted."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[str] = []


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that replaces the file as a kubelet does: with a symbolic link to another folder."""
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


def begin() -> tuple[Reloading, Applied]:
    applied = Applied()
    return Reloading(load_settings(), applied.append, applied.results.append), applied


async def test_changed_configuration_file_is_applied_and_an_unchanged_one_is_not(write: Write) -> None:
    write("objective: binpack\n")
    reloading, applied = begin()
    await reloading.check()
    assert applied == []
    write("objective: binpack\n")
    await reloading.check()
    assert applied == []
    write("objective: spread\ntopology: rack\npacking: {shape: {0: 10, 100: 0}}\nschedule_timeout_seconds: 9\n")
    await reloading.check()
    [settings] = applied
    assert (settings.objective, settings.topology, settings.schedule_timeout_seconds) == (Objective.SPREAD, "rack", 9)
    assert settings.packing.parsed.shape == ((0, 10), (100, 0))
    assert applied.results == ["applied"]


async def test_changed_profile_is_applied(write: Write) -> None:
    write(PROFILE)
    reloading, applied = begin()
    write(PROFILE.replace("Most", "Least"))
    await reloading.check()
    [settings] = applied
    assert settings.profiles["batch"].scoring.strategy is Strategy.LEAST


async def test_scheduler_name_whose_profile_is_removed_keeps_the_profile_with_a_message(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write(PROFILE)
    reloading, applied = begin()
    for text in (PROFILE.replace("batch", "batched"), PROFILE.partition("profiles")[0], "objective: spread\n"):
        caplog.clear()
        write(text)
        await reloading.check()
        assert applied[-1].scheduler_names == ("allaboard", "batch")
        assert {name: each.scoring.strategy for name, each in applied[-1].profiles.items()} == {"batch": Strategy.MOST}
        assert "'batch' no longer has a profile in the file; it keeps its scoring until the operator starts again" in caplog.text
        assert ("pods of schedulerName 'batched' aren't scheduled until the operator starts again" in caplog.text) == ("batched" in text)
    for text in (PROFILE.replace("Most", "Least"), "objective: spread\n"):
        write(text)
        await reloading.check()
        assert applied[-1].profiles["batch"].scoring.strategy is Strategy.LEAST


@pytest.mark.parametrize("text", ["", "# objective: spread\n", "---\n---\n"])
async def test_reloaded_file_without_settings_is_refused(write: Write, caplog: pytest.LogCaptureFixture, text: str) -> None:
    write(PROFILE)
    reloading, applied = begin()
    write(text)
    await reloading.check()
    assert (applied, applied.results) == ([], ["refused"])
    assert "scheduler.yaml: states nothing; was it cut off?" in caplog.text


async def test_invalid_configuration_file_changes_no_setting_and_is_logged_once(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    write(PROFILE)
    reloading, applied = begin()
    write(PROFILE.replace("MostAllocated", "Most"))
    await reloading.check()
    await reloading.check()
    assert (applied, applied.results) == ([], ["refused"])
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "scheduler.yaml: profiles[0].pluginConfig[0].args.scoringStrategy.type: must be one of" in record.getMessage()
    write(PROFILE.replace("Most", "Least"))
    await reloading.check()
    assert applied[0].profiles["batch"].scoring.strategy is Strategy.LEAST


async def test_missing_configuration_file_changes_no_setting(write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write("objective: spread\n")
    reloading, applied = begin()
    (tmp_path / "..data").unlink()
    await reloading.check()
    assert (applied, applied.results) == ([], ["refused"])
    assert "can't be read: No such file or directory" in caplog.text
    write("objective: spread\n")
    await reloading.check()
    assert applied.results == ["refused", "applied"]


async def test_options_that_can_not_change_at_run_time_are_kept_with_a_message(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    write("metrics_port: 8080\nobjective: spread\n")
    reloading, applied = begin()
    write(f"{PROFILE}---\napiVersion: allaboard.dev/v1alpha1\nkind: AllaboardConfiguration\nmetricsPort: 9090\nobjective: binpack\n")
    await reloading.check()
    [settings] = applied
    assert (settings.metrics_port, settings.scheduler_names, settings.objective) == (8080, ("allaboard",), Objective.BINPACK)
    kept = [record.getMessage() for record in caplog.records if "stays as it was" in record.getMessage()]
    assert [message.split(": ")[1] for message in kept] == ["metrics_port", "scheduler_names"]
    assert "pods of schedulerName 'batch' aren't scheduled until the operator starts again" in caplog.text


async def test_change_of_the_configuration_file_after_an_unexpected_error_is_applied(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write("objective: spread\n")
    results: list[str] = []
    applied: list[Settings] = []
    defects = [OverflowError("int too large to convert to float")]

    def load() -> Settings:
        if defects:
            raise defects.pop()
        return load_settings()

    reloading = Reloading(load_settings(), applied.append, results.append, load)
    write("objective: binpack\n")
    await reloading.check()
    assert (applied, results) == ([], ["refused"])
    assert "int too large" in caplog.text
    write("objective: fragmentation\n")
    await reloading.check()
    assert ([each.objective for each in applied], results) == ([Objective.FRAGMENTATION], ["refused", "applied"])


@pytest.mark.parametrize(
    "text",
    [f"{PROFILE}podInitialBackoffSeconds: {'9' * 400}\n", f"apiVersion: 0x{'f' * 5000}\nkind: x\n", f"? 0x{'f' * 5000}\n: 1\n"],
)
async def test_number_that_is_too_long_to_print_is_refused_in_one_line(write: Write, caplog: pytest.LogCaptureFixture, text: str) -> None:
    write(PROFILE)
    reloading, applied = begin()
    write(text)
    await reloading.check()
    assert (applied, applied.results) == ([], ["refused"])
    [record] = caplog.records
    assert record.exc_info is None
    assert "\n" not in record.getMessage()
