"""Tests which releases of Kubernetes the end-to-end tests can use, how each is built, and what runs every night."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.controlplane import binaries, modules, releases
from tests.e2e.controlplane.binaries import Program
from tests.e2e.controlplane.releases import Release, UnknownReleaseError

ROOT = Path(__file__).parents[2]
OLD, NEW = Release("1.9", "1.9.11"), Release("1.10", "1.10.0")
PACKAGES = ("k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-scheduler")
# Output of `go mod edit -json` for the go.mod of k8s.io/kubernetes 1.34.11: most modules are removed, and a fork is added.
KUBERNETES_GO_MOD: dict[str, Any] = {
    "Module": {"Path": "k8s.io/kubernetes"},
    "Go": "1.25.0",
    "GoDebug": [{"Key": "default", "Value": "go1.24"}],
    "Replace": [
        {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
        {"Old": {"Path": "k8s.io/kubectl"}, "New": {"Path": "./staging/src/k8s.io/kubectl"}},
        {"Old": {"Path": "example.com/fork"}, "New": {"Path": "example.com/forked", "Version": "v1.0.0"}},
    ],
}
MODULE = """\
// Made by `python -m tests.e2e.controlplane module 1.34.11`.
module allaboard.dev/controlplane/kubernetes

go 1.25.0

godebug default=go1.24

tool (
	k8s.io/kubernetes/cmd/kube-apiserver
	k8s.io/kubernetes/cmd/kube-scheduler
)

require k8s.io/kubernetes v1.34.11

replace (
	k8s.io/api => k8s.io/api v0.34.11
	k8s.io/kubectl => k8s.io/kubectl v0.34.11
)
"""


def test_releases_are_listed_from_module_folders_in_numeric_order(tmp_path: Path) -> None:
    for release, required in ((NEW, "require "), (OLD, "require (\n\t")):
        (tmp_path / release.minor).mkdir()
        (tmp_path / release.minor / "go.mod").write_text(f"go 1.26.0\n\n{required}k8s.io/kubernetes v{release.version} // indirect\n")
    assert releases.all_releases(tmp_path) == [OLD, NEW]


@pytest.mark.parametrize(("minor", "release"), [("", NEW), ("1.10", NEW), ("1.9", OLD)])
def test_newest_release_is_used_unless_one_is_requested(minor: str, release: Release) -> None:
    assert releases.choose(minor, [OLD, NEW]) == release


@pytest.mark.parametrize("minor", ["1.1", "1.9.11", "newest"])
def test_kubernetes_release_without_a_go_module_is_refused_with_a_list_of_the_releases_that_have_one(minor: str) -> None:
    with pytest.raises(UnknownReleaseError, match=rf"^K8S={minor}: .*only of 1\.9, 1\.10;"):
        releases.choose(minor, [OLD, NEW])


def test_unknown_release_is_reported_in_one_line() -> None:
    command = [sys.executable, "-m", "tests.e2e.controlplane", "build"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "K8S": "1.2"}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith("K8S=1.2: no control plane of that release can be built")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("version", "order"), [("1.34", (1, 34)), ("v1.37.0+sandbox", (1, 37, 0)), ("1.38.0-beta.1", (1, 38, 0))])
def test_version_is_ordered_by_its_numbers(version: str, order: tuple[int, ...]) -> None:
    assert releases.order(version) == order


def test_installed_apiserver_is_not_used_when_a_release_is_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kube-apiserver", "kubectl", "etcd"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("K8S", raising=False)
    assert binaries.locate(binaries.APISERVER) == tmp_path / "kube-apiserver"
    monkeypatch.setenv("K8S", "1.34")
    assert binaries.locate(binaries.APISERVER) is None
    assert binaries.locate(binaries.KUBECTL) == tmp_path / "kubectl"
    assert binaries.locate(binaries.ETCD) == tmp_path / "etcd"


def test_program_that_is_built_differently_has_another_cache_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "HERE", tmp_path)
    (tmp_path / "pinned").mkdir()
    for name in ("go.mod", "go.sum"):
        (tmp_path / "pinned" / name).write_text("as it is\n")
    program = Program("made", "1.0.0", "example.com/made", "pinned", ("-ldflags", "-s -w"))
    others = [replace(program, **change) for change in ({"flags": ()}, {"with_cgo": True}, {"module": ""}, {"version": "1.0.1"})]
    keys = [program.key, *(other.key for other in others)]
    for name in ("go.mod", "go.sum"):
        (tmp_path / "pinned" / name).write_text("changed\n")
        keys.append(program.key)
    assert len(set(keys)) == len(keys)
    assert replace(program, exact=True).key == program.key
    assert Program("made", "1.0.0", "example.com/made").key == "made-1.0.0"


def test_go_module_has_the_published_modules_of_its_release_and_the_go_settings_of_kubernetes() -> None:
    assert modules.go_mod("1.34.11", KUBERNETES_GO_MOD, PACKAGES) == MODULE


def test_go_module_has_no_go_settings_if_kubernetes_has_none() -> None:
    assert "godebug" not in modules.go_mod("1.34.11", {**KUBERNETES_GO_MOD, "GoDebug": None}, PACKAGES)


@pytest.mark.parametrize("release", releases.all_releases(), ids=lambda release: release.minor)
def test_go_module_replaces_staging_modules_by_those_of_its_own_release(release: Release) -> None:
    module = (releases.FOLDER / release.minor / "go.mod").read_text()
    assert release.version.startswith(f"{release.minor}.")
    assert set(re.findall(r"=> k8s\.io/\S+ v(\S+)", module)) == {f"0.{release.version.removeprefix('1.')}"}


def test_nightly_workflow_and_make_nightly_run_every_release() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yaml").read_text())
    assert workflow["jobs"]["e2e"]["strategy"]["matrix"]["kubernetes"] == [release.minor for release in releases.all_releases()]
    done = subprocess.run(["make", "--dry-run", "nightly"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(f"K8S={release.minor}" in done.stdout for release in releases.all_releases())


def test_make_e2e_runs_in_parallel_but_in_one_process_on_an_existing_cluster() -> None:
    def command(*words: str) -> str:
        return subprocess.run(["make", "--dry-run", "e2e", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert re.search(r"pytest .* tests/e2e +tests/integration -n \d+ --dist loadfile", command())
    existing = command("E2E_EXISTING=1")
    assert "--ignore=tests/e2e/test_judged.py" in existing
    assert "tests/integration" not in existing
    assert " -n " not in existing


def test_scheduled_workflows_run_every_command_of_make_nightly() -> None:
    done = subprocess.run(["make", "--dry-run", "nightly"], cwd=ROOT, capture_output=True, text=True, check=True)
    nightly = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yaml") if "- cron:" in path.read_text()]
    for target, command in (
        ("e2e", "pytest --home=controlplane tests/e2e"),
        ("e2e-kind", "tests.e2e.kind"),
        ("faults", "tests.faults"),
        ("test-busy", "--timeout=900"),
    ):
        assert command in done.stdout
        assert any(re.search(rf"run: make {target}$", text, re.MULTILINE) for text in nightly), target
