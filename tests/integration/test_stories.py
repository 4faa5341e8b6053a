"""The demo's stories, with the operator started in each way that users start it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from allaboard.cli.embedded import operator
from allaboard.cli.stories import STORIES, Objects, Stage, Story
from tests.cluster import Cluster

from .conftest import Kubectl

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("pipeline_rights")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_story_of_the_demo_ends_as_described(story: Story, cluster: Cluster, kubeconfig: Path) -> None:
    async def apply(objects: Objects) -> None:
        for obj in objects:
            cluster.apply(obj)

    async with operator(kubeconfig, **story.settings):
        await story.run(Stage(cluster, apply))


@pytest.mark.kubectl
@pytest.mark.parametrize("target", [("operator/main.py",), ("-m", "allaboard.handlers")], ids=["kopf run PATH", "kopf run -m"])
async def test_stories_of_the_demo_end_as_described_with_kopf_run_and_kubectl(
    target: tuple[str, ...], cluster: Cluster, kubeconfig: Path, kubectl: Kubectl
) -> None:
    async def apply(objects: Objects) -> None:
        await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    stage = Stage(cluster, apply)
    async with kopf_run(*target, settings={name: value for story in STORIES for name, value in story.settings.items()}):
        for story in STORIES:
            await story.run(stage)
            await stage.clear()


@asynccontextmanager
async def kopf_run(*target: str, settings: Mapping[str, str]) -> AsyncIterator[None]:
    """Run ``kopf run`` in a process of its own, which must exit with 0 after SIGTERM."""
    environment = {**os.environ, "ALLABOARD_METRICS_PORT": "0", "ALLABOARD_API_PORT": "0", "PYTHONWARNINGS": "error"}
    environment |= {f"ALLABOARD_{name.upper()}": value for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kopf", "run", *target, "-A"),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    log: list[str] = []
    started = asyncio.Event()

    async def read() -> None:
        async for line in process.stdout:  # type: ignore[union-attr]
            log.append(line.decode())
            if "scheduling begins" in log[-1]:
                started.set()
        started.set()

    reader = asyncio.create_task(read())
    try:
        async with asyncio.timeout(50):
            await started.wait()
        assert process.returncode is None, "".join(log)
        yield
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(50):
            assert await process.wait() == 0, "".join(log)
        assert not any("Traceback" in line for line in log), "".join(log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reader
