"""The operator as users run it, in a process of its own, for benchmarks that measure it from outside."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from allaboard.sandbox import Sandbox

ROOT = Path(__file__).parents[1]


@asynccontextmanager
async def operator_process(sandbox: Sandbox) -> AsyncIterator[asyncio.subprocess.Process]:
    """``kopf run operator/main.py -A`` on ``sandbox``; yields when it makes decisions."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        sandbox.write_kubeconfig(kubeconfig)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kopf", "run", "operator/main.py", "-A"),
            cwd=ROOT,
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "ALLABOARD_METRICS_PORT": "0"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        reader = None
        try:
            begun = asyncio.Event()
            reader = asyncio.create_task(_read(process, begun))
            await begun.wait()
            if process.returncode is not None:
                raise RuntimeError("the operator could not start")
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            if reader is not None:
                await reader


async def _read(process: asyncio.subprocess.Process, begun: asyncio.Event) -> None:
    """Keep the pipe empty; its lines are the benchmark's business only until scheduling begins."""
    if process.stdout is not None:
        async for line in process.stdout:
            if b"scheduling begins" in line:
                begun.set()
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
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
