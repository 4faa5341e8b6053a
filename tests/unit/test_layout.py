"""The repository is what its documents say it is."""

import configparser
import operator
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from allaboard.settings.gpu_metrics import GpuMetricsOptions
from allaboard.settings.gpus import GpuOptions
from allaboard.settings.options import Settings
from allaboard.settings.placement import PackingOptions, SearchOptions
from allaboard.settings.strategies import BestFitOptions, RandomOptions, StrategyOptions

ROOT = Path(__file__).parents[2]


def test_the_source_root_does_not_hide_pythons_operator_module() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "operator.py").exists()
    assert Path(operator.__file__ or "").parent == Path(sys.modules["os"].__file__ or "").parent


def test_everything_but_the_commands_that_serve_a_sandbox_does_without_it() -> None:
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


def test_every_setting_is_documented_and_nothing_else_is() -> None:
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / "docs" / "settings.md").read_text(encoding="utf-8"), re.MULTILINE))
    nested = {
        "gpu": GpuOptions,
        "gpu_metrics": GpuMetricsOptions,
        "search": SearchOptions,
        "packing": PackingOptions,
        "strategy_options": StrategyOptions,
    }
    inside = {f"{option}.{name}" for option, model in nested.items() for name in model.model_fields}
    deeper = {"strategy_options.bestfit": BestFitOptions, "strategy_options.random": RandomOptions}
    inside = inside - deeper.keys() | {f"{option}.{name}" for option, model in deeper.items() for name in model.model_fields}
    options = Settings.model_fields.keys() - nested.keys() | inside
    assert documented == options


def test_the_readme_loads_the_image_into_kind_that_config_deploys() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (image,) = re.findall(r"^ +image: (\S+)$", (ROOT / "config" / "operator" / "deployment.yaml").read_text(), re.MULTILINE)
    assert re.findall(r"docker build --tag (\S+) |kind load docker-image (\S+) ", readme) == [(image, ""), ("", image)]


def test_every_file_that_the_readme_links_to_exists() -> None:
    for page in (ROOT / "README.md", ROOT / "examples" / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", ["reliability.md", "requirements.md"])
def test_every_test_that_a_promise_names_exists(page: str) -> None:
    named = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_\w+)`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert named
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    long = {path.name: count for path in (ROOT / "operator").rglob("*.py") if (count := len(path.read_text().splitlines())) > 500}
    assert not long


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-build.txt"])
def test_what_the_image_is_built_and_installed_from_is_what_is_tested_with_hashes(lock: str) -> None:
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
