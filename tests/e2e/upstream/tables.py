"""The cases of kube-scheduler's own unit tests: Go compiles its tests with a function that prints each case, and runs them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cache import cache, key_of

from ..controlplane import binaries

_PRINTS = Path(__file__).with_name("print_cases.go.txt")
_LOOP = re.compile(r"^\t+for \w+, (\w+) := range (?:tests|table|enoughPodsTests|notEnoughPodsTests|storagePodsTests|testCases) \{$")


@dataclass(frozen=True, slots=True)
class Package:
    """The tests of one plugin: by file, the functions whose cases are read. ``shared`` are the package's variables that all cases use."""

    name: str
    tests: Mapping[str, Sequence[str]]
    shared: str = ""


PACKAGES = (
    Package(
        "interpodaffinity",
        {
            "filtering_test.go": ("TestRequiredAffinitySingleNode", "TestRequiredAffinityMultipleNodes"),
            "scoring_test.go": ("TestPreferredAffinity",),
        },
        "namespaces",
    ),
    Package(
        "podtopologyspread",
        {"filtering_test.go": ("TestSingleConstraint", "TestMultipleConstraints"), "scoring_test.go": ("TestPodTopologySpreadScore",)},
    ),
    Package("nodeports", {"node_ports_test.go": ("TestNodePorts",)}),
    Package("noderesources", {"fit_test.go": ("testEnoughRequests", "testNotEnoughRequests", "testStorageRequests")}),
    Package(
        "volumebinding",
        {"volume_binding_test.go": ("TestVolumeBinding",)},
        "immediateSC, waitSC, waitHDDSC, waitSCWithStorageCapacity, driverWithStorageCapacity",
    ),
)


@dataclass(frozen=True, slots=True)
class Printed:
    """One case of a test: the fields of the Go struct by name, and the objects that all cases of the package share."""

    test: str
    fields: Mapping[str, Any]
    shared: Sequence[Any]

    @property
    def name(self) -> str:
        """The name of the case."""
        return f"{self.test}: {self.fields.get('name') or self.fields.get('desc')}"


def printed_cases(folder: Path) -> list[Printed]:
    """Return the cases of all packages, each once. They are kept in the cache. Raises ``MissingToolError``.

    ``folder``: for what Go reads and writes, if the cases aren't in the cache.
    """
    cached = cache() / "controlplane" / f"cases-{binaries.KUBERNETES}-{key_of(_PRINTS.read_text(), repr(PACKAGES))}.json"
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        os.replace(shutil.copyfile(_print(folder), cached.with_suffix(f".{os.getpid()}")), cached)
    found = (json.loads(line) for line in cached.read_text().splitlines())
    cases = [Printed(each["test"], each["case"], each["shared"]) for each in found]
    return list({case.name: case for case in cases}.values())


def _print(folder: Path) -> Path:
    """Let Go print the cases, and return the file with one case in each line.

    Go can't replace files of a downloaded module. So each package is copied into a module of its own, with the tests changed.
    """
    sources = binaries.module_folder(binaries.SCHEDULER) / "pkg/scheduler/framework/plugins"
    for package in PACKAGES:
        copy = folder / package.name
        copy.mkdir()
        for source in (sources / package.name).glob("*.go"):
            text = source.read_text()
            if functions := package.tests.get(source.name):
                text = "".join(_with_prints(text, package.name, functions))
            (copy / source.name).write_text(text)
        text = _PRINTS.read_text().replace("PACKAGE", package.name).replace("SHARED", package.shared)
        (copy / "print_cases_test.go").write_text(text)
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(Path(binaries.__file__).parent / binaries.SCHEDULER.module / name, folder / name)
    names = {function[0].upper() + function[1:] for package in PACKAGES for functions in package.tests.values() for function in functions}
    command = ["go", "test", "-vet=off", "-count=1", f"-run=^({'|'.join(sorted(names))})$", "./..."]
    printed = folder / "cases.json"
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off", "CGO_ENABLED": "0", "PRINTED_CASES": str(printed)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise binaries.MissingToolError(f"the tests of kube-scheduler can't be run:\n{done.stdout}{done.stderr}")
    return printed


def _with_prints(source: str, package: str, functions: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a test file, in which loops over the cases of ``functions`` print each case instead of testing it."""
    function = ""
    for line in source.splitlines(keepends=True):
        if found := re.match(r"func (\w+)\(", line):
            function = found[1]
        yield line
        if function in functions and (loop := _LOOP.match(line.rstrip("\n"))):
            yield f'printCase("{package}/{function}", {loop[1]})\nif true {{ continue }}\n'
