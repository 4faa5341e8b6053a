"""Background processes of a control plane, each with a log; they are ended by their pids and by nothing else."""

import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

STOP_SECONDS = 10.0
_RANDOM = random.SystemRandom()  # never seeded, so that concurrent runs choose different ports
_PORTS = range(15_000, 30_000)  # below the ports of connections and of NodePorts


class StartError(RuntimeError):
    """A process ended, or didn't answer, while it was being started."""


class Processes:
    """Named processes with their logs and pids in ``folder``, from which a later run can end them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Start a process in a session of its own, so that an interrupt at the terminal doesn't reach it."""
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=self._folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started[name] = process
        self._note(name, process.pid)

    def pid(self, name: str) -> int:
        """Return the pid of a running process."""
        return self._started[name].pid

    def wait_until(self, name: str, is_ready: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until ``is_ready()``. Raises ``StartError`` with the end of the log if the process ends or ``seconds`` pass first."""
        deadline = time.monotonic() + seconds
        while not is_ready():
            code = self._started[name].poll()
            if code is not None or time.monotonic() > deadline:
                what = f"ended with {code}" if code is not None else f"is not ready after {seconds:.0f} s"
                raise StartError(f"{name} {what}; the end of {self._folder / f'{name}.log'}:\n{self.tail(name)}")
            time.sleep(0.05)

    def tail(self, name: str, lines: int = 15) -> str:
        """Return the last lines of a process's log."""
        return "\n".join((self._folder / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    def count_in_log(self, name: str, words: str) -> int:
        """Return how often a process, and earlier processes of the same name, have logged ``words``."""
        log = self._folder / f"{name}.log"
        return log.read_text(errors="replace").count(words) if log.exists() else 0

    def stop(self, name: str) -> None:
        """Terminate a process, and kill it if it doesn't end in time."""
        process = self._started.pop(name, None)
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop_all(self) -> None:
        """Stop all processes, the last started first."""
        for name in reversed(list(self._started)):
            self.stop(name)

    @property
    def _pids(self) -> Path:
        return self._folder / "pids.json"

    def _note(self, name: str, pid: int) -> None:
        pids = json.loads(self._pids.read_text()) if self._pids.exists() else {}
        self._pids.write_text(json.dumps({**pids, name: {"pid": pid, "started": _started(pid)}}))


def stop_noted(folder: Path) -> list[str]:
    """Stop the processes that an earlier run has started in ``folder``, and return their names; a reused pid is left alone."""
    noted = folder / "pids.json"
    if not noted.exists():
        return []
    alive = {name: entry for name, entry in json.loads(noted.read_text()).items() if _started(entry["pid"]) == entry["started"]}
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STOP_SECONDS
        for entry in reversed(alive.values()):
            if _started(entry["pid"]) == entry["started"]:
                os.kill(entry["pid"], number)
        while any(_started(entry["pid"]) == entry["started"] for entry in alive.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
    noted.unlink()
    return list(alive)


def free_ports(count: int) -> list[int]:
    """Return unused ports on loopback that the kernel doesn't give to outgoing connections."""
    found: list[int] = []
    while len(found) < count:
        port = _RANDOM.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found


def _started(pid: int) -> str:
    """Return when a process was started, in the kernel's units; empty if there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
