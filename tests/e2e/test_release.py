"""A release is complete, and works without the rest of the project; workflows are valid for GitHub."""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from allaboard import __version__

from .controlplane.binaries import ACTIONLINT, CRANE, HELM, KREW, ensure
from .kind.nodes import CLUSTER
from .shipped import NAMESPACE, ROOT, Kubectl, api_server, installed, kubectl, manifests

__all__ = ["api_server", "installed", "kubectl", "manifests"]

pytestmark = pytest.mark.timeout(600)  # packages may have to be downloaded

REPOSITORY = "https://code.example/gangs/allaboard"
IS_OFFLINE = bool(CLUSTER) and "PIP_NO_INDEX" in os.environ
"""True if no package index can be reached, as on a kind cluster that was built here."""

Body = dict[str, Any]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of all files that aren't ignored by git."""
    source = tmp_path_factory.mktemp("release") / "source"
    source.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    subprocess.run(["tar", "-C", ROOT, "-cf", source.parent / "source.tar", "-T", "-"], input=listed, text=True, check=True)
    subprocess.run(["tar", "-C", source, "-xf", source.parent / "source.tar"], check=True)
    return source


@pytest.fixture(scope="module")
def dist(source: Path) -> Path:
    """Return the folder with the release that .ci/release builds from a copy of the project."""
    return _release(source)


def test_release_consists_of_packages_a_chart_a_plugin_manifests_and_checksums(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()}
    packages = {
        f"{name}-{__version__}{suffix}" for name in ("allaboard", "allaboard_sandbox") for suffix in (".tar.gz", "-py3-none-any.whl")
    }
    plugin = {"allaboard.yaml", "kubectl-allaboard.tar.gz"}
    assert names == {*packages, *plugin, f"allaboard-{__version__}.tgz", "prerequisites.yaml", "install.yaml", "SHA256SUMS"}
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(names) - 1


def test_release_has_the_same_bytes_with_another_umask_and_at_another_time(source: Path, dist: Path, tmp_path: Path) -> None:
    again = shutil.copytree(source, tmp_path / "again", ignore=shutil.ignore_patterns("build", "dist"))
    for path in again.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)  # as with a strict umask
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert (_release(again, umask=0o077) / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_archives_of_a_release_contain_no_owner_and_no_time(dist: Path) -> None:
    for path in dist.glob("*.tar.gz"):
        with tarfile.open(path) as archive:
            members = archive.getmembers()
        assert [each.name for each in members] == sorted((each.name for each in members), key=lambda name: name.split("/"))
        assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in members} == {(0, 0, "", "", 0)}


@pytest.fixture(scope="module", params=["-py3-none-any.whl", ".tar.gz"])
def elsewhere(request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the released package and the image's requirements."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    _install(folder, "--require-hashes", "--requirement", ROOT / "requirements.txt")
    _install(folder, "--no-deps", dist / f"allaboard-{__version__}{request.param}")
    return folder


def test_package_runs_without_the_rest_of_the_project(elsewhere: Path, tmp_path: Path) -> None:
    program, environment = elsewhere / "bin" / "allaboard", _without_the_project()
    output = subprocess.run([program, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert __version__ in output
    example = elsewhere / "share" / "allaboard" / "examples" / "tfjob-smoke-gpu.yaml"
    nodes = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    status = {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}, "conditions": [_READY]}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(nodes | {"status": status}))
    command = [program, "plan", "--cluster", "nodes.yaml", "-f", example]
    planned = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr
    assert "tf-smoke-gpu" in planned.stdout


def test_sandbox_is_a_package_of_its_own_that_the_demo_needs(elsewhere: Path, dist: Path, tmp_path: Path) -> None:
    command, environment = [elsewhere / "bin" / "allaboard", "demo", "--story", "nginx-4"], _without_the_project()
    without = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (without.returncode, without.stdout) == (2, "")
    assert "pip install 'allaboard[sandbox]'" in without.stderr

    (extra,) = re.findall(r"^Requires-Dist: (\S+); extra == .sandbox.$", _metadata(dist, "allaboard"), re.MULTILINE)
    _install(elsewhere, "--find-links", dist, "--constraint", ROOT / "constraints.txt", extra)
    played = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "all ended as expected" in played.stdout


def test_packages_contain_no_files_that_are_not_used(dist: Path) -> None:
    for name, data in (("allaboard", {f"allaboard-{__version__}.data"}), ("allaboard_sandbox", set())):
        with zipfile.ZipFile(dist / f"{name}-{__version__}-py3-none-any.whl") as wheel:
            packed = {file.split("/")[0] for file in wheel.namelist()}
        assert packed == {name, f"{name}-{__version__}.dist-info", *data}
    with tarfile.open(dist / f"allaboard-{__version__}.tgz") as chart:
        files = set(chart.getnames())
        values = yaml.safe_load(chart.extractfile("allaboard/values.yaml") or b"")
    assert values["image"]["repository"] == "registry.example/allaboard"
    assert values["alerts"]["runbooks"] == f"{REPOSITORY}/blob/v{__version__}/docs/runbooks"
    assert {"allaboard/Chart.yaml", "allaboard/crds/podgroups.scheduling.x-k8s.io.yaml", "allaboard/files/rbac/cluster-role.yaml"} <= files


@pytest.mark.parametrize("name", ["allaboard", "allaboard_sandbox"])
def test_links_on_the_index_page_of_a_package_lead_to_the_released_version(name: str, dist: Path) -> None:
    head, _, page = _metadata(dist, name).partition("\n\n")
    urls = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", head, re.MULTILINE))
    assert urls.keys() == {"Source", "Documentation", "Changelog", "Issues"}
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    released = f"{REPOSITORY}/(?:blob|tree)/v{re.escape(__version__)}/"
    paths = [found[1] for link in (*links, *urls.values()) if (found := re.fullmatch(rf"{released}([^#?]+)(?:[#?].*)?", link))]
    assert "CHANGELOG.md" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_plugin_that_krew_has_installed_runs_the_installed_package(elsewhere: Path, dist: Path, tmp_path: Path) -> None:
    manifest, archive = dist / "allaboard.yaml", dist / "kubectl-allaboard.tar.gz"
    (platform,) = yaml.safe_load(manifest.read_text())["spec"]["platforms"]
    assert platform["uri"] == f"{REPOSITORY}/releases/download/v{__version__}/{archive.name}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    krew = ensure([KREW], Console(stderr=True))["krew"]
    environment = {**_without_the_project(), "KREW_ROOT": str(tmp_path / "krew"), "KREW_NO_UPGRADE_CHECK": "1"}
    done = subprocess.run(
        [krew, "install", f"--manifest={manifest}", f"--archive={archive}"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    kubectl = shutil.which("kubectl")
    assert kubectl
    environment["PATH"] = f"{tmp_path / 'krew' / 'bin'}:{elsewhere / 'bin'}:/usr/bin:/bin"
    output = subprocess.run(
        [kubectl, "allaboard", "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert output.startswith("Usage: kubectl allaboard ")

    # Without the package, uv and pipx, the plugin names the release's own wheel, which lies beside it.
    environment["PATH"] = f"{tmp_path / 'krew' / 'bin'}:/usr/bin:/bin"
    errors = subprocess.run(
        [kubectl, "allaboard", "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    ).stderr
    (wheel,) = (Path(word) for word in errors.split() if word.endswith(".whl"))
    assert wheel.is_relative_to(tmp_path / "krew" / "store")
    assert wheel.read_bytes() == (dist / f"allaboard-{__version__}-py3-none-any.whl").read_bytes()


@pytest.mark.skipif(IS_OFFLINE, reason="the program's requirements are fetched from a package index")
@pytest.mark.parametrize("fetcher", ["uv", "pipx"])
def test_plugin_runs_the_wheel_of_its_release_with_uv_or_pipx(fetcher: str, dist: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "fetcher"], check=True)
    _install(tmp_path / "fetcher", "--constraint", ROOT / "constraints.txt", "uv", "pipx")  # pipx is quicker where uv is beside it
    (tmp_path / "path").mkdir()
    for program in {"uv": ("uv", "uvx"), "pipx": ("pipx",)}[fetcher]:
        (tmp_path / "path" / program).symlink_to(tmp_path / "fetcher" / "bin" / program)
    with tarfile.open(dist / "kubectl-allaboard.tar.gz") as archive:
        archive.extractall(tmp_path / "plugin", filter="data")
    (tmp_path / "link").symlink_to(tmp_path / "plugin" / "kubectl-allaboard")  # like krew's link
    environment = {
        **_without_the_project(),
        "PATH": f"{tmp_path / 'path'}:/usr/bin:/bin",
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "UV_CONSTRAINT": str(ROOT / "constraints.txt"),
        "UV_PYTHON": sys.executable,
    }
    done = subprocess.run([tmp_path / "link", "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"kubectl allaboard, version {__version__}"


def test_install_yaml_has_all_objects_of_config_but_crds_and_namespace_and_the_image_of_the_release(
    dist: Path, kubectl: Kubectl, installed: None, manifests: list[Body]
) -> None:
    text = (dist / "install.yaml").read_text()
    objects = [each for each in yaml.safe_load_all(text) if each]
    named = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert named == [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert not {kind for kind, _ in named} & {"CustomResourceDefinition", "Namespace"}
    stays = list(yaml.safe_load_all((dist / "prerequisites.yaml").read_text()))
    assert [each["kind"] for each in stays] == ["CustomResourceDefinition", "CustomResourceDefinition", "Namespace"]
    kubectl("apply", "-f", str(dist / "prerequisites.yaml"), "--dry-run=server", "--warnings-as-errors")
    assert f"image: registry.example/allaboard:{__version__}" in text
    assert {each["metadata"].get("namespace", NAMESPACE) for each in objects} == {NAMESPACE}
    kubectl("apply", "-f", str(dist / "install.yaml"), "--dry-run=server", "--warnings-as-errors")


@pytest.mark.parametrize(
    ("arguments", "message"), [(["0.0.9", REPOSITORY], "states"), (["", REPOSITORY], "usage"), ([__version__], "usage")]
)
def test_release_whose_version_differs_from_that_of_the_project_is_refused(arguments: list[str], message: str) -> None:
    done = subprocess.run([ROOT / ".ci" / "release", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(
    ("file", "stated", "instead", "message"),
    [
        ("charts/allaboard/Chart.yaml", f"\nversion: {__version__}", "\nversion: 9.9.9", "Chart.yaml: version isn't"),
        ("charts/allaboard/Chart.yaml", f"\nappVersion: {__version__}", "\nappVersion: 9.9.9", "Chart.yaml: appVersion isn't"),
        ("CHANGELOG.md", f"\n## [{__version__}] - ", "\n## [9.9.9] - ", "CHANGELOG.md has no section"),
    ],
)
def test_nothing_is_built_if_the_project_states_different_versions(
    file: str, stated: str, instead: str, message: str, tmp_path: Path
) -> None:
    for part in (".ci", "charts", "CHANGELOG.md", "setup.cfg"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    text = (ROOT / file).read_text()
    assert stated in text
    (tmp_path / file).write_text(text.replace(stated, instead))
    command = [tmp_path / ".ci" / "release", __version__, REPOSITORY]
    done = subprocess.run(command, env={**os.environ, "HELM": "true"}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "dist").exists()


def test_build_tools_of_a_release_are_installed_by_hashes() -> None:
    installs = [line for line in (ROOT / ".ci" / "release").read_text().splitlines() if " pip install " in line]
    assert installs
    assert [line for line in installs if "--require-hashes --only-binary :all: --requirement" not in line] == []


def test_pushed_image_and_chart_are_those_that_were_built_and_are_named_by_digests(
    source: Path, dist: Path, tmp_path: Path, registry: str
) -> None:
    index = _write_image(source / "build" / "image.tar")
    programs = ensure([CRANE, HELM], Console(stderr=True))
    environment = {**os.environ, "CRANE": str(programs["crane"]), "HELM": str(programs["helm"]), "PLAIN_HTTP": "1"}
    done = subprocess.run(
        [source / ".ci" / "push", f"{registry}/gangs/allaboard"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pushed = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert pushed["image"] == f"{registry}/gangs/allaboard@sha256:{hashlib.sha256(index).hexdigest()}"

    def crane(*words: str) -> bytes:
        return subprocess.run([programs["crane"], "--insecure", *words], capture_output=True, check=True).stdout

    # The image has all its architectures and attestations, and is found by digest and by version.
    assert crane("manifest", pushed["image"]) == crane("manifest", f"{registry}/gangs/allaboard:{__version__}") == index
    for manifest in json.loads(index)["manifests"]:
        assert hashlib.sha256(crane("manifest", f"{registry}/gangs/allaboard@{manifest['digest']}")).hexdigest() in manifest["digest"]
    chart, _, _digest = pushed["chart"].partition("@")
    assert crane("digest", f"{chart}:{__version__}").decode().strip() in pushed["chart"]
    subprocess.run(
        [programs["helm"], "pull", f"oci://{chart}", "--version", __version__, "--plain-http", "--destination", tmp_path], check=True
    )
    assert (tmp_path / f"allaboard-{__version__}.tgz").read_bytes() == (dist / f"allaboard-{__version__}.tgz").read_bytes()


@pytest.mark.parametrize(
    ("title", "message"),
    [
        ("[1.2.3] - 2026-12-31", ""),
        ("[1.2.3] - unreleased", "is not a date"),
        ("[1.2.3]", "no section"),
        ("[11.2.3] - 2026-12-31", "no section"),
    ],
)
def test_notes_of_a_release_are_the_section_of_the_changelog_for_its_version_which_must_have_a_date(
    title: str, message: str, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {title}\n\n- [New](docs/new.md).\n\n## [1.2.2] - 2026-11-30\n\n- Old.\n")
    done = subprocess.run([sys.executable, tmp_path / ".ci" / "notes.py", "1.2.3", REPOSITORY], capture_output=True, text=True, check=False)
    assert message in done.stderr
    assert done.stdout == ("" if message else f"- [New]({REPOSITORY}/blob/v1.2.3/docs/new.md).\n")
    assert (done.returncode == 0) is not bool(message)


_IN_THIS_ORDER = (
    'test "$GITHUB_REF_NAME" = ',
    ".ci/notes.py",
    "'.ci/run'",
    ".ci/release",
    "upload-artifact",
    "pip-audit",
    "twine check --strict",
)


def test_jobs_with_write_permission_run_only_for_tags_and_after_an_approval() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())["jobs"]

    def before(name: str) -> set[str]:
        needed = jobs[name].get("needs", [])
        direct = {needed} if isinstance(needed, str) else set(needed)
        return direct.union(*map(before, direct))

    writing = [name for name, job in jobs.items() if "write" in str(job.get("permissions", ""))]
    assert writing
    for name in writing:
        assert jobs[name]["if"] == "github.event_name == 'push'"
        assert any("environment" in jobs[each] for each in {name, *before(name)})
    # Everything that is published was tested, built and tried as a dry run; the page of the release comes last.
    assert {name for name in writing if not {"artifacts", "image", "rehearsal"} <= before(name)} == set()
    assert before("github") == jobs.keys() - {"github"}
    # Packages without hashes are installed only after the files to publish are uploaded, out of their reach.
    steps = [str(step) for step in jobs["artifacts"]["steps"]]
    order = [next(number for number, step in enumerate(steps) if what in step) for what in _IN_THIS_ORDER]
    assert order == sorted(order)
    assert min(number for number, step in enumerate(steps) if "pip install" in step) > order[-3]
    signs = "".join(str(step.get("run", "")) for step in jobs["registry"]["steps"])
    assert re.findall(r"cosign sign --yes (.*)", signs) == ['"$image"', '"$chart"']
    attested = [step["with"] for step in jobs["registry"]["steps"] if "attest" in step.get("uses", "")]
    assert [each.get("subject-path", each.get("subject-digest")) for each in attested] == ["dist/*", "${{ steps.push.outputs.digest }}"]
    # PyPI takes one pending publisher for each environment.
    (environments,) = (
        [each["environment"] for each in job["strategy"]["matrix"]["include"]] for job in jobs.values() if "matrix" in str(job)
    )
    assert len(set(environments)) == len(environments) == 2


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yaml")), ids=lambda path: path.stem)
def test_workflows_may_only_read_by_default_and_have_no_unsafe_triggers(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    triggers = workflow[True]  # on
    assert set(triggers) <= {"push", "pull_request", "schedule", "workflow_dispatch"}
    pushed = triggers.get("push") or {"branches": ["main"]}
    assert pushed == ({"tags": ["v[0-9]+.[0-9]+.[0-9]+"]} if path.stem == "release" else {"branches": ["main"]})
    for name, job in workflow["jobs"].items():
        assert path.stem in ("release", "codeql") or "permissions" not in job, name
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts), name


def test_release_workflow_uses_the_tested_versions_of_tools() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    assert f"HELM_VERSION: v{HELM.version}\n" in workflow
    assert f"CRANE_VERSION: v{CRANE.version}\n" in workflow
    (uv,) = re.findall(r"^uv==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"UV: {uv} --hash=sha256:" in workflow


@pytest.mark.skipif(IS_OFFLINE, reason="the wheel is fetched from a package index")
def test_tool_that_publishes_a_release_is_installed_by_its_hash(tmp_path: Path) -> None:
    (uv,) = re.findall(r"^ *UV: (.*)$", (ROOT / ".github" / "workflows" / "release.yaml").read_text(), re.MULTILINE)
    (tmp_path / "requirements.txt").write_text(uv)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    runner = ["--platform", "manylinux_2_17_x86_64", "--dest", tmp_path, "--requirement", tmp_path / "requirements.txt"]
    done = subprocess.run([*pip, *runner], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_workflows_that_run_the_end_to_end_tests_fetch_the_whole_history() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yaml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            if re.search(r"make e2e|\.ci/run", str(job["steps"])):
                (checkout,) = (step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@"))
                assert checkout["with"]["fetch-depth"] == 0, path.name


def test_workflows_are_valid_and_pin_every_action() -> None:
    folder = ROOT / ".github" / "workflows"
    program = ensure([ACTIONLINT], Console(stderr=True))["actionlint"]
    done = subprocess.run([program, "-no-color", *sorted(folder.glob("*.yaml"))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    used = [line for path in folder.glob("*.yaml") for line in re.findall(r"uses: (.*)", path.read_text())]
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line)] == []


@pytest.fixture
def registry() -> Iterator[str]:
    """Yield the address of a registry without TLS."""
    crane = ensure([CRANE], Console(stderr=True))["crane"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with subprocess.Popen([crane, "registry", "serve", "--address", address], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            assert "serving" in process.stderr.readline()
            yield address
        finally:
            process.terminate()


def _release(source: Path, umask: int = -1) -> Path:
    helm = ensure([HELM], Console(stderr=True))["helm"]
    done = subprocess.run(
        [source / ".ci" / "release", f"v{__version__}", REPOSITORY, "registry.example/allaboard"],
        env={**os.environ, "HELM": str(helm), "PYTHON": sys.executable},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return source / "dist"


def _write_image(archive: Path) -> bytes:
    """Write an archive as buildx does, with an index of an image and its attestation, and return the index."""
    layout = archive.parent / "layout"
    (layout / "blobs" / "sha256").mkdir(parents=True)

    def blob(content: bytes, kind: str, **more: Any) -> Body:
        digest = hashlib.sha256(content).hexdigest()
        (layout / "blobs" / "sha256" / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content), **more}

    def manifest(layer: Body, **more: Any) -> Body:
        config = blob(b'{"architecture": "amd64", "os": "linux"}', f"{_OCI}.config.v1+json")
        body = {"schemaVersion": 2, "mediaType": f"{_OCI}.manifest.v1+json", "config": config, "layers": [layer]}
        return blob(json.dumps(body).encode(), f"{_OCI}.manifest.v1+json", **more)

    image = manifest(blob(b"layer", f"{_OCI}.layer.v1.tar+gzip"), platform={"architecture": "amd64", "os": "linux"})
    attested = {"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": image["digest"]}
    attestation = manifest(
        blob(b"{}", "application/vnd.in-toto+json"), platform={"architecture": "unknown", "os": "unknown"}, annotations=attested
    )
    index = json.dumps({"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": [image, attestation]}, indent=2).encode()
    outer = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": [blob(index, f"{_OCI}.index.v1+json")]}
    (layout / "index.json").write_text(json.dumps(outer))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    subprocess.run(["tar", "-C", layout, "-cf", archive, "."], check=True)
    return index


def _metadata(dist: Path, name: str) -> str:
    with zipfile.ZipFile(dist / f"{name}-{__version__}-py3-none-any.whl") as wheel:
        return wheel.read(f"{name}-{__version__}.dist-info/METADATA").decode()


def _install(environment: Path, *what: str | Path) -> None:
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *what], cwd=environment, check=True)


def _without_the_project() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KUBECONFIG")}


_OCI = "application/vnd.oci.image"
_READY = {"type": "Ready", "status": "True"}
