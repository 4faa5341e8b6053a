"""Finds Chromium, or installs Debian's package: ``python -m tests.browser.chromium``."""

import os
import shutil
import subprocess
import sys

PACKAGE = "chromium"
_NAMES = (PACKAGE, "chromium-browser", "google-chrome", "google-chrome-stable")


class MissingChromiumError(RuntimeError):
    """Raised when there is no Chromium, and it can't be installed."""


def locate() -> str:
    """Return the path of the program. ``CHROMIUM`` names another one. Raises ``MissingChromiumError``."""
    wanted = os.environ.get("CHROMIUM")
    for name in (wanted,) if wanted else _NAMES:
        if found := shutil.which(name):
            return found
    raise MissingChromiumError(f"there is no {wanted or PACKAGE}: `make browser` installs it as root on Debian; CHROMIUM=… names another")


def install() -> None:
    """Install Debian's package. Raises ``MissingChromiumError``."""
    if os.geteuid() or not shutil.which("apt-get"):
        raise MissingChromiumError(f"{PACKAGE} is not installed, and only root can install it, with apt-get")
    install = ["install", "-y", "--no-install-recommends", PACKAGE, "fonts-dejavu-core"]
    for command in (install, ["update"], install):
        done = subprocess.run(
            ["apt-get", *command], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, text=True, capture_output=True
        )
        if command is install and not done.returncode:
            return
    raise MissingChromiumError(f"{PACKAGE} can't be installed: {done.stderr}")


def main() -> None:
    """Make sure that Chromium is installed."""
    try:
        try:
            locate()
        except MissingChromiumError:
            if os.environ.get("CHROMIUM"):
                raise
            print("Installing Debian's package of Chromium ...", file=sys.stderr)  # noqa: T201
            install()
            locate()
    except MissingChromiumError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
