"""Writes the sources of the two distributions of a release: `allaboard`, and its sandbox, which production clusters don't need.

    python .ci/distributions.py FOLDER REPOSITORY

In the project's tree the two are one distribution, so that one editable installation has both. REPOSITORY is the public address of the
project, such as https://github.com/OWNER/allaboard. A package index shows the README without the project's other files, so relative links
are replaced by links to REPOSITORY.
"""

import re
import shutil
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE_SECTIONS = ("metadata", "options")  # of setup.cfg, with subsections; other sections configure tools
SANDBOX_REQUIREMENTS = ("aiohttp", "pyyaml")  # of the operator's, beside those of the extra `sandbox`

SANDBOX = """# The sandbox of Allaboard

A Kubernetes API server in one process, with fake kubelets and stand-ins for some controllers. The demo and the tests of
[Allaboard]({repository}) run on it. It comes with `pip install 'allaboard[sandbox]'`; `allaboard sandbox` serves it for kubectl.
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
    needed = [line for line in sandbox["options"]["install_requires"].split() if re.split(r"[<>=~]", line)[0] in SANDBOX_REQUIREMENTS]
    needed += sandbox["options.extras_require"]["sandbox"].split()
    sandbox["metadata"].update(
        name="allaboard-sandbox",
        description="A Kubernetes API server in one process, with fake kubelets, for Allaboard's demo and tests.",
        keywords="kubernetes, testing, simulation",
        project_urls=setup["metadata"]["project_urls"],
    )
    sandbox["options"]["install_requires"] = "\n" + "\n".join(needed)
    for section in ("options.data_files", "options.extras_require", "options.entry_points"):
        sandbox.remove_section(section)
    del sandbox["options.package_data"]["allaboard"]
    _write(folder / "allaboard-sandbox", sandbox, SANDBOX.format(repository=repository), "operator/allaboard_sandbox")


def with_absolute_links(text: str, base: str) -> str:
    """Return the Markdown page ``text``, of the project's root, with its relative links made absolute: they start with ``base``.

    Links to the page's own sections become links to sections of README.md. The link of a picture gets ``?raw=true``, so that GitHub answers
    with the picture and not with a page about it.
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
        if section.split(".")[0] not in PACKAGE_SECTIONS:
            setup.remove_section(section)
    return setup


def _write(folder: Path, setup: ConfigParser, readme: str, *parts: str) -> None:
    """Write a source tree: the folders ``parts`` of the project, its license and build configuration, ``readme`` and ``setup``."""
    for part in parts:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    with (folder / "setup.cfg").open("w", encoding="utf-8") as file:
        setup.write(file)
    for each in folder.rglob("*"):  # modes don't depend on the umask of the checkout
        each.chmod(0o755 if each.is_dir() else 0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
