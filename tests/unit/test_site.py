"""Tests of the documentation site: what is rendered from the code, and the links that leave the site."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
from mkdocs.exceptions import PluginError

from allaboard.report.metric_definitions import DEFINITIONS
from allaboard.settings.options import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(values: Mapping[str, object], prefix: str = "") -> set[str]:
    """Return the dotted names of the options in a dump of the settings; an empty or free mapping is one option."""
    names = set()
    for name, value in values.items():
        names |= leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) and value else {prefix + name}
    return names


def test_table_of_settings_has_every_option_with_a_description(site: ModuleType) -> None:
    rows = [line.split(" | ") for line in site.settings().splitlines()[2:]]
    assert {row[0].strip("| `") for row in rows} == leaves(Settings().model_dump()) | {"search.preset"}  # which stands for other options
    assert [row[0] for row in rows if not row[2].strip(" |")] == []


def test_defaults_are_rendered_as_a_configuration_file_states_them(site: ModuleType) -> None:
    rows = dict(row.strip("| ").split(" | ")[:2] for row in site.settings().splitlines()[2:])
    assert rows["`openfaas`"] == "false"
    assert rows["`strategies`"] == "`genetic`, `exact`, `bestfit`, `firstfit`, `random`"
    assert (rows["`objective`"], rows["`namespaces`"], rows["`headroom`"]) == ("`fragmentation`", "none", "none")
    assert rows["`search_timeout_seconds`"] == "`60.0`"


def test_every_command_is_rendered_with_its_help(site: ModuleType) -> None:
    rendered = site.commands()
    for command in ("run", "plan", "gpus", "config", "config check", "simulate", "sandbox", "demo"):
        assert f"## allaboard {command}\n\n```text\nUsage: allaboard {command} " in rendered


def test_table_of_metrics_has_a_row_for_each_metric_with_the_values_of_its_label(site: ModuleType) -> None:
    rows = site.metrics().splitlines()[2:]
    assert len(rows) == len(DEFINITIONS)
    (row,) = (row for row in rows if row.startswith("| `allaboard_reserved_gpus` |"))
    assert row == "| `allaboard_reserved_gpus` | gauge | GPUs | none | GPUs that are reserved for waiting gangs. |"
    (row,) = (row for row in rows if row.startswith("| `allaboard_search_failures_total` |"))
    assert " | `reason`: `died`, `overrun` | " in row


def test_runbook_shows_when_its_alert_fires(site: ModuleType) -> None:
    shown = site.alert("AllaboardHasNoLeader")
    assert shown.startswith("The alert has the severity `critical`. It fires when this holds for 1m:")
    assert "absent(allaboard_leader)" in shown
    assert "It fires as soon as this holds:" in site.alert("AllaboardReleasesPods")
    with pytest.raises(PluginError, match="there is no alert Fire"):
        site.alert("Fire")


def test_every_page_is_rendered_once() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")]
    for part in ("commands", "settings", "metrics", "alerts"):
        assert sum(page.count(f"<!-- rendered: {part} -->") for page in pages) == 1


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        ("someone/allaboard", "see [an example](https://github.com/someone/allaboard/blob/main/examples/two-jobs.yaml#jobs)"),
        ("", "see an example (`examples/two-jobs.yaml`)"),
    ],
)
def test_link_out_of_the_site_names_the_repository(
    site: ModuleType, monkeypatch: pytest.MonkeyPatch, repository: str, expected: str
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", repository)
    assert site.with_repository_links("see [an example](../examples/two-jobs.yaml#jobs)", "index.md") == expected


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "../CONTRIBUTING.md", "contributing.md"),
        ("contributing.md", "docs/extending.md#adding-a-decision", "extending.md#adding-a-decision"),
        ("examples.md", "../docs/gpu.md#sharing", "gpu.md#sharing"),
        ("contributing.md", "SECURITY.md", "security.md"),
        ("metrics.md", "runbooks/AllaboardReleasesPods.md", "runbooks/AllaboardReleasesPods.md"),
        ("runbooks/AllaboardReleasesPods.md", "AllaboardStateIsOld.md", "AllaboardStateIsOld.md"),
        ("runbooks/AllaboardReleasesPods.md", "../queueing.md#preemption", "../queueing.md#preemption"),
        ("runbooks/AllaboardReleasesPods.md", "../../SECURITY.md", "../security.md"),
    ],
)
def test_link_between_pages_leads_to_the_page_on_the_site_and_not_to_its_file_in_the_repository(
    site: ModuleType, page: str, link: str, expected: str
) -> None:
    assert site.with_repository_links(f"[a]({link})", page) == f"[a]({expected})"


def test_link_within_the_site_is_not_changed(site: ModuleType) -> None:
    assert (
        site.with_repository_links("[a](gangs.md#options) [b](https://example.com)", "index.md")
        == "[a](gangs.md#options) [b](https://example.com)"
    )


def test_link_to_a_missing_file_fails(site: ModuleType) -> None:
    with pytest.raises(PluginError, match=r"docs/index\.md links to \.\./examples/none\.yaml, which doesn't exist"):
        site.with_repository_links("[none](../examples/none.yaml)", "index.md")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("page", "text", "problem"),
    [
        ("index.md", "[a page](gangs.md#no-such-section)", "no-such-section"),
        ("index.md", "[a page](no-such-page.md)", "no-such-page.md"),
        ("extra.md", "A page that the navigation doesn't have.", "extra.md"),
    ],
)
def test_build_fails_for_a_broken_link_and_for_a_page_outside_the_navigation(page: str, text: str, problem: str, tmp_path: Path) -> None:
    for path in ROOT.iterdir():
        if path.name not in ("docs", "build", ".git", ".venv"):
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    with (tmp_path / "docs" / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")
    (make_docs,) = re.findall(r"^\t.*mkdocs (build [^#\n]*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    command = [sys.executable, "-m", "mkdocs", *make_docs.split(), "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert problem in done.stderr
