"""The operator as users run it, in a process of its own, for benchmarks that measure it from outside."""

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
_RUN = ("-m", "kopf", "run", "operator/main.py", "-A")


@asynccontextmanager
async def operator_process(kubeconfig: Path, profile: Path | None = None, watch: Path | None = None) -> AsyncIterator[int]:
    """``kopf run operator/main.py -A`` on the cluster of ``kubeconfig``; yields its pid when it makes decisions.

    With ``watch`` it notes there when its event loop is late (``loop_watch``). With ``profile`` it runs under py-spy, which writes a
    speedscope file, or under cProfile when py-spy isn't installed.
    Raises ``RuntimeError`` with its last words when it can't start.
    """
    sampler = _sampler() if profile else None
    process = await asyncio.create_subprocess_exec(
        *_command(profile, sampler),
        *([str(Path(__file__).with_name("loop_watch.py"))] if watch else []),
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "ALLABOARD_METRICS_PORT": "0", **({"LOOP_WATCH": str(watch)} if watch else {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    pid = process.pid
    words: deque[str] = deque(maxlen=20)
    begun = asyncio.Event()
    reader = asyncio.create_task(_read(process, begun, words))
    try:
        await begun.wait()
        if process.returncode is not None:
            raise RuntimeError("the operator could not start:\n" + "".join(words))
        if sampler:
            # py-spy starts the operator; it writes its file when that ends.
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


async def _read(process: asyncio.subprocess.Process, begun: asyncio.Event, words: deque[str]) -> None:
    """Keep the pipe empty; its lines are the benchmark's business only until scheduling begins."""
    if process.stdout is not None:
        async for line in process.stdout:
            words.append(line.decode(errors="replace"))
            if b"scheduling begins" in line:
                begun.set()
    await process.wait()
    begun.set()


def cpu_seconds(pid: int) -> float:
    """Processor time a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident memory of a process now and at its highest, MiB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


def children(pid: int) -> list[int]:
    """Processes that ``pid`` has started, its search workers among them."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
