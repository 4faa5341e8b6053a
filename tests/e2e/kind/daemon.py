"""Runs a docker daemon of our own where no other one answers.

The daemon has Linux namespaces of its own, so that its processes, mounts and network end with it. Its network has no way out, and its
images are built here. Only two changes affect the whole machine: the cgroups of its containers, and the kernel settings that its nodes
change. Both are undone at the end, or by the next run if this one is killed.
"""

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from tests.e2e.controlplane.binaries import MissingToolError
from tests.e2e.controlplane.processes import Processes, StartError, stop_noted

from .steps import Steps

_HERE = Path(__file__).parent
_LOCK = Path("/run/allaboard-kind.lock")
_CGROUP = "allaboard-kind"
_CGROUPS = Path("/sys/fs/cgroup")
_SETTINGS = (
    # set by kubelets
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    # set by the nodes' systemd
    "kernel/pid_max",
    "fs/protected_fifos",
    "fs/protected_hardlinks",
    "fs/protected_regular",
    "fs/protected_symlinks",
    # set here, since many containers need higher limits
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
)
"""Kernel settings that are changed for the whole machine, grouped by the program that changes them."""
_INOTIFY_INSTANCES = 1024
_SECONDS = 60.0


class KernelSettings:
    """The original kernel settings, kept in ``folder`` until they are restored; ``root`` is the kernel's folder of settings."""

    def __init__(self, folder: Path, root: Path = Path("/proc/sys")) -> None:
        self._folder, self._root = folder, root

    def note(self) -> None:
        """Keep the current values. Values that a killed run has kept are the original ones, and stay."""
        for name in _SETTINGS:
            noted, setting = self._noted(name), self._root / name
            if not noted.exists() and setting.exists():
                written = noted.with_suffix(".partly")
                written.write_text(setting.read_text())
                written.replace(noted)

    def put_back(self) -> None:
        """Restore all values that were kept."""
        for name in _SETTINGS:
            if (noted := self._noted(name)).exists():
                (self._root / name).write_text(noted.read_text())
                noted.unlink()

    def raise_limit(self) -> None:
        """Raise the limit of inotify instances, so that many containers can watch files."""
        limit = self._root / "fs/inotify/max_user_instances"
        if int(limit.read_text()) < _INOTIFY_INSTANCES:
            limit.write_text(str(_INOTIFY_INSTANCES))

    def _noted(self, name: str) -> Path:
        return self._folder / f"{name.replace('/', '.')}.setting"


class Daemon:
    """A docker daemon that runs during the context, at most one on a machine; its images are kept in the cache."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._folder = steps.cache / "daemon"
        self._folder.mkdir(exist_ok=True)
        self._processes = Processes(self._folder)
        self._socket = self._folder / "docker.sock"
        self._settings = KernelSettings(self._folder)
        self._undo = ExitStack()

    def __enter__(self) -> "Daemon":
        with ExitStack() as undo:
            lock = undo.enter_context(_LOCK.open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise MissingToolError(f"another run has a docker daemon of its own ({_LOCK} is locked): wait for its end") from None
            stop_noted(self._folder)  # a killed run may have left processes
            undo.callback(self._settings.put_back)
            undo.callback(_remove_cgroups)
            self._settings.note()
            self._settings.raise_limit()
            self._start(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the environment that make ``docker`` and ``kind`` use this daemon."""
        return {"DOCKER_HOST": f"unix://{self._socket}", "DOCKER_BUILDKIT": "0"}

    def inside(self, *command: str | Path) -> list[str]:
        """Return the command that runs ``command`` in the daemon's network, in which the ports of containers are reachable."""
        return ["nsenter", f"--net=/proc/{self._processes.pid('dockerd')}/ns/net", *(str(word) for word in command)]

    def docker(self, what: str, *words: str | Path, stdin: Path | None = None) -> str:
        """Run ``docker`` as a step with the name ``what``, and return its output."""
        return self._steps.run(what, ["docker", *words], {**os.environ, **self.environment}, stdin)

    def has_image(self, tag: str) -> bool:
        """Return whether the daemon has an image."""
        return self._ask("image", "inspect", tag) is not None

    def _start(self, undo: ExitStack) -> None:
        runtime = self._folder / "runc"
        runtime.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{_HERE / "held.py"}" "$@"\n')
        runtime.chmod(0o755)
        # The file of a killed daemon would make dockerd believe that the daemon still runs.
        (self._folder / "dockerd.pid").unlink(missing_ok=True)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._processes.start(
            "dockerd",
            [
                *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("sh", "-c", 'ip link set lo up && exec "$@"', "sh", "dockerd"),
                *("--host", f"unix://{self._socket}", "--data-root", self._folder / "data", "--exec-root", self._folder / "exec"),
                *("--pidfile", self._folder / "dockerd.pid", "--storage-driver", "overlay2"),
                *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{_CGROUP}"),
                *("--add-runtime", f"held={runtime}", "--default-runtime", "held"),
                # No name server answers there, which is known at once; queries to the machine's own would time out.
                *("--bip", "172.30.0.1/16", "--dns", "172.30.0.1", "--default-address-pool", "base=172.31.0.0/16,size=24"),
            ],
        )
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        undo.callback(self._end)
        self._processes.wait_until("dockerd", self._answers, _SECONDS)
        self._remove_containers()

    def _remove_containers(self) -> None:
        """Remove all running containers: a killed run has left them."""
        if left := (self._ask("ps", "--all", "--quiet") or "").split():
            self.docker(f"docker rm of {len(left)} containers that a run has left", "rm", "--force", "--volumes", *left)

    def _answers(self) -> bool:
        return self._ask("version") is not None

    def _ask(self, *words: str) -> str | None:
        """Return the output of a ``docker`` query that isn't a step; None if it fails."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(["docker", *words], env=environment, capture_output=True, text=True, check=False)
        return None if done.returncode else done.stdout

    def _end(self) -> None:
        """Terminate the daemon itself, after which its parent process ends. Ending the parent first would kill the daemon."""
        pid = self._processes.pid("dockerd")
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGTERM)
        with suppress(StartError):
            self._processes.wait_until("dockerd", lambda: False, _SECONDS)
        self._processes.stop("dockerd")


def _remove_cgroups() -> None:
    """Remove the cgroups of the containers, in both versions of cgroups; cgroups that aren't empty yet stay."""
    for top in (_CGROUPS / _CGROUP, *_CGROUPS.glob(f"*/{_CGROUP}")):
        for folder in sorted((top, *top.rglob("*/")), reverse=True):
            with suppress(OSError):
                folder.rmdir()


def why_impossible() -> str:
    """Return why this machine can't run a docker daemon of our own; empty if the machine can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a docker daemon of our own needs root on Linux"
    missing = [program for program in ("unshare", "nsenter", "ip", "docker") if not shutil.which(program)]
    if missing and not shutil.which("apt-get"):
        return f"a docker daemon of our own needs {', '.join(missing)}"
    alone = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
    if "unshare" not in missing and subprocess.run(alone, capture_output=True, check=False).returncode:
        return "no namespaces can be created for a docker daemon of our own: this seems to be a container without CAP_SYS_ADMIN"
    if not os.access("/proc/sys/fs/inotify/max_user_instances", os.W_OK):
        return "a docker daemon of our own sets limits of the kernel, and /proc/sys can't be written"
    return ""
