"""Runs a process that has imported everything but the scheduler, and forks for each hunt.

Importing NumPy, SciPy, Kubernetes' client and Hypothesis takes ten times as long as playing a directed schedule. A forked process imports
the scheduler with a mutant's modules, and ends with its hunt, so that nothing of a mutant is shared.
"""

import asyncio
import gc
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
_SHARED = (
    "aiohttp.web",
    "allaboard_sandbox",
    "deap.base",
    "hypothesis.stateful",
    "jsonpatch",
    "jsonschema",
    "kubernetes.aio.client",
    "moocore",
    "orjson",
    "pebble",
    "prometheus_client",
    "pydantic_settings",
    "highspy",
    "tenacity",
    "unittest.mock",
    "yaml",
)
_READY = "ready"


class Forks:
    """A client of the process that forks: it asks that process for hunts, through the socket ``door``."""

    def __init__(self, door: Path) -> None:
        self._door = door

    async def hunt(self, patches: Path, *arguments: str) -> str:
        """Run ``hunt`` with these arguments on the scheduler with the modules in ``patches``; return its output, or the traceback."""
        reader, writer = await asyncio.open_unix_connection(self._door)
        try:
            writer.write(json.dumps({"patches": str(patches), "how": arguments}).encode() + b"\n")
            return (await reader.read()).decode(errors="replace")
        finally:
            writer.close()


@contextmanager
def forking() -> Iterator[Forks]:
    """Start the process for the context; at the end it is killed, with all hunts."""
    with tempfile.TemporaryDirectory(prefix="allaboard-forks-") as folder:
        door = Path(folder, "door")
        # Sets are walked in the same order each time, and a process that forks has one thread.
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/operator{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        with subprocess.Popen(
            [sys.executable, "-m", "tests.faults.forks", str(door)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        ) as process:
            assert process.stdout is not None
            if process.stdout.readline().strip() != _READY:
                raise RuntimeError("the process for hunts doesn't start")
            yield Forks(door)


def main(door: str) -> None:
    """Fork for each connection, until standard input is closed."""
    for name in _SHARED:
        import_module(name)
    if ours := sorted(name for name in sys.modules if name.partition(".")[0] == "allaboard"):
        raise RuntimeError(f"imported before the mutant is known: {', '.join(ours)}")
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(door)
        listening.listen(64)
        sys.stdout.write(f"{_READY}\n")
        sys.stdout.flush()
        while not (ready := select.select([listening, sys.stdin], [], [])[0]) or sys.stdin not in ready:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _hunt_and_exit(connection)
            connection.close()
            _reap()
    os.killpg(0, 9)


def _reap() -> None:
    """Reap the hunts that have ended, so that no zombies stay."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return


class Patches(MetaPathFinder):
    """Finds the modules of a mutant before the original ones."""

    def __init__(self, folder: Path) -> None:
        self._paths = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in folder.rglob("*.py")}
        self.names = self._paths.keys()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_file_location(fullname, self._paths[fullname]) if fullname in self._paths else None


def _hunt_and_exit(connection: socket.socket) -> None:
    """Hunt, write the result to the connection, and exit."""
    try:
        asked = json.loads(connection.makefile().readline())
        for number in (1, 2):
            os.dup2(connection.fileno(), number)
        sys.dont_write_bytecode = True  # the modules of a mutant are deleted after the hunt
        patches = Patches(Path(asked["patches"]))
        sys.meta_path.insert(0, patches)
        sys.argv = ["hunt", *asked["how"]]
        import_module("tests.faults.hunt").main()
        if left := patches.names - sys.modules.keys():
            raise RuntimeError(
                f"patched but never imported: {', '.join(sorted(left))}"
            )  # raised after the result was written, so that it is printed last
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
