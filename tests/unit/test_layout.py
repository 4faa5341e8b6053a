"""Tests on the repository's files: modules, links, named tests, and locked packages."""

import configparser
import operator
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_source_root_does_not_hide_pythons_operator_module() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "operator.py").exists()
    assert Path(operator.__file__ or "").parent == Path(sys.modules["os"].__file__ or "").parent


def test_all_modules_but_those_of_the_sandbox_commands_import_without_the_sandbox_package() -> None:
    code = """if True:
        import importlib, pkgutil, sys
        sys.modules |= {"allaboard_sandbox": None, "jsonschema": None}
        import allaboard
        serve = {f"allaboard.cli.{name}" for name in ("demo", "sandbox", "screen", "stories")}
        for name in {module.name for module in pkgutil.walk_packages(allaboard.__path__, "allaboard.")} - serve:
            importlib.import_module(name)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_quickstart_builds_and_loads_the_image_that_config_deploys() -> None:
    (image,) = re.findall(r"^ +image: (\S+)$", (ROOT / "config" / "operator" / "deployment.yaml").read_text(), re.MULTILINE)
    for page in ("README.md", "docs/quickstart.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert set(re.findall(r"(?:docker build --tag|kind load docker-image) (\S+)", text)) == {image}, page


def test_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_linked_file_exists() -> None:
    for page in (*ROOT.glob("*.md"), ROOT / "examples" / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", ["reliability.md", "requirements.md"])
def test_every_test_that_a_document_names_exists(page: str) -> None:
    named = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_\w+)`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert named
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    long = {path.name: count for path in (ROOT / "operator").rglob("*.py") if (count := len(path.read_text().splitlines())) > 500}
    assert not long


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-build.txt"])
def test_packages_of_the_image_have_hashes_and_the_tested_versions(lock: str) -> None:
    def versions(name: str) -> dict[str, str]:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        return {found[1].lower().replace("_", "-"): found[2] for line in lines if (found := re.match(r"([\w.-]+)==([^\s;]+)", line))}

    locked, tested = versions(lock), versions("constraints.txt")
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    stated = {
        "requirements.txt": f"{setup['options']['install_requires']}\n{setup['options.extras_require']['admission']}",
        "requirements-build.txt": "\n".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]),
    }
    assert {name.lower().replace("_", "-") for name in re.findall(r"^[\w.-]+", stated[lock], re.MULTILINE)} <= locked.keys()
    assert {name: version for name, version in locked.items() if tested.get(name, version) != version} == {}
    blocks = re.split(r"\n(?=\S)", (ROOT / lock).read_text(encoding="utf-8"))
    assert [block for block in blocks if "==" in block.partition("\n")[0] and "--hash=sha256:" not in block] == []
