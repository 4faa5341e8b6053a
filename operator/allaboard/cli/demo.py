"""``allaboard demo``: play the stories on a sandbox cluster, show them live, and check their ends."""

import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from allaboard.cli import bundled
from allaboard.cli.embedded import OperatorEndedError, OperatorStoppedError, api_port, operator
from allaboard.cli.inputs import BadInputError
from allaboard.cli.screen import Scene, Screen
from allaboard.cli.stories import STORIES, Objects, Stage, Story, StoryError
from allaboard.placement.solvers.improve import STEPS
from allaboard.settings.options import SettingsError, load_settings
from allaboard_sandbox import Sandbox

_FRAME_SECONDS = 0.1


class _Listener(logging.Handler):
    """Log handler that puts the scheduler's last decision on the screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Take the decision and the search's history from a log record."""
        self._screen.decision = getattr(record, "decision", {})
        self._screen.history = getattr(record, "history", ())


def demo(keep: bool, names: tuple[str, ...], pace: float | None, picture: str | None) -> None:
    """Play the stories, and save the last screen as ``picture`` if a path is given.

    Exits with 1 if a story doesn't end as expected, with 130 if interrupted.
    """
    stories = [story for story in STORIES if not names or story.name in names]
    console = Console()
    if pace is None:
        pace = 1.0 if console.is_terminal else 0.0
    try:
        load_settings()  # the operator reads the environment, too
    except SettingsError as error:
        raise BadInputError(str(error)) from error
    try:
        failed = asyncio.run(_perform(console, stories, keep, pace, picture))
    except (KeyboardInterrupt, OperatorStoppedError):
        console.print("interrupted")
        sys.exit(130)
    except OperatorEndedError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(1 if failed else 0)


async def _perform(console: Console, stories: Sequence[Story], keep: bool, pace: float, picture: str | None) -> int:
    """Play the stories, and return how many didn't end as expected."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="allaboard-") as folder:
        kubeconfig = Path(folder, "kubeconfig")
        async with Sandbox() as sandbox:
            for crd in bundled.crds():
                sandbox.apply(crd)
            sandbox.write_kubeconfig(kubeconfig)
            screen = Screen(sandbox, [Scene(story) for story in stories])
            listener = _Listener(screen)
            decisions = logging.getLogger("allaboard.decisions")
            decisions.addHandler(listener)
            decisions.setLevel(logging.INFO)
            logging.getLogger("kopf").setLevel(logging.ERROR)
            try:
                needed: dict[str, Any] = {name: value for story in stories for name, value in story.settings.items()}
                page: dict[str, Any] = {"ui": True, "api_port": api_port()} if keep else {}
                async with operator(kubeconfig, **needed, **page):
                    failures = await _play(console, screen, pace)
                    took = time.monotonic() - started
                    verdict = "[green]all ended as expected" if not failures else f"[red]{len(failures)} didn't end as expected"
                    console.print(f"{len(stories)} {'story' if len(stories) == 1 else 'stories'} in {took:.1f} s: {verdict}")
                    for failure in failures:
                        console.print(f"[red]✗[/] {failure}", soft_wrap=True)
                    if picture:
                        _save(screen.picture(), picture)
                    if keep:
                        with suppress(OperatorEndedError):
                            await _keep(console, kubeconfig, page["api_port"])
            finally:
                decisions.removeHandler(listener)
    return len(failures)


async def _play(console: Console, screen: Screen, pace: float) -> list[str]:
    failures = []
    async with _shown(console, screen):
        for position, scene in enumerate(screen.scenes):
            screen.playing = position

            async def apply(objects: Objects) -> None:
                for obj in objects:
                    screen.sandbox.apply(obj)

            def caption(text: str, scene: Scene = scene) -> None:
                scene.caption = text

            stage = Stage(screen.sandbox, apply, caption)
            scene.mark = "[yellow]▶"
            started = time.monotonic()
            try:
                await scene.story.run(stage)
                scene.mark = "[green]✓"
            except StoryError as error:
                scene.mark = "[red]✗"
                failures.append(f"{scene.story.name}: {error}")
            scene.seconds = time.monotonic() - started
            stage.caption = lambda text: None
            if screen.decision.get("foundBy") in STEPS:
                scene.note = f"placement found by {screen.decision['foundBy']}: {screen.decision['steps']}"
            scene.caption = ""
            await asyncio.sleep(pace)
            if scene is not screen.scenes[-1]:
                await stage.clear()
    console.print(screen.programme())
    return failures


@asynccontextmanager
async def _shown(console: Console, screen: Screen) -> AsyncIterator[None]:
    """Show the screen while the context lasts, if ``console`` is a terminal."""
    if not console.is_terminal:
        yield
        return

    async def refresh(live: Live) -> None:
        while True:
            live.update(screen.frame(console), refresh=True)
            await asyncio.sleep(_FRAME_SECONDS)

    with Live(console=console, auto_refresh=False, transient=True) as live:
        frames = asyncio.create_task(refresh(live))
        try:
            yield
        finally:
            frames.cancel()
            await asyncio.gather(frames, return_exceptions=True)


def _save(picture: str, path: str) -> None:
    try:
        Path(path).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"the picture can't be written: {error}") from error


async def _keep(console: Console, kubeconfig: Path, port: int) -> None:
    """Keep the sandbox and the scheduler running until interrupted."""
    console.print("The sandbox keeps running with the objects of the last story; press Ctrl-C to end it. In another terminal:")
    console.print(f"export KUBECONFIG={kubeconfig}", soft_wrap=True, highlight=False)
    console.print("kubectl get nodes,pods,podgroups", highlight=False)
    console.print(f"The departure board: http://127.0.0.1:{port}/", highlight=False)
    await asyncio.Event().wait()
