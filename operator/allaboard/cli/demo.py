"""``allaboard demo``: the stories on a sandbox, watched live and checked."""

import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from allaboard.cli import bundled
from allaboard.cli.embedded import OperatorEndedError, OperatorStoppedError, operator
from allaboard.cli.inputs import BadInputError
from allaboard.cli.stories import STORIES, Objects, Stage, Story, StoryError
from allaboard.placement.solvers.pursuit import STEPS
from allaboard.report import words
from allaboard.settings import SettingsError, load_settings
from allaboard_sandbox import Sandbox

_FRAME_SECONDS = 0.1
_BARS = "▁▂▃▄▅▆▇█"
_SPARKS = 24
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


@dataclass(slots=True)
class _Scene:
    """What the audience sees of one story."""

    story: Story
    mark: str = "[dim]·"
    seconds: float | None = None
    caption: str = ""
    note: str = ""


@dataclass(slots=True)
class _Theatre:
    """The state behind the live view."""

    sandbox: Sandbox
    scenes: list[_Scene]
    decision: dict[str, Any] = field(default_factory=dict)
    history: Sequence[tuple[int, float]] = ()

    def render(self) -> RenderableType:
        return Group(self._stories(), self._nodes(), self._search())

    def _stories(self) -> Table:
        table = Table(
            box=None, padding=(0, 1), header_style="bold", title="All aboard, or the train stays in the station", title_justify="left"
        )
        for column in ("", "STORY", "WHAT COMES OF IT", "SECONDS"):
            table.add_column(column)
        for scene in self.scenes:
            aside = f"waiting until {scene.caption}" if scene.caption else scene.note
            told = f"{scene.story.told}\n[dim]{aside}" if aside else scene.story.told
            table.add_row(scene.mark, scene.story.name, told, "" if scene.seconds is None else f"{scene.seconds:.1f}")
        return table

    def _nodes(self) -> Panel:
        table = Table(box=None, padding=(0, 2), header_style="bold")
        for column in ("NODE", "GPUS", "CPU", "PODS"):
            table.add_column(column)
        pods = self.sandbox.list("pods")
        gangs = sorted({_gang_name(pod) for pod in pods})
        for node in self.sandbox.list("nodes"):
            name, capacity = node["metadata"]["name"], node["status"]["capacity"]
            mine = [
                pod for pod in pods if pod["spec"].get("nodeName") == name and pod["status"].get("phase") not in ("Succeeded", "Failed")
            ]
            table.add_row(name, *(_gauge(mine, capacity, resource) for resource in ("nvidia.com/gpu", "cpu")), _names(mine, gangs))
        waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
        if waiting:
            table.add_row("[dim]waiting", "", "", _names(waiting, gangs))
        return Panel(table, title="the cluster", title_align="left", border_style="dim")

    def _search(self) -> Panel:
        facts = self.decision
        lines = Text()
        if facts:
            lines.append(f"{facts['gang']} {facts['outcome']}", style="bold")
            if "generations" in facts:
                generations = words.generations(facts["generations"], facts["stoppedBy"])
                lines.append(f": {generations}, score {facts['seedScore']} -> {facts['score']}, stopped by {facts['stoppedBy']}")
            lines.append(f" in {facts['durationMs']} ms")
            if facts.get("reason"):
                lines.append(f"\n{facts['reason']}", style="yellow")
            if self.history:
                lines.append(f"\nbest so far, by generation: {_progress(self.history)} {_sparkline(self.history)}")
        return Panel(lines, title="the last decision", title_align="left", border_style="dim", height=7)


class _Listener(logging.Handler):
    """Shows the scheduler's decisions as they are made."""

    def __init__(self, theatre: _Theatre) -> None:
        super().__init__()
        self._theatre = theatre

    def emit(self, record: logging.LogRecord) -> None:
        self._theatre.decision = getattr(record, "decision", {})
        self._theatre.history = getattr(record, "history", ())


def demo(keep: bool, names: tuple[str, ...], pace: float | None) -> None:
    """Play the stories. Exits 1 when a story ends otherwise than told, 130 when interrupted."""
    stories = [story for story in STORIES if not names or story.name in names]
    console = Console()
    if pace is None:
        pace = 1.0 if console.is_terminal else 0.0
    try:
        load_settings()  # those of the environment count here too
    except SettingsError as error:
        raise BadInputError(str(error)) from error
    try:
        failed = asyncio.run(_perform(console, stories, keep, pace))
    except (KeyboardInterrupt, OperatorStoppedError):
        console.print("interrupted")
        sys.exit(130)
    except OperatorEndedError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(1 if failed else 0)


async def _perform(console: Console, stories: Sequence[Story], keep: bool, pace: float) -> int:
    """Play the stories; returns how many did not end as told."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="allaboard-") as folder:
        kubeconfig = Path(folder, "kubeconfig")
        async with Sandbox() as sandbox:
            for crd in bundled.crds():
                sandbox.apply(crd)
            sandbox.write_kubeconfig(kubeconfig)
            theatre = _Theatre(sandbox, [_Scene(story) for story in stories])
            listener = _Listener(theatre)
            decisions = logging.getLogger("allaboard.decisions")
            decisions.addHandler(listener)
            decisions.setLevel(logging.INFO)
            logging.getLogger("kopf").setLevel(logging.ERROR)
            try:
                needed: dict[str, Any] = {name: value for story in stories for name, value in story.settings.items()}
                async with operator(kubeconfig, **needed):
                    failures = await _play(console, theatre, pace)
                    took = time.monotonic() - started
                    verdict = "[green]all ended as told" if not failures else f"[red]{len(failures)} ended otherwise"
                    console.print(f"{len(stories)} {'story' if len(stories) == 1 else 'stories'} in {took:.1f} s: {verdict}")
                    for failure in failures:
                        console.print(f"[red]✗[/] {failure}", soft_wrap=True)
                    if keep:
                        with suppress(OperatorEndedError):
                            await _keep(console, sandbox, kubeconfig)
            finally:
                decisions.removeHandler(listener)
    return len(failures)


async def _play(console: Console, theatre: _Theatre, pace: float) -> list[str]:
    failures = []
    with Live(theatre.render(), console=console, auto_refresh=False, transient=False) as live:
        frames = asyncio.create_task(_refresh(live, theatre)) if console.is_terminal else None
        for scene in theatre.scenes:

            async def apply(objects: Objects) -> None:
                for obj in objects:
                    theatre.sandbox.apply(obj)

            def caption(text: str, scene: _Scene = scene) -> None:
                scene.caption = text

            stage = Stage(theatre.sandbox, apply, caption)
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
            if theatre.decision.get("foundBy") in STEPS:
                scene.note = f"seats found by {theatre.decision['foundBy']}: {theatre.decision['steps']}"
            scene.caption = ""
            live.update(theatre.render(), refresh=True)
            await asyncio.sleep(pace)
            if scene is not theatre.scenes[-1]:
                await stage.clear()
        if frames is not None:
            frames.cancel()
            await asyncio.gather(frames, return_exceptions=True)
    console.print()
    return failures


async def _refresh(live: Live, theatre: _Theatre) -> None:
    while True:
        live.update(theatre.render(), refresh=True)
        await asyncio.sleep(_FRAME_SECONDS)


async def _keep(console: Console, sandbox: Sandbox, kubeconfig: Path) -> None:
    """Leave everything up until interrupted."""
    console.print("The sandbox stays up, with the last story in it; press Ctrl-C to end it. In another terminal:")
    console.print(f"export KUBECONFIG={kubeconfig}", soft_wrap=True, highlight=False)
    console.print("kubectl get nodes,pods,podgroups", highlight=False)
    await asyncio.Event().wait()


def _gang_name(pod: dict[str, Any]) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(
        labels.get("pod-group.scheduling.sigs.k8s.io/name") or labels.get("scheduling.x-k8s.io/pod-group") or pod["metadata"]["name"]
    )


def _names(pods: Objects, gangs: Sequence[str]) -> Text:
    """The pods of a node, alike ones together: ``worker ×4 ps``."""
    kinds = Counter((_kind_name(pod), _gang_name(pod), pod["status"].get("phase") == "Running") for pod in pods)
    text = Text()
    for (kind, gang, is_running), count in sorted(kinds.items()):
        colour = _COLOURS[gangs.index(gang) % len(_COLOURS)]
        label = kind if count == 1 else f"{kind} ×{count}"
        text.append((" " if text else "") + label, style=colour if is_running else f"dim {colour}")
    return text


def _kind_name(pod: dict[str, Any]) -> str:
    """A pod's name without what its controller has added to tell it from its siblings."""
    metadata = pod["metadata"]
    name = str(metadata["name"])
    if not metadata.get("ownerReferences"):
        return name
    return name.rpartition("-")[0].removesuffix(f"-{(metadata.get('labels') or {}).get('pod-template-hash', '')}")


def _gauge(pods: Objects, capacity: dict[str, str], resource: str) -> str:
    total = int(capacity.get(resource, "0"))
    if not total:
        return "-"
    used = sum(_amount(container, resource) for pod in pods for container in pod["spec"]["containers"])
    if total <= 8:
        return "■" * round(used) + "□" * (total - round(used))
    return f"{used:g}/{total}"


def _amount(container: dict[str, Any], resource: str) -> float:
    quantity = str(((container.get("resources") or {}).get("requests") or {}).get(resource, "0"))
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def _progress(history: Sequence[tuple[int, float]]) -> str:
    """What the search gained, from its first generation to its last."""
    (first_placed, first_score), (placed, score) = history[0], history[-1]
    if placed != first_placed:
        return f"{first_placed} -> {placed} members placed"
    before, after = f"{first_score:.1f}", f"{score:.1f}"
    return f"{placed} members placed, score {before if before == after else f'{before} -> {after}'}"


def _sparkline(history: Sequence[tuple[int, float]]) -> str:
    """The best so far as a row of bars: members placed, then score."""
    steps = sorted(set(history))
    rank = {step: round(index * (len(_BARS) - 1) / max(1, len(steps) - 1)) for index, step in enumerate(steps)}
    bars = min(_SPARKS, len(history) - 1)
    sampled = [history[round(index * (len(history) - 1) / max(1, bars))] for index in range(bars + 1)]
    return "".join(_BARS[rank[step]] for step in sampled)
