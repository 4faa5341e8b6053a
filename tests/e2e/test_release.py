"""What a release consists of is made, and works where nothing else of the project is; workflows are what GitHub takes."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from allaboard import __version__

from .controlplane.binaries import ACTIONLINT, HELM, ensure
from .test_shipped import NAMESPACE, ROOT, Kubectl, api_server, installed, kubectl, manifests

__all__ = ["api_server", "installed", "kubectl", "manifests"]

pytestmark = pytest.mark.timeout(600)  # packages may have to be downloaded

Body = dict[str, Any]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What .ci/release makes, of a copy of what is committed or will be."""
    source = tmp_path_factory.mktemp("release") / "source"
    source.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    subprocess.run(["tar", "-C", ROOT, "-cf", source.parent / "source.tar", "-T", "-"], input=listed, text=True, check=True)
    subprocess.run(["tar", "-C", source, "-xf", source.parent / "source.tar"], check=True)
    helm = ensure([HELM], Console(stderr=True))["helm"]
    done = subprocess.run(
        [source / ".ci" / "release", f"v{__version__}", "registry.example/allaboard"],
        env={**os.environ, "HELM": str(helm), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return source / "dist"


def test_a_release_is_packages_a_chart_one_file_to_apply_and_their_sums(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()}
    packages = {f"allaboard-{__version__}.tar.gz", f"allaboard-{__version__}-py3-none-any.whl", f"allaboard-{__version__}.tgz"}
    assert names == {*packages, "install.yaml", "SHA256SUMS"}
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(names) - 1


@pytest.mark.parametrize("suffix", ["-py3-none-any.whl", ".tar.gz"])
def test_a_package_runs_where_nothing_else_of_the_project_is(suffix: str, dist: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "--requirement", ROOT / "requirements.txt"], cwd=tmp_path, check=True)
    subprocess.run([*pip, "--no-deps", dist / f"allaboard-{__version__}{suffix}"], cwd=tmp_path, check=True)
    program = tmp_path / "venv" / "bin" / "allaboard"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KUBECONFIG")}
    told = subprocess.run([program, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert __version__ in told
    example = tmp_path / "venv" / "share" / "allaboard" / "examples" / "tfjob-smoke-gpu.yaml"
    nodes = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    status = {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}, "conditions": [_READY]}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(nodes | {"status": status}))
    command = [program, "plan", "--cluster", "nodes.yaml", "-f", example]
    planned = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr
    assert "tf-smoke-gpu" in planned.stdout


def test_no_package_holds_anything_that_nobody_runs(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"allaboard-{__version__}-py3-none-any.whl") as wheel:
        held = {name.split("/")[0] for name in wheel.namelist()}
    assert held == {"allaboard", "allaboard_sandbox", f"allaboard-{__version__}.data", f"allaboard-{__version__}.dist-info"}
    with tarfile.open(dist / f"allaboard-{__version__}.tgz") as chart:
        files = set(chart.getnames())
    assert {"allaboard/Chart.yaml", "allaboard/crds/podgroups.scheduling.x-k8s.io.yaml", "allaboard/files/rbac/cluster-role.yaml"} <= files


def test_the_one_file_is_all_of_config_with_the_image_of_the_release(
    dist: Path, kubectl: Kubectl, installed: None, manifests: list[Body]
) -> None:
    text = (dist / "install.yaml").read_text()
    objects = [each for each in yaml.safe_load_all(text) if each]
    named = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert [kind for kind, _ in named[:2]] == ["CustomResourceDefinition"] * 2
    assert named[2:] == [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert f"image: registry.example/allaboard:{__version__}" in text
    assert {each["metadata"].get("namespace", NAMESPACE) for each in objects} == {NAMESPACE}
    kubectl("apply", "-f", str(dist / "install.yaml"), "--dry-run=server", "--warnings-as-errors")


@pytest.mark.parametrize("version", ["0.0.9", ""])
def test_another_version_than_the_projects_is_refused(version: str) -> None:
    done = subprocess.run([ROOT / ".ci" / "release", version], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert ("states" if version else "usage") in done.stderr


def test_workflows_are_what_github_takes_and_pin_every_action() -> None:
    folder = ROOT / ".github" / "workflows"
    program = ensure([ACTIONLINT], Console(stderr=True))["actionlint"]
    done = subprocess.run([program, "-no-color", *sorted(folder.glob("*.yaml"))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    used = [line for path in folder.glob("*.yaml") for line in re.findall(r"uses: (.*)", path.read_text())]
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line)] == []


_READY = {"type": "Ready", "status": "True"}
