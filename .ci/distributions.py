"""Writes the sources of the two distributions of a release: `allaboard`, and the sandbox, for which operators have no use.

    python .ci/distributions.py FOLDER REPOSITORY

In the project's tree they are one, so that one editable installation has both. REPOSITORY is where people read the project, such as
https://github.com/OWNER/allaboard: an index of packages shows the README, where links that are relative to the project lead nowhere.
"""

import re
import shutil
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
OF_PACKAGES = ("metadata", "options")  # and sections below; the others configure tools
OF_THE_SANDBOX = ("aiohttp", "pyyaml")  # what it takes of the operator's requirements, beside the extra's

SANDBOX = """# The sandbox of Allaboard

A Kubernetes API server in one process, with fake kubelets and stand-ins for some controllers: what the demo and the tests of
[Allaboard]({repository}) run on. It comes with `pip install 'allaboard[sandbox]'`; `allaboard sandbox` serves it for kubectl.
"""


def main(folder: Path, repository: str) -> None:
    """Write ``folder``/allaboard and ``folder``/allaboard-sandbox, each a source tree of its own."""
    setup = _setup()
    version = setup["metadata"]["version"]
    setup["metadata"]["project_urls"] = "\n" + "\n".join(
        (
            f"Source = {repository}",
            f"Documentation = {repository}/tree/v{version}/docs",
            f"Changelog = {repository}/blob/v{version}/CHANGELOG.md",
            f"Issues = {repository}/issues",
        )
    )
    setup["options.extras_require"]["sandbox"] = f"allaboard-sandbox=={version}"
    del setup["options.package_data"]["allaboard_sandbox"]
    readme = with_absolute_links((ROOT / "README.md").read_text(encoding="utf-8"), f"{repository}/blob/v{version}")
    _write(folder / "allaboard", setup, readme, "operator/allaboard", "crds", "examples")

    sandbox = _setup()
    needed = [line for line in sandbox["options"]["install_requires"].split() if re.split(r"[<>=~]", line)[0] in OF_THE_SANDBOX]
    needed += sandbox["options.extras_require"]["sandbox"].split()
    sandbox["metadata"].update(
        name="allaboard-sandbox",
        description="A Kubernetes API server in one process, with fake kubelets: what Allaboard's demo and tests run on.",
        keywords="kubernetes, testing, simulation",
        project_urls=setup["metadata"]["project_urls"],
    )
    sandbox["options"]["install_requires"] = "\n" + "\n".join(needed)
    for section in ("options.data_files", "options.extras_require", "options.entry_points"):
        sandbox.remove_section(section)
    del sandbox["options.package_data"]["allaboard"]
    _write(folder / "allaboard-sandbox", sandbox, SANDBOX.format(repository=repository), "operator/allaboard_sandbox")


def with_absolute_links(text: str, base: str) -> str:
    """Return a Markdown page of the project's root with links to the files under ``base``, also those to its own sections.

    GitHub answers with the picture itself, and not with a page about it, where the link of a picture ends in ``?raw=true``.
    """

    def absolute(found: re.Match[str]) -> str:
        target = found[1]
        return f"]({base}/{'README.md' if target.startswith('#') else ''}{target}{'?raw=true' if target.endswith('.svg') else ''})"

    return re.sub(r"\]\((?!https?:)([^)\s]+)\)", absolute, text)


def _setup() -> ConfigParser:
    """Return the sections of setup.cfg that describe packages."""
    setup = ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    for section in setup.sections():
        if section.split(".")[0] not in OF_PACKAGES:
            setup.remove_section(section)
    return setup


def _write(folder: Path, setup: ConfigParser, readme: str, *parts: str) -> None:
    for part in parts:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    with (folder / "setup.cfg").open("w", encoding="utf-8") as file:
        setup.write(file)
    for each in folder.rglob("*"):  # the same modes, whatever the umask of the checkout was
        each.chmod(0o755 if each.is_dir() else 0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
