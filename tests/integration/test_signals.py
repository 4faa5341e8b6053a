"""``allaboard run`` ends on signals with status 0 and without output."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

SECONDS = 60.0


@asynccontextmanager
async def running(kubeconfig: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a scheduler in a process of its own, and yield the process once it makes decisions."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "allaboard", "run", "--kubeconfig", str(kubeconfig)),
        *("--metrics-port=0", "--health-port=0", "--api-port=0"),
        env={**os.environ, "ALLABOARD_GPU_METRICS__SOURCE": "off"},  # GPU metrics would log a line of their own a moment later
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            async for line in process.stdout:
                if b"scheduling begins" in line:
                    break
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)],
    ids=lambda numbers: " ".join(number.name for number in numbers),
)
async def test_command_run_stops_without_output_after_one_or_two_signals(numbers: tuple[signal.Signals, ...], kubeconfig: Path) -> None:
    async with running(kubeconfig) as process:
        for number in numbers:
            os.kill(process.pid, number)
        output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"")


async def test_no_process_writes_output_after_the_command_run_is_killed(kubeconfig: Path) -> None:
    async with running(kubeconfig) as process:
        process.kill()
        output, _ = await process.communicate()  # returns when no process has standard error open
    assert (process.returncode, output) == (-signal.SIGKILL, b"")
