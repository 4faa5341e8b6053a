"""Hooks of MkDocs: render commands and settings from the code, and check links that leave the site.

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
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from allaboard.cli.main import cli
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

_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, *, config: Any, **_: Any) -> Files:
    """Add the pages that are files elsewhere in the repository."""
    for page, path in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the Markdown of a page with the rendered parts, and with links that work on the site."""
    markdown = markdown.replace("<!-- rendered: commands -->", commands()).replace("<!-- rendered: settings -->", settings())
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
            return f"]({on_site.get(target, target.removeprefix('docs/'))}{anchor})"
        repository = os.environ.get("GITHUB_REPOSITORY", "")
        return f"](https://github.com/{repository}/blob/main/{target}{anchor})" if repository else f"]{{{target}}}"

    linked = _LINK.sub(resolved, markdown)
    return re.sub(r"\[([^\]]*)\]\{([^}]+)\}", lambda found: found[1] if "`" in found[1] else f"{found[1]} (`{found[2]}`)", linked)
