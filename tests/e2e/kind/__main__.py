"""``make e2e-kind``: run the end-to-end tests on a kind cluster, with an existing docker daemon or with one of our own."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from tests.cache import cache
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.binaries import MissingToolError
from tests.e2e.controlplane.processes import StartError

from . import daemon, debian, images
from .daemon import Daemon
from .programs import KIND, PROGRAMS
from .steps import Steps

_HERE = Path(__file__).parent
_NODE_IMAGE = f"kindest/node:v{binaries.KUBERNETES}"
_TESTS_OWN = (binaries.KWOK, binaries.TRAINING_OPERATOR, binaries.HELM, binaries.ACTIONLINT, binaries.KREW, binaries.CRANE)
"""Programs that tests use; they are built first, since the tests have no network."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True})
@click.option("--docker", type=click.Choice(["auto", "found", "own"]), default="auto", show_default=True, help="The docker daemon to use.")
@click.option("--build", "is_build", is_flag=True, help="Only build what a docker daemon of our own needs.")
@click.option("--if-built", is_flag=True, help="Do nothing, and print that, if no node image was built before.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[PYTEST ARGUMENT]...")
def cli(docker: str, is_build: bool, if_built: bool, words: tuple[str, ...]) -> None:
    """Run the end-to-end tests on a kind cluster of two nodes, with the operator deployed from config/.

    The existing docker daemon is used if kind is installed and its node image can be pulled. Else everything is built from packages of
    Debian and the Go module proxy, which needs root on Debian. The first build takes a quarter of an hour; later ones use the cache. The
    docker daemon that is started then has a network of its own, and ends with the tests, which take ten minutes.

    The following stays: ~/.cache/allaboard (several GB, and more with each version; remove it to start again), Go's own cache, and the
    Debian packages that build file systems. If a run is killed, the next one restores the settings of the machine that it had changed.
    """
    console = Console(stderr=True)
    why_not = "the options exclude it" if docker == "own" or is_build else _why_not_found()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if not why_not:
        sys.exit(_run([], {}, words))
    if docker == "found" or "KIND_NODE_IMAGE" in os.environ:
        raise click.ClickException(f"the existing docker daemon can't be used: {why_not}")
    kept = cache() / "kind"
    if if_built and not images.was_built(kept):
        console.print("NOT RUN: no kind node image was built here before; `make e2e-kind` builds it, in a quarter of an hour", style="bold")
        return
    if why_not_own := daemon.why_impossible():
        raise click.ClickException(f"the existing docker daemon can't be used ({why_not}), and {why_not_own}")
    console.print(f"a docker daemon of our own ({why_not})", highlight=False, soft_wrap=True)
    try:
        with ExitStack() as undo:
            steps = Steps(kept, console)
            debian.ensure_packages(steps)
            programs = binaries.ensure([*PROGRAMS, *_TESTS_OWN], console)
            for program, path in binaries.FOREIGN_CRDS:
                binaries.module_file(program, path)
            own = undo.enter_context(Daemon(steps))
            node = images.ensure_node(steps, own, programs)
            base = images.ensure_python(steps, own)
            wheels = images.ensure_wheels(steps, Path(sys.executable))
            found = os.pathsep.join((*(str(programs[name].parent) for name in ("kind", "kubectl")), os.environ["PATH"]))
            offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
            environment = {**own.environment, **offline, "PATH": found, "KIND_NODE_IMAGE": node, "BASE": base}
            status = 0 if is_build else _run(own.inside(), environment, words)
            own.docker("docker image prune", "image", "prune", "--force")
    except (MissingToolError, StartError) as error:
        raise click.ClickException(str(error)) from None
    sys.exit(status)


def _why_not_found() -> str:
    """Return why the existing docker daemon can't be used; empty if it can."""
    for program in ("docker", "kind", "kubectl"):
        if not shutil.which(program):
            return f"{program} is not installed"
    version = subprocess.run(["kind", "version"], capture_output=True, text=True, check=False).stdout
    if "KIND_NODE_IMAGE" not in os.environ and f"v{KIND.version} " not in version:
        return f"{_NODE_IMAGE} needs kind {KIND.version}, and `kind version` prints {version.strip()}"
    if _fails("docker", "info"):
        return "no docker daemon answers"
    image = os.environ.get("KIND_NODE_IMAGE", _NODE_IMAGE)
    if _fails("docker", "image", "inspect", image) and _fails("docker", "pull", "--quiet", image):
        return f"it can't pull {image}"
    return ""


def _fails(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def _run(inside: list[str], environment: Mapping[str, str], words: tuple[str, ...]) -> int:
    default = {"PYTHON": sys.executable, "KIND_NODE_IMAGE": _NODE_IMAGE}
    command = [*inside, str(_HERE / "cluster.sh"), *_chosen(words)]
    process = subprocess.Popen(command, env={**default, **os.environ, **environment}, start_new_session=True)
    while True:
        try:
            return process.wait()
        except (KeyboardInterrupt, SystemExit):
            # The whole process group is interrupted: the shell removes the cluster when pytest has ended.
            os.killpg(process.pid, signal.SIGINT)


def _chosen(words: Sequence[str]) -> list[str]:
    """Return the arguments for pytest: all end-to-end tests, unless one of ``words`` names tests."""
    names_tests = any("/" in word.partition("::")[0] and Path(word.partition("::")[0]).exists() for word in words)
    return [*([] if names_tests else ["tests/e2e"]), *words]


if __name__ == "__main__":
    cli()
