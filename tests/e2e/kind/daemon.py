"""A docker daemon of our own, where no other answers: in namespaces of its own, so that nothing of it outlasts it, whatever ends it.

Its network has no way out, and its images come from what is built here. Only what Linux has one of for the whole machine is seen outside:
the cgroups of its containers, and settings of the kernel that kubelets make; both are put back at the end.
"""

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.e2e.controlplane.binaries import MissingToolError
from tests.e2e.controlplane.processes import Processes, StartError

from .steps import Steps

_HERE = Path(__file__).parent
_CGROUP = "allaboard-kind"
_SETTINGS = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "kernel/pid_max",
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
)
"""What kubelets set for the whole machine, and what many containers want more of."""
_INOTIFY_INSTANCES = 1024
_SECONDS = 60.0


class Daemon:
    """Runs as long as the context lasts. One at a time: its images are kept in the cache."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._folder = steps.cache / "daemon"
        self._folder.mkdir(exist_ok=True)
        self._processes = Processes(self._folder)
        self._socket = self._folder / "docker.sock"
        self._lock = (self._folder / "lock").open("w")

    def __enter__(self) -> "Daemon":
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise MissingToolError(f"another run uses {self._folder}: wait for its end, or set XDG_CACHE_HOME") from None
        self._note_settings()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    @property
    def environment(self) -> Mapping[str, str]:
        """What makes ``docker`` and ``kind`` use it."""
        return {"DOCKER_HOST": f"unix://{self._socket}", "DOCKER_BUILDKIT": "0"}

    def inside(self, *command: str | Path) -> list[str]:
        """The command that runs ``command`` in its network, where the ports of its containers are."""
        return ["nsenter", f"--net=/proc/{self._processes.pid('dockerd')}/ns/net", *(str(word) for word in command)]

    def docker(self, what: str, *words: str | Path, stdin: Path | None = None) -> str:
        """What ``docker`` prints; a step that is called ``what``."""
        return self._steps.run(what, ["docker", *words], {**os.environ, **self.environment}, stdin)

    def has_image(self, tag: str) -> bool:
        """Whether it knows an image."""
        command = ["docker", "image", "inspect", tag]
        return subprocess.run(command, env={**os.environ, **self.environment}, capture_output=True, check=False).returncode == 0

    def _start(self) -> None:
        runtime = self._folder / "runc"
        runtime.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{_HERE / "held.py"}" "$@"\n')
        runtime.chmod(0o755)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        # Of one that was killed, which would be believed to run.
        (self._folder / "dockerd.pid").unlink(missing_ok=True)
        unshared = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._processes.start(
            "dockerd",
            [
                *unshared,
                *("sh", "-c", 'ip link set lo up && exec "$@"', "sh", "dockerd"),
                *("--host", f"unix://{self._socket}", "--data-root", self._folder / "data", "--exec-root", self._folder / "exec"),
                *("--pidfile", self._folder / "dockerd.pid", "--storage-driver", "overlay2", "--cgroup-parent", _CGROUP),
                *("--add-runtime", f"held={runtime}", "--default-runtime", "held"),
                # Nobody answers there, and that is known at once; the machine's own name servers would be waited for.
                *("--bip", "172.30.0.1/16", "--dns", "172.30.0.1", "--default-address-pool", "base=172.31.0.0/16,size=24"),
            ],
        )
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self._processes.wait_until("dockerd", self._answers, _SECONDS)

    def _answers(self) -> bool:
        command = ["docker", "version"]
        return subprocess.run(command, env={**os.environ, **self.environment}, capture_output=True, check=False).returncode == 0

    def _stop(self) -> None:
        self._end()
        for name in _SETTINGS:
            if (noted := self._noted(name)).exists():
                _set(name, noted.read_text())
                noted.unlink()
        for folder in sorted(Path("/sys/fs/cgroup").glob(f"**/{_CGROUP}/**/"), reverse=True):
            folder.rmdir()
        self._lock.close()

    def _end(self) -> None:
        """Tell the daemon itself to end, which then ends what waits for it; that, if it came first, would kill the daemon."""
        pid = self._processes.pid("dockerd")
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGTERM)
        with suppress(StartError):
            self._processes.wait_until("dockerd", lambda: False, _SECONDS)
        self._processes.stop("dockerd")

    def _note_settings(self) -> None:
        """What a run has noted that was killed is what there was at first."""
        for name in _SETTINGS:
            noted = self._noted(name)
            if not noted.exists() and (setting := Path("/proc/sys", name)).exists():
                noted.write_text(setting.read_text())
        if int(Path("/proc/sys/fs/inotify/max_user_instances").read_text()) < _INOTIFY_INSTANCES:
            _set("fs/inotify/max_user_instances", str(_INOTIFY_INSTANCES))

    def _noted(self, name: str) -> Path:
        return self._folder / name.replace("/", ".")


def _set(name: str, value: str) -> None:
    Path("/proc/sys", name).write_text(value)


def is_possible() -> str:
    """Why there can be no such daemon here; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "one of its own is started by root, on Linux"
    missing = [program for program in ("unshare", "nsenter", "ip", "docker") if not shutil.which(program)]
    return f"one of its own needs {', '.join(missing)}" if missing and not shutil.which("apt-get") else ""
