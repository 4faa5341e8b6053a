"""Runs the operator as users do, in a process of its own, so that benchmarks can measure the operator from outside."""

import asyncio
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PORTS = {"ALLABOARD_METRICS_PORT": "0"}
_RUN = ("-m", "kopf", "run", "operator/main.py", "-A")


@asynccontextmanager
async def operator_process(
    kubeconfig: Path, profile: Path | None = None, watch: Path | None = None, *, api_port: int = 0
) -> AsyncIterator[int]:
    """Run ``kopf run operator/main.py -A`` on the cluster of ``kubeconfig``; yield its pid when scheduling begins.

    With ``api_port``, the operator serves its API there. With ``watch``, the operator records in that file when its event loop is late
    (``loop_watch``). With ``profile``, it runs under py-spy, which writes a speedscope file, or under cProfile if py-spy isn't installed.
    Raises ``RuntimeError`` with the operator's last lines if it can't start.
    """
    sampler = _sampler() if profile else None
    process = await asyncio.create_subprocess_exec(
        *_command(profile, sampler),
        *([str(Path(__file__).with_name("loop_watch.py"))] if watch else []),
        cwd=ROOT,
        env={
            **os.environ,
            **_PORTS,
            "ALLABOARD_API_PORT": str(api_port),
            "KUBECONFIG": str(kubeconfig),
            **({"LOOP_WATCH": str(watch)} if watch else {}),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    pid = process.pid
    last_lines: deque[str] = deque(maxlen=20)
    begun = asyncio.Event()
    reader = asyncio.create_task(_read(process, begun, last_lines))
    try:
        await begun.wait()
        if process.returncode is not None:
            raise RuntimeError("the operator could not start:\n" + "".join(last_lines))
        if sampler:
            # py-spy is the parent of the operator, and writes its file when the operator ends.
            pid = children(process.pid)[0]
        yield pid
    finally:
        if process.returncode is None:
            os.kill(pid, signal.SIGTERM)
        await process.wait()
        await reader


def _sampler() -> str | None:
    return shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


def _command(profile: Path | None, sampler: str | None) -> list[str]:
    if profile is None:
        return [sys.executable, *_RUN]
    if sampler:
        return [sampler, "record", "--format", "speedscope", "--output", str(profile), "--", sys.executable, *_RUN]
    return [sys.executable, "-m", "cProfile", "-o", str(profile), *_RUN]


async def _read(process: asyncio.subprocess.Process, begun: asyncio.Event, last_lines: deque[str]) -> None:
    """Read the output so that the pipe never fills. Set ``begun`` when scheduling begins, and when the process ends."""
    if process.stdout is not None:
        async for line in process.stdout:
            last_lines.append(line.decode(errors="replace"))
            if b"scheduling begins" in line:
                begun.set()
    await process.wait()
    begun.set()


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> tuple[float, float]:
    """Return the resident memory of a process in MiB: now, and its peak."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


def children(pid: int) -> list[int]:
    """Return the pids of the processes that ``pid`` has started, such as the operator's search processes."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
