"""Tests the building of a kind cluster without a registry, as far as neither docker nor root is needed."""

import hashlib
import io
import json
import platform
import re
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from allaboard.cli.stories import STORIES
from tests.cache import key_of
from tests.e2e.controlplane.binaries import MissingToolError
from tests.e2e.kind import __main__ as main
from tests.e2e.kind import held, images, programs, steps
from tests.e2e.kind.archives import Image, write
from tests.e2e.kind.daemon import KernelSettings

ROOT = Path(__file__).parents[2]


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {each.name: (tar.extractfile(each) or io.BytesIO()).read() for each in tar.getmembers()}


@pytest.fixture
def images_of_two(tmp_path: Path) -> list[Image]:
    """Return two images of one program. The first also has a link to the program, and its registry has a port."""
    (tmp_path / "program").write_bytes(b"#!/bin/true\n")
    files = {"/usr/bin/program": tmp_path / "program"}
    first = Image("registry.example:5000/a/first:v1", files, ["/usr/bin/program"], {"/usr/bin/other": "program"})
    return [first, Image("second:v2", files)]


def test_archive_lists_every_image_by_tag_for_docker_and_for_kind(images_of_two: list[Image], tmp_path: Path) -> None:
    write(tmp_path / "archive.tar", images_of_two)

    found = members(tmp_path / "archive.tar")
    assert list(found)[:2] == ["repositories", "manifest.json"]
    repositories, manifest = json.loads(found["repositories"]), json.loads(found["manifest.json"])
    assert {name: list(tags) for name, tags in repositories.items()} == {"registry.example:5000/a/first": ["v1"], "second": ["v2"]}
    assert [entry["RepoTags"] for entry in manifest] == [["registry.example:5000/a/first:v1"], ["second:v2"]]
    for entry in manifest:
        (layer,) = entry["Layers"]
        digest = hashlib.sha256(found[layer]).hexdigest()
        config = json.loads(found[entry["Config"]])
        assert layer == f"{digest}/layer.tar"
        assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
        assert entry["Config"] == hashlib.sha256(found[entry["Config"]]).hexdigest() + ".json"
    write(tmp_path / "again.tar", images_of_two)
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "archive.tar").read_bytes()


def test_image_layer_has_folders_before_their_files_and_symbolic_links(images_of_two: list[Image], tmp_path: Path) -> None:
    write(tmp_path / "archive.tar", images_of_two[:1])
    (layer,) = (data for name, data in members(tmp_path / "archive.tar").items() if name.endswith("layer.tar"))

    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        entries = tar.getmembers()
    order = [entry.name for entry in entries]
    by_name = {entry.name: entry for entry in entries}
    assert order.index("usr") < order.index("usr/bin") < order.index("usr/bin/program")
    assert by_name["tmp"].mode == 0o1777
    assert by_name["usr/bin/program"].mode == 0o755
    assert by_name["usr/bin/other"].issym()
    assert by_name["usr/bin/other"].linkname == "program"


def test_image_has_the_architecture_of_the_building_machine(images_of_two: list[Image], tmp_path: Path) -> None:
    write(tmp_path / "archive.tar", images_of_two)
    found = members(tmp_path / "archive.tar")
    configs = [json.loads(found[entry["Config"]]) for entry in json.loads(found["manifest.json"])]
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    assert {config["architecture"] for config in configs} == {known[platform.machine()]}


def test_available_capabilities_are_read_from_the_bounding_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_: "Name:\tx\nCapBnd:\t000001fffeffffff\nSeccomp:\t0\n")
    assert "CAP_SYS_RESOURCE" not in held.held()
    assert {"CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_CHECKPOINT_RESTORE"} <= held.held()
    assert len(held.held()) == 40


@pytest.mark.parametrize("option", ["--bundle", "-b", "--process", "-p"])
def test_runc_is_started_with_available_capabilities_only(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process: dict[str, Any] = {"args": ["sh"], "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "ambient": None}}
    is_bundle = option in ("--bundle", "-b")
    path = tmp_path / ("config.json" if is_bundle else "process.json")
    path.write_text(json.dumps({"process": process, "root": {}} if is_bundle else process))
    commands: list[list[str]] = []
    monkeypatch.setattr(held, "held", lambda: {"CAP_CHOWN"})
    monkeypatch.setattr(held.os, "execv", lambda _, words: commands.append(words))

    held.main(["--root", "/x", "create", option, str(tmp_path if is_bundle else path), "name"])

    written = json.loads(path.read_text())
    trimmed = written["process"] if is_bundle else written
    assert trimmed == {"args": ["sh"], "capabilities": {"bounding": ["CAP_CHOWN"], "ambient": []}}
    assert [words[1:] for words in commands] == [["--root", "/x", "create", option, str(tmp_path if is_bundle else path), "name"]]


def test_process_without_capabilities_is_not_changed() -> None:
    process: dict[str, Any] = {"args": ["sh"]}
    held.trim(process)
    assert process == {"args": ["sh"]}


def test_cache_key_depends_on_where_its_parts_are_split() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of("a") == key_of(b"a")
    assert re.fullmatch("[0-9a-f]{12}", key_of("a"))


def test_failed_step_reports_its_output_and_exit_status(tmp_path: Path) -> None:
    run = steps.Steps(tmp_path, Console(quiet=True)).run
    assert run("a step", ["echo", "said"]) == "said\n"
    with pytest.raises(MissingToolError, match="a step failed with 3:\nsaid"):
        run("a step", ["sh", "-c", "echo said; exit 3"])


@pytest.mark.parametrize("change", [{"flags": ("-tags", "other")}, {"version": "0"}, {"with_cgo": True}])
def test_node_image_has_another_tag_when_a_program_is_built_differently(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = images.node_tag()
    monkeypatch.setattr(images, "NODE", (*programs.NODE[:-1], replace(programs.NODE[-1], **change)))
    assert images.node_tag() != before


@pytest.mark.skipif(sys.platform != "linux", reason="node images are built on Linux")
def test_program_that_needs_libraries_of_this_machine_is_refused_for_a_node_image(tmp_path: Path) -> None:
    (tmp_path / "alone").write_text("#!/bin/true\n")
    images.refuse_linked([tmp_path / "alone"])
    with pytest.raises(MissingToolError, match=r"(?s)/bin/sh can't be part of a node.*libc"):
        images.refuse_linked([tmp_path / "alone", Path("/bin/sh")])


def test_wheels_of_the_sandbox_are_downloaded_at_the_tested_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(_: str, command: list[Any]) -> None:
        ran.append([str(word) for word in command])
        Path(command[command.index("--dest") + 1]).mkdir(exist_ok=True)

    all_steps = steps.Steps(tmp_path, Console(quiet=True))
    monkeypatch.setattr(steps.Steps, "run", lambda _, what, command: run(what, command))
    images.ensure_wheels(all_steps, Path(sys.executable))

    (command,) = (each for each in ran if "--constraint" in each)
    assert command[command.index("--constraint") + 1] == str(ROOT / "constraints.txt")
    assert {requirement.partition(">=")[0] for requirement in command} >= {"jsonpatch", "jsonschema"}


def test_node_image_counts_as_built_if_a_file_marks_any_build_as_done(tmp_path: Path) -> None:
    assert not images.was_built(tmp_path)
    (tmp_path / "daemon").mkdir()
    assert not images.was_built(tmp_path)
    (tmp_path / "daemon" / "0123.built").touch()
    assert images.was_built(tmp_path)


def test_kernel_settings_are_restored_even_if_an_earlier_run_was_killed(tmp_path: Path) -> None:
    kernel, kept = tmp_path / "sys", tmp_path / "kept"
    panic, instances = kernel / "kernel" / "panic", kernel / "fs" / "inotify" / "max_user_instances"
    for setting in (panic, instances):
        setting.parent.mkdir(parents=True)
    panic.write_text("0\n")
    instances.write_text("128\n")
    kept.mkdir()

    killed = KernelSettings(kept, kernel)
    killed.note()
    killed.raise_limit()
    panic.write_text("10\n")
    following = KernelSettings(kept, kernel)
    following.note()
    following.raise_limit()
    assert int(instances.read_text()) > 128
    following.put_back()

    assert (panic.read_text(), instances.read_text()) == ("0\n", "128\n")
    assert list(kept.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ([], ["tests/e2e"]),
        (["-k", "operator"], ["tests/e2e", "-k", "operator"]),
        (["-x", "tests/e2e/kind"], ["-x", "tests/e2e/kind"]),
        (["tests/e2e/test_stories.py::missing"], ["tests/e2e/test_stories.py::missing"]),
        (["tests/nowhere.py"], ["tests/e2e", "tests/nowhere.py"]),
    ],
)
def test_all_end_to_end_tests_are_run_unless_paths_are_given(words: list[str], chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main._chosen(words) == chosen


def test_ci_sample_names_existing_tests() -> None:
    (sample,) = re.findall(r"-k '(.*)'", (ROOT / ".ci" / "run").read_text())
    story, *others = sample.split(" or ")
    written = "".join(path.read_text() for path in (ROOT / "tests" / "e2e" / "kind").glob("test_*.py"))
    for word in others:
        assert re.search(rf"def test_\w*{word}", written), word
    assert story in {each.name for each in STORIES}
