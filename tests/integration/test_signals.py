"""``allaboard run`` ends well when it is told to, and quietly."""

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
    """A scheduler of its own process, which makes decisions."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "allaboard", "run", "--kubeconfig", str(kubeconfig), "--metrics-port", "0", "--health-port", "0"),
        env={**os.environ, "ALLABOARD_GPU_METRICS__SOURCE": "off"},  # which says something of its own, a moment later
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
async def test_it_stops_without_a_word_however_often_it_is_told_to(numbers: tuple[signal.Signals, ...], kubeconfig: Path) -> None:
    async with running(kubeconfig) as process:
        for number in numbers:
            os.kill(process.pid, number)
        words, _ = await process.communicate()
    assert (process.returncode, words) == (0, b"")


async def test_when_it_is_killed_nobody_says_anything_either(kubeconfig: Path) -> None:
    async with running(kubeconfig) as process:
        process.kill()
        words, _ = await process.communicate()  # which ends when nobody has standard error open any more
    assert (process.returncode, words) == (-signal.SIGKILL, b"")
