"""The image contains what its documentation lists and nothing more, and schedules with the Deployment's options and rights.

The tests need no Docker. They read the Dockerfile, do its installation in a folder, and start the program from there. The program gets
the image's environment, the Deployment's arguments and the service account's rights.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from allaboard import __version__
from allaboard.cli import bundled
from allaboard.cli.commands import run
from allaboard.settings.options import Settings
from allaboard_sandbox import NodeShape, node_object

from .controlplane.client import ApiError
from .controlplane.controlplane import ControlPlane
from .controlplane.operators import OperatorProcess
from .shipped import ROOT, Body, Kubectl, account_kubeconfig, api_server, container, deployment, installed, kubectl, manifests

__all__ = ["api_server", "container", "deployment", "installed", "kubectl", "manifests"]

GANG = "pod-group.scheduling.sigs.k8s.io"

pytestmark = pytest.mark.timeout(900)  # the image's packages may have to be downloaded


@dataclass(frozen=True, slots=True)
class Image:
    """The image as the Dockerfile describes it, with its Python environment in the folder ``prefix`` of this machine."""

    prefix: Path
    environment: dict[str, str]
    entrypoint: list[str]
    ports: set[int]
    user: str

    def command(self, *arguments: str) -> list[str]:
        """Return the command of the entry point with ``arguments``."""
        return [str(self.prefix / "bin" / self.entrypoint[0]), *self.entrypoint[1:], *arguments]

    def python(self, code: str) -> str:
        """Run ``code`` in the image's environment, and return its output."""
        command = [self.prefix / "bin" / "python", "-c", code]
        return subprocess.run(command, env=self.environment, cwd="/", capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Build the image's environment by the steps of the Dockerfile, and return the image."""
    return _build(ROOT / "Dockerfile", tmp_path_factory.mktemp("image"))


def test_deployment_has_arguments_and_ports_of_the_program(container: Body, image: Image) -> None:
    run.make_context("run", list(container["args"]))

    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {name: Settings.model_fields[f"{name}_port"].default for name in ("metrics", "health")}
    assert image.ports == set(ports.values())
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}


def test_image_and_deployment_run_as_the_same_user(deployment: Body, image: Image) -> None:
    context = deployment["spec"]["template"]["spec"]["securityContext"]

    assert image.user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_program_of_the_image_prints_its_options(image: Image) -> None:
    done = subprocess.run(image.command("--help"), env=image.environment, capture_output=True, text=True, check=True)

    assert "--health-port" in done.stdout


def test_image_has_neither_the_sandbox_nor_development_tools(image: Image) -> None:
    found = set(image.python("import importlib.metadata as m; [print(d.name) for d in m.distributions()]").split())

    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = "\n".join(needs for extra, needs in setup["options.extras_require"].items() if extra != "admission")
    tools = set(re.findall(r"^[\w-]+", extras, re.MULTILINE)) - {"allaboard", "jsonpatch"}  # Kopf needs jsonpatch as well
    assert "allaboard" in found
    assert found.isdisjoint({*tools, "pip", "setuptools"})
    assert image.python("import importlib.util as u; print(u.find_spec('allaboard_sandbox'))").strip() == "None"


def test_image_has_the_documented_distributions_and_size(image: Image) -> None:
    document = (ROOT / "docs" / "install.md").read_text()
    (section,) = (part for part in document.split("\n## ") if part.startswith("What the image contains"))
    code = """if True:
        import importlib.metadata, json, pathlib, sys
        found = list(importlib.metadata.distributions())
        lost = [str(file) for each in found for file in each.files or () if not each.locate_file(file).exists()]
        print(json.dumps([[each.name for each in found], lost]))
    """

    names, lost = json.loads(image.python(code))
    size = sum(path.lstat().st_size for path in image.prefix.rglob("*") if path.is_file() and not path.is_symlink())

    listed = set(re.findall(r"`([a-z][\w-]*)`", "".join(line for line in section.splitlines() if line.startswith("| "))))
    assert {re.sub(r"[._]", "-", name).lower() for name in names} == listed
    assert lost == []
    assert not [path for path in image.prefix.rglob("tests") if path.is_dir()]
    (documented,) = re.findall(r"take (\d+) MB", section)
    assert size / 1e6 == pytest.approx(int(documented), rel=0.05)


def test_base_image_is_a_python_image_with_a_digest_unless_another_base_is_given() -> None:
    text = (ROOT / "Dockerfile").read_text()

    (default,) = re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE)
    (first, *others) = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    assert re.fullmatch(rf"python:3\.13-slim@sha256:[0-9a-f]{{64}} AS {default}", first)
    assert {each.split()[0] for each in others} == {"${BASE}"}


def test_everything_that_is_installed_into_the_image_has_a_known_hash() -> None:
    _pinned, build, _final = _stages(ROOT / "Dockerfile")
    commands = [command for keyword, words in build if keyword == "RUN" for command in words.split("&&")]

    installs = [command.split() for command in commands if " pip " in command]
    assert {"install", "wheel"} <= {word for words in installs for word in words}
    for words in installs:
        # This includes build requirements: with --no-build-isolation pip uses those that are already installed.
        assert {"--require-hashes", "--no-index", "--no-build-isolation"} & set(words), words
        assert "--require-hashes" in words or "--no-deps" in words, words
        assert "--only-binary" in words or "--require-hashes" not in words, (
            words
        )  # to build an sdist, pip fetches requirements without hashes


def test_make_builds_the_image_for_two_architectures_with_sbom_and_provenance() -> None:
    command = _make_image()

    assert command["--platform"] == ["linux/amd64,linux/arm64"]
    assert command["--tag"] == [f"allaboard:{__version__}"]
    assert (command["--sbom"], command["--provenance"]) == (["true"], ["mode=max"])
    assert "--push" not in command
    given = {argument.partition("=")[0]: argument.partition("=")[2] for argument in command["--build-arg"]}
    assert given["VERSION"] == __version__
    assert re.fullmatch("[0-9a-f]{40}|unknown", given["REVISION"])
    assert given.keys() <= set(re.findall(r"^ARG (\w+)=", (ROOT / "Dockerfile").read_text(), re.MULTILINE))


def test_make_takes_name_tag_platforms_and_base_of_the_image_as_variables() -> None:
    base = "python:3.13-slim-trixie"

    command = _make_image("IMAGE=registry.example/gangs", "TAG=1", "PLATFORMS=linux/arm64", f"BASE={base}", "PUSH=1")

    assert command["--tag"] == ["registry.example/gangs:1"]
    assert command["--platform"] == ["linux/arm64"]
    assert f"BASE={base}" in command["--build-arg"]
    assert "--push" in command
    assert "--output" not in command


def test_build_context_has_only_what_the_dockerfile_copies() -> None:
    _pinned, build, _final = _stages(ROOT / "Dockerfile")
    copied = {path for keyword, words in build if keyword == "COPY" for path in words.split()[:-1]}
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == copied
    assert [line for line in lines[1 + len(copied) :] if not line.startswith("**/")] == []


def test_numpy_in_the_image_uses_one_thread(image: Image) -> None:
    assert image.python("import os, numpy; print(len(os.listdir('/proc/self/task')))") == "1\n"


def test_image_has_the_crds_and_the_examples(image: Image) -> None:
    code = "import json; from allaboard.cli import bundled as b; print(json.dumps([b.crds(), [p.name for p in b.examples()]]))"

    crds, examples = json.loads(image.python(code))

    assert crds == bundled.crds()
    assert examples == [path.name for path in bundled.examples()]


def test_image_binds_and_rolls_back_gangs_with_the_shipped_rights_and_writes_no_file(
    alone: None, api_server: ControlPlane, kubectl: Kubectl, installed: None, container: Body, image: Image, tmp_path: Path
) -> None:
    before = _state(image.prefix)
    operator = ImageOperator(image, container["args"], account_kubeconfig(api_server, kubectl, tmp_path), tmp_path)
    try:
        operator.wait_until(operator.is_ready)
        for name in ("shipped-1", "shipped-2"):
            api_server.api.request("POST", "/api/v1/nodes", node_object(name, NodeShape("8"), {"shipped": "true"}))

        # A gang that fits, and its PodGroup.
        kubectl("apply", "-f", "-", stdin=_gang("whole"))
        operator.wait_until(lambda: operator.has_decided("default/whole", "bound"))
        kubectl("wait", "podgroup/whole", "--for=jsonpath={.status.scheduled}=4", "--timeout=20s")

        # Two of the four members of this gang can't be bound, which the dry run doesn't show.
        kubectl("delete", "deployment/whole", "--cascade=foreground")
        kubectl("apply", "-f", "-", stdin=_NO_BIND_TO_SECOND)
        operator.wait_until(lambda: _is_refused(api_server))
        kubectl("apply", "-f", "-", stdin=_gang("torn"))
        operator.wait_until(lambda: operator.has_decided("default/torn", "undone"))

        # A gang that can't fit.
        kubectl("apply", "-f", "-", stdin=_gang("huge", cpu="100"))
        operator.wait_until(lambda: operator.has_decided("default/huge", "refused"))
        kubectl("wait", "pods", "--selector=app=huge", "--for=condition=PodScheduled=False", "--timeout=20s")
    finally:
        status = operator.stop()
        kubectl("delete", "--ignore-not-found", "-f", "-", stdin=_NO_BIND_TO_SECOND)
        kubectl("delete", "--ignore-not-found", "deployment/whole", "deployment/torn", "deployment/huge")
        kubectl("delete", "--ignore-not-found", "node/shipped-1", "node/shipped-2")

    assert status == 0
    assert operator.complaints() == []
    assert _state(image.prefix) == before


class ImageOperator(OperatorProcess):
    """The image's program, with a home folder that must stay empty and a temporary folder of its own."""

    def __init__(self, image: Image, arguments: Sequence[str], kubeconfig: Path, folder: Path) -> None:
        self._home, temporary = folder / "home", folder / "tmp"
        self._home.mkdir(mode=0o555)
        temporary.mkdir()
        environment = {**image.environment, "HOME": str(self._home), "TMPDIR": str(temporary)}
        super().__init__(image.command(*arguments), kubeconfig, folder, environment, self._home)

    def stop(self) -> int:
        status = super().stop()
        assert not list(self._home.iterdir()), "something was written outside of the temporary folder"
        return status


def _make_image(*variables: str) -> dict[str, list[str]]:
    """Return the flags that `make image` would pass to docker, each with its values."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME")}  # without IMAGE, which may be set for a release
    done = subprocess.run(["make", "-n", "image", *variables], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    _mkdir, command = done.stdout.replace("\\\n", " ").splitlines()
    docker, buildx, build, *words, context = shlex.split(command)
    assert (docker, buildx, build, context) == ("docker", "buildx", "build", ".")
    flags: dict[str, list[str]] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag, _, value = word.partition("=")
            flags.setdefault(flag, []).extend([value] if value else [])
        else:
            flags[flag].append(word)
    return flags


def _gang(name: str, cpu: str = "3") -> str:
    """Return the manifest of a Deployment whose four pods are one gang, and need both nodes."""
    labels = {"app": name, f"{GANG}/name": name, f"{GANG}/min-available": "4"}
    requests = {"requests": {"cpu": cpu}}
    pod = {
        "schedulerName": "allaboard",
        "nodeSelector": {"shipped": "true"},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": requests}],
    }
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})


_NO_BIND_TO_SECOND = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: shipped-no-bind-to-second}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/binding]}]
  validations: [{expression: "object.target.name != 'shipped-2' || (request.dryRun && object.metadata.name != 'probe')"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: shipped-no-bind-to-second}
spec: {policyName: shipped-no-bind-to-second, validationActions: [Deny]}
"""


def _is_refused(plane: ControlPlane) -> bool:
    """Return whether the admission policy is in force, which takes the API server a moment."""
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "probe"}, "target": {"kind": "Node", "name": "shipped-2"}}
    try:
        plane.api.request("POST", "/api/v1/namespaces/default/pods/probe/binding", binding, {"dryRun": "All"})
    except ApiError as error:
        return "ValidatingAdmissionPolicy" in error.message
    return False


def _state(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def _build(dockerfile: Path, folder: Path) -> Image:
    """Run the stage `build` of a Dockerfile in a folder, and return the image; the last stage only copies the result."""
    pinned, build, final = _stages(dockerfile)
    assert pinned[1:] == []
    assert [stage[0] for stage in (build, final)] == [("FROM", "${BASE} AS build"), ("FROM", "${BASE}")]
    source = folder / "src"
    source.mkdir()
    (copied,) = [words for keyword, words in final if keyword == "COPY"]
    assert re.fullmatch(r"--from=build (\S+) \1", copied)
    target = copied.split()[-1]
    prefix = str(folder / "prefix")
    for keyword, words in build:
        if keyword == "COPY":
            *paths, _destination = words.split()
            for path in paths:
                _copy(ROOT / path, source / path)
        elif keyword == "RUN":
            environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            done = subprocess.run(
                ["/bin/sh", "-euc", words.replace(target, prefix)], cwd=source, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    stated = dict(final)
    return Image(
        prefix=Path(prefix),
        environment={
            name: value.replace(target, prefix) for name, _, value in (word.partition("=") for word in shlex.split(stated["ENV"]))
        },
        entrypoint=json.loads(stated["ENTRYPOINT"]),
        ports={int(port) for port in stated["EXPOSE"].split()},
        user=stated["USER"],
    )


def _stages(dockerfile: Path) -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage, as pairs of keyword and rest. Instructions before the first FROM are left out."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    stages: list[list[tuple[str, str]]] = []
    for instruction in filter(None, map(str.strip, "\n".join(lines).replace("\\\n", " ").splitlines())):
        keyword, _, rest = instruction.partition(" ")
        if keyword == "FROM":
            stages.append([])
        if stages:
            stages[-1].append((keyword, rest.strip()))
    return stages


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        shutil.copyfile(source, target)
