"""The screen of the demo: the stories, the nodes with their pods, the queue, and the last decision.

The nodes, the queue and the decision always fit on the screen. The remaining lines show the stories around the one that plays.
"""

import io
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from allaboard.cli.stories import Objects, Story
from allaboard.report import messages
from allaboard_sandbox import Sandbox

_BARS = "▁▂▃▄▅▆▇█"
_SPARKS = 24
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
_TITLE = "All aboard, or the train stays in the station"
_REASON_LINES = 2
_SECONDS_WIDTH = len("20.0 s")
_PICTURE_COLUMNS, _PICTURE_LINES = 100, 41


@dataclass(slots=True)
class Scene:
    """One story as the screen shows it."""

    story: Story
    mark: str = "[dim]·"
    seconds: float | None = None
    """Duration of the story; None until it has ended."""
    caption: str = ""
    """The state that the story waits for; empty if it waits for none."""
    note: str = ""
    """The search step that found the placement; empty if a greedy rule did."""


@dataclass(slots=True)
class Screen:
    """The data of the live view, and how it is drawn."""

    sandbox: Sandbox
    scenes: list[Scene]
    playing: int = 0
    """Index of the scene that plays."""
    decision: dict[str, Any] = field(default_factory=dict)
    """Fields of the last decision, as the log has them; empty before the first one."""
    history: Sequence[tuple[int, float]] = ()
    """Placed members and score of the best placement in each generation of the last search."""

    def frame(self, console: Console) -> RenderableType:
        """Return the screen for ``console``. The last line stays empty for the cursor."""
        below = Group(
            self._caption(), _heading("the cluster", console), self._nodes(), _heading("the last decision", console), self._search(console)
        )
        title = self._title()
        left = console.height - 1 - _height(console, title) - _height(console, below)
        return Group(title, self._around(max(1, left)), below)

    def programme(self) -> RenderableType:
        """Return the list of all stories that the demo plays, with their results."""
        return Group(Text(_TITLE, style="bold"), self._stories(self.scenes, with_notes=True))

    def picture(self) -> str:
        """Return the screen as an SVG picture that loads nothing from elsewhere."""
        console = Console(record=True, width=_PICTURE_COLUMNS, height=_PICTURE_LINES, file=io.StringIO(), force_terminal=True)
        console.print(self.frame(console))
        return re.sub(r"@font-face {.*?}", "", console.export_svg(title="allaboard demo"), flags=re.DOTALL)

    def _title(self) -> RenderableType:
        done = sum(scene.seconds is not None for scene in self.scenes)
        return Text(f"{_TITLE} ({done} of {len(self.scenes)} stories)", style="bold", no_wrap=True, overflow="ellipsis")

    def _around(self, lines: int) -> Table:
        """Return the ``lines`` stories around the one that plays."""
        first = max(0, min(self.playing - (lines - 1) // 2, len(self.scenes) - lines))
        return self._stories(self.scenes[first : first + lines], with_notes=False)

    def _stories(self, scenes: Sequence[Scene], *, with_notes: bool) -> Table:
        table = Table(box=None, padding=(0, 1), show_header=False, expand=True)
        table.add_column(width=1)
        table.add_column(no_wrap=True, width=max(len(scene.story.name) for scene in self.scenes))
        table.add_column(no_wrap=not with_notes, overflow="ellipsis", ratio=1)
        table.add_column(no_wrap=True, width=_SECONDS_WIDTH, justify="right")
        for scene in scenes:
            summary = f"{scene.story.summary}\n[dim]{scene.note}" if with_notes and scene.note else scene.story.summary
            table.add_row(scene.mark, scene.story.name, summary, "" if scene.seconds is None else f"{scene.seconds:.1f} s")
        return table

    def _caption(self) -> Text:
        scene = self.scenes[self.playing]
        aside = f"waiting until {scene.caption}" if scene.caption else scene.note
        return Text(f"   {aside}", style="dim", no_wrap=True, overflow="ellipsis")

    def _nodes(self) -> Table:
        table = Table(box=None, padding=(0, 1), header_style="bold", expand=True)
        for column in ("NODE", "GPUS", "CPU"):
            table.add_column(column, no_wrap=True)
        table.add_column("PODS", no_wrap=True, overflow="ellipsis", ratio=1)
        pods = self.sandbox.list("pods")
        gangs = sorted({_gang_name(pod) for pod in pods})
        for node in self.sandbox.list("nodes"):
            name, capacity = node["metadata"]["name"], node["status"]["capacity"]
            mine = [
                pod for pod in pods if pod["spec"].get("nodeName") == name and pod["status"].get("phase") not in ("Succeeded", "Failed")
            ]
            table.add_row(name, *(_gauge(mine, capacity, resource) for resource in ("nvidia.com/gpu", "cpu")), _names(mine, gangs))
        waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
        table.add_row("[yellow]queue", "", "", _names(waiting, gangs) if waiting else "[dim]empty")
        return table

    def _search(self, console: Console) -> Text:
        facts = self.decision
        lines = Text()
        if facts:
            lines.append(f"{facts['gang']} {facts['outcome']}", style="bold")
            if "generations" in facts:
                generations = messages.generations(facts["generations"], facts["stoppedBy"], facts.get("wantedGenerations", 0))
                lines.append(f": {generations}, score {facts['seedScore']} -> {facts['score']}, stopped by {facts['stoppedBy']}")
            lines.append(f" in {facts['durationMs']} ms")
            if facts.get("reason"):
                shown = textwrap.shorten(facts["reason"], _REASON_LINES * console.width - _REASON_LINES, placeholder=" ...")
                lines.append(f"\n{shown}", style="yellow")
            if self.history:
                lines.append(f"\nbest so far, by generation: {_progress(self.history)} {_sparkline(self.history)}")
        return lines


def _heading(text: str, console: Console) -> Text:
    return Text(f"── {text} ".ljust(console.width, "─"), style="dim", no_wrap=True, overflow="crop")


def _height(console: Console, shown: RenderableType) -> int:
    return len(console.render_lines(shown, pad=False))


def _gang_name(pod: dict[str, Any]) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(
        labels.get("pod-group.scheduling.sigs.k8s.io/name") or labels.get("scheduling.x-k8s.io/pod-group") or pod["metadata"]["name"]
    )


def _names(pods: Objects, gangs: Sequence[str]) -> Text:
    """Return the names of pods, with pods of one kind counted together: ``ps worker ×4``."""
    kinds = Counter((_kind_name(pod), _gang_name(pod), pod["status"].get("phase") == "Running") for pod in pods)
    text = Text()
    for (kind, gang, is_running), count in sorted(kinds.items()):
        colour = _COLOURS[gangs.index(gang) % len(_COLOURS)]
        label = kind if count == 1 else f"{kind} ×{count}"
        text.append((" " if text else "") + label, style=colour if is_running else f"dim {colour}")
    return text


def _kind_name(pod: dict[str, Any]) -> str:
    """Return a pod's name without the suffix from its controller."""
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
    """Return the search's gain, from its first generation to its last."""
    (first_placed, first_score), (placed, score) = history[0], history[-1]
    if placed != first_placed:
        return f"{first_placed} -> {placed} members placed"
    before, after = f"{first_score:.1f}", f"{score:.1f}"
    return f"{placed} members placed, score {before if before == after else f'{before} -> {after}'}"


def _sparkline(history: Sequence[tuple[int, float]]) -> str:
    """Return a bar for each generation: higher for more placed members, then for a better score."""
    steps = sorted(set(history))
    rank = {step: round(index * (len(_BARS) - 1) / max(1, len(steps) - 1)) for index, step in enumerate(steps)}
    bars = min(_SPARKS, len(history) - 1)
    sampled = [history[round(index * (len(history) - 1) / max(1, bars))] for index in range(bars + 1)]
    return "".join(_BARS[rank[step]] for step in sampled)
