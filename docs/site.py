"""Hooks of MkDocs: render commands, settings, metrics and alerts from the code, and check links that leave the site.

MkDocs calls the functions by their names (https://www.mkdocs.org/user-guide/configuration/#hooks).
"""

import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from allaboard.cli.main import cli
from allaboard.report.metric_definitions import DEFINITIONS, Definition
from allaboard.settings.options import Settings

ROOT = Path(__file__).parents[1]
WIDTH = 100
"""Columns of a command's help."""
PAGES = {
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "examples.md": "examples/README.md",
}
"""Pages of the site that are files elsewhere in the repository, and these files."""

_RULES = ROOT / "config" / "components" / "alerts" / "prometheus-rule.yaml"
_MOST_VALUES = 16  # of a label, that the table of metrics lists
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, *, config: Any, **_: Any) -> Files:
    """Add the pages that are files elsewhere in the repository."""
    for page, path in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the Markdown of a page with the rendered parts, and with links that work on the site."""
    for part, render in (("commands", commands), ("settings", settings), ("metrics", metrics), ("alerts", alerts)):
        if (mark := f"<!-- rendered: {part} -->") in markdown:
            markdown = markdown.replace(mark, render())
    markdown = re.sub(r"<!-- rendered: alert (\w+) -->", lambda found: alert(found[1]), markdown)
    return with_repository_links(markdown, page.file.src_uri)


def commands() -> str:
    """Return a section with the help of each command."""
    parts = []
    for path, command in _commands(cli, "allaboard"):
        context = click.Context(command, info_name=path, max_content_width=WIDTH, terminal_width=WIDTH)
        parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            if child is not None and not child.hidden:
                yield from _commands(child, f"{path} {name}")


def settings() -> str:
    """Return the table of all settings: name, default, and description."""
    rows = [f"| `{name}` | {_default(field)} | {_cell(field.description or '')} |" for name, field in options(Settings)]
    return "\n".join(["| Option | Default | What it does |", "|---|---|---|", *rows])


def options(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the options of ``model`` by their dotted names, those of nested groups included."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from options(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def metrics() -> str:
    """Return the table of all metrics."""
    rows = [f"| `{each.name}` | {each.type} | {each.unit or 'none'} | {_label(each)} | {_cell(each.help)} |" for each in DEFINITIONS]
    return "\n".join(["| Metric | Type | Unit | Label and its values | What it shows |", "|---|---|---|---|---|", *rows])


def _label(metric: Definition) -> str:
    if not metric.label:
        return "none"
    named = ", ".join(f"`{value}`" for value in metric.values[:_MOST_VALUES])
    more = f" and {len(metric.values) - _MOST_VALUES} more" if len(metric.values) > _MOST_VALUES else ""
    return f"`{metric.label}`{f': {named}{more}' if named else ''}"


def alerts() -> str:
    """Return the table of all alerts, with links to their runbooks."""
    rows = [
        f"| [{rule['alert']}](runbooks/{rule['alert']}.md) | {rule['labels']['severity']} | {_cell(rule['annotations']['summary'])} |"
        for rule in _rules()
    ]
    return "\n".join(["| Alert | Severity | What it says |", "|---|---|---|", *rows])


def alert(name: str) -> str:
    """Return when an alert fires. Raises ``PluginError`` if there is no alert of this name."""
    rule = next((each for each in _rules() if each["alert"] == name), None)
    if rule is None:
        raise PluginError(f"docs/runbooks: there is no alert {name}")
    lasts = f"fires when this holds for {rule['for']}" if "for" in rule else "fires as soon as this holds"
    return f"The alert has the severity `{rule['labels']['severity']}`. It {lasts}:\n\n```text\n{rule['expr']}\n```"


def _rules() -> list[dict[str, Any]]:
    stated = yaml.safe_load(_RULES.read_text(encoding="utf-8"))
    return [rule for group in stated["spec"]["groups"] for rule in group["rules"]]


def _default(field: FieldInfo) -> str:
    match field.get_default(call_default_factory=True):
        case bool() as value:
            return str(value).lower()
        case None | "":
            return "none"
        case tuple() | frozenset() | list() as values:
            return ", ".join(f"`{value}`" for value in values) or "none"
        case dict() as values:
            return f"`{json.dumps(values)}`" if values else "none"
        case value:
            return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def with_repository_links(markdown: str, page: str) -> str:
    """Return the Markdown of ``page`` with links that work on the site.

    A link to a file that isn't on the site becomes a link to the repository, which ``GITHUB_REPOSITORY`` (owner/name) names. Without that
    variable the link becomes plain text. Raises ``PluginError`` when a file doesn't exist.
    """
    source = PAGES.get(page, f"docs/{page}")
    on_site = {path: name for name, path in PAGES.items()}

    def resolved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        if not (ROOT / target).exists():
            raise PluginError(f"{source} links to {link[1]}, which doesn't exist")
        anchor = link[2] or ""
        if target in on_site or target.startswith("docs/"):
            at = on_site.get(target, target.removeprefix("docs/"))
            return f"]({posixpath.relpath(at, posixpath.dirname(page) or '.')}{anchor})"
        repository = os.environ.get("GITHUB_REPOSITORY", "")
        return f"](https://github.com/{repository}/blob/main/{target}{anchor})" if repository else f"]{{{target}}}"

    linked = _LINK.sub(resolved, markdown)
    return re.sub(r"\[([^\]]*)\]\{([^}]+)\}", lambda found: found[1] if "`" in found[1] else f"{found[1]} (`{found[2]}`)", linked)
