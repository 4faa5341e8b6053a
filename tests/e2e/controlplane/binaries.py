"""Finds the programs of a control plane, or builds them with Go from the module proxy: no checkout, no containers, no root.

Programs are looked up in ``KUBEBUILDER_ASSETS``, in ``PATH``, then in the cache (``$XDG_CACHE_HOME/allaboard``). A program that is found
nowhere is built into the cache. The cache is keyed by the program's version and by all else that determines the build.
"""

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.status import Status

from tests.cache import cache, key_of

from . import releases

HERE = Path(__file__).parent
RELEASE = releases.chosen()
KUBERNETES = RELEASE.version
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class MissingToolError(RuntimeError):
    """A program is not installed, and can't be built."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program: ``package`` is built in the wrapper module ``module``, or installed as ``package@v<version>`` if ``module`` is empty.

    An ``exact`` program must have this version and come from the cache: installed programs aren't used.
    """

    name: str
    version: str
    package: str
    module: str = ""
    flags: tuple[str, ...] = ()
    with_cgo: bool = False
    exact: bool = False

    @property
    def key(self) -> str:
        """Cache key, which differs for different builds. Go's own version isn't part of the key: any that the module accepts will do."""
        decides = [repr(self.flags)] if self.flags else []
        decides += ["cgo"] if self.with_cgo else []
        decides += [(HERE / self.module / name).read_text() for name in ("go.mod", "go.sum")] if self.module else []
        return "-".join((self.name, self.version, *([key_of(*decides)] if decides else ())))


def kubernetes(name: str) -> Program:
    """Return one of Kubernetes' own programs."""
    major, minor = RELEASE.minor.split(".")
    facts = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    stamps = " ".join(f"-X {package}.{fact}={value}" for package in _VERSION_PACKAGES for fact, value in facts.items())
    return Program(name, KUBERNETES, f"k8s.io/kubernetes/cmd/{name}", RELEASE.module, ("-ldflags", f"-s -w {stamps}"))


ETCD = Program("etcd", "3.7.1", "go.etcd.io/etcd/server/v3", "etcd", ("-ldflags", "-s -w"))
APISERVER = kubernetes("kube-apiserver")
CONTROLLER_MANAGER = kubernetes("kube-controller-manager")
SCHEDULER = kubernetes("kube-scheduler")
KUBECTL = kubernetes("kubectl")
KUBEADM, KUBELET, KUBE_PROXY = kubernetes("kubeadm"), kubernetes("kubelet"), kubernetes("kube-proxy")
KWOK = Program("kwok", "0.8.0", "sigs.k8s.io/kwok/cmd/kwok")
TRAINING_OPERATOR = Program("training-operator.v1", "1.9.4", "github.com/kubeflow/training-operator/cmd/training-operator.v1")
KUEUE = Program("kueue", "0.19.0", "sigs.k8s.io/kueue/cmd/kueue", flags=("-ldflags", "-s -w"), exact=True)
HELM = Program("helm", "4.3.1", "helm.sh/helm/v4/cmd/helm")
ACTIONLINT = Program("actionlint", "1.7.12", "github.com/rhysd/actionlint/cmd/actionlint")
KREW = Program("krew", "0.4.4", "sigs.k8s.io/krew/cmd/krew")
CRANE = Program("crane", "0.22.1", "github.com/google/go-containerregistry/cmd/crane")
PROGRAMS = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL, KWOK, TRAINING_OPERATOR, KUEUE, HELM, ACTIONLINT, KREW, CRANE)
OF_THE_RELEASE = tuple(program for program in (*PROGRAMS, KUBEADM, KUBELET, KUBE_PROXY) if program.module == RELEASE.module)

TFJOB_CRD = "manifests/base/crds/kubeflow.org_tfjobs.yaml"
"""Where training-operator's module keeps the CRD of TFJobs."""

# Only the CRDs of these two are used; the programs aren't built.
SCHEDULER_PLUGINS = Program("scheduler-plugins", "0.34.7", "sigs.k8s.io/scheduler-plugins/cmd/scheduler")
POD_GROUP_CRD = "manifests/coscheduling/crd.yaml"
PROMETHEUS_OPERATOR = Program("prometheus-operator", "0.85.0", "github.com/prometheus-operator/prometheus-operator/cmd/operator")
MONITORING_CRDS = tuple(
    f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml" for plural in ("servicemonitors", "prometheusrules")
)
FOREIGN_CRDS = ((SCHEDULER_PLUGINS, POD_GROUP_CRD), *((PROMETHEUS_OPERATOR, path) for path in MONITORING_CRDS))
"""CRDs that other projects install, each as a program and a file in the program's module."""


COSCHEDULING = Program("coscheduling", "0.34.7", SCHEDULER_PLUGINS.package, "coscheduling", ("-ldflags", "-s -w"), exact=True)
VOLCANO = Program("volcano", "1.14.1", "volcano.sh/volcano/cmd/scheduler", "volcano", ("-ldflags", "-s -w"), exact=True)
"""This scheduler and the one before are built by the benchmarks only, which compare with them."""


def locate(program: Program) -> Path | None:
    """Return where a program is, or None if it must be built.

    An installed program may be of any release, so it isn't used if a release was asked for. kubectl works with any release.
    """
    if not program.exact and (program is KUBECTL or program not in OF_THE_RELEASE or not releases.is_stated()):
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        if assets and os.access(Path(assets, program.name), os.X_OK):
            return Path(assets, program.name)
        if installed := shutil.which(program.name):
            return Path(installed)
    return _cached(program) if _cached(program).exists() else None


def ensure(programs: Iterable[Program], console: Console) -> dict[str, Path]:
    """Build the missing programs, and return where each program is, by name. Raises ``MissingToolError``."""
    paths: dict[str, Path] = {}
    for program in programs:
        paths[program.name] = locate(program) or _build(program, console)
    return paths


def module_file(program: Program, path: str) -> Path:
    """Return the path of a file that a program's module ships beside its code. Raises ``MissingToolError``."""
    cached = _cached(program).with_name(Path(path).name)
    if not cached.exists():
        source = module_folder(program) / path
        cached.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, cached)
    return cached


def module_folder(program: Program) -> Path:
    """Return the folder with the source of a program's module. Raises ``MissingToolError``."""
    module = program.package.partition("/cmd/")[0]
    command = [_go(program), "mod", "download", "-json", f"{module}@v{program.version}"]
    done = subprocess.run(command, env=_environment(program), cwd=HERE / "etcd", capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingToolError(f"{module} {program.version} could not be downloaded: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])


def version_of(program: Program, path: Path) -> str:
    """Return the version that a program reports, or else the version it was built from; ``unknown`` if it wasn't built here."""
    words = ("version", "--client") if program is KUBECTL else ("--version",)
    done = subprocess.run([path, *words], capture_output=True, text=True, check=False)
    found = re.search(r"v?(\d+\.\d+\.\d+\S*)", done.stdout) if done.returncode == 0 else None
    if found:
        return found.group(1)
    return program.version if path == _cached(program) else "unknown"


def _cached(program: Program) -> Path:
    return cache() / "controlplane" / program.key / program.name


def _go(program: Program) -> str:
    if go := shutil.which("go"):
        return go
    raise MissingToolError(
        f"{program.name} {program.version} is not installed and can't be built, since Go is missing: install Go 1.26 or newer "
        f"(https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder that holds {program.name}"
    )


def _environment(program: Program) -> Mapping[str, str]:
    return {**os.environ, "CGO_ENABLED": str(int(program.with_cgo)), "GOFLAGS": "-mod=mod", "GOWORK": "off"}


def _build(program: Program, console: Console) -> Path:
    """Build a program in a folder of its own, and move the result into the cache, so that concurrent builds don't interfere."""
    target = _cached(program)
    target.parent.mkdir(parents=True, exist_ok=True)
    with_pid = target.parent / f"build-{os.getpid()}"
    if program.module:
        folder, environment = HERE / program.module, _environment(program)
        command = [_go(program), "build", "-v", "-mod=readonly", *program.flags, "-o", str(with_pid / program.name), program.package]
    else:
        folder, environment = target.parent, {**_environment(program), "GOBIN": str(with_pid)}
        command = [_go(program), "install", "-v", *program.flags, f"{program.package}@v{program.version}"]
    started = time.monotonic()
    try:
        _run(command, folder, environment, f"building {program.name} {program.version}", console)
        os.replace(with_pid / program.name, target)
    finally:
        shutil.rmtree(with_pid, ignore_errors=True)
    console.print(f"built {program.name} {program.version} in {time.monotonic() - started:.0f} s", highlight=False)
    return target


def _run(command: list[str], folder: Path, environment: Mapping[str, str], what: str, console: Console) -> None:
    """Run a build and show its progress: Go prints each package that it compiles."""
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    last: deque[str] = deque(maxlen=20)
    if not console.is_terminal:
        console.print(f"{what} …", highlight=False)
    with console.status(f"{what} …") as status, _Ticking(status, what, last):
        for line in process.stdout:
            last.append(line.rstrip())
    if process.wait():
        raise MissingToolError(f"{what} failed:\n" + "\n".join(last))


class _Ticking:
    """Shows how long a build has taken, and the package that it compiles, even while Go prints nothing."""

    def __init__(self, status: Status, what: str, last: deque[str]) -> None:
        self._status, self._what, self._last = status, what, last
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _tick(self) -> None:
        started = time.monotonic()
        while not self._done.wait(0.5):
            latest = self._last[-1][:60] if self._last else "starting"
            self._status.update(f"{self._what} ({time.monotonic() - started:.0f} s): {latest}")
