"""Draws the timelines of replays: allocation, fragmentation, and two figures more.

If gangs wait until they fit, these are the waiting gangs and their mean wait, and the horizontal axis is hours. If gangs that don't fit are
dropped, these are the placed gangs and the pods that didn't fit, and the axis is the load that has arrived.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allaboard.simulation.replay import Sample
from allaboard.simulation.sweep import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
_GRID = 500
_HOUR = 3600.0
_SIZE = (11.0, 7.5)
_DPI = 120

_WIDTH = 1.4  # points, of the line drawn last; lines below it are wider, so that equal lines stay visible

_Value = Callable[[Sample], float]


class ChartError(Exception):
    """A chart can't be drawn or written; the message says why."""


def check_chart(file: str) -> None:
    """Check that a chart can be drawn, so that a mistake is found before a long replay and not after it. Raises ``ChartError``."""
    path = Path(file)
    if path.suffix.lower() not in FORMATS:
        raise ChartError(f"{file or '--plot'}: a plot is written as {' or '.join(FORMATS)}; use one of these suffixes")
    if not path.absolute().parent.is_dir():
        raise ChartError(f"{file}: there is no folder {path.parent}; create it first")
    try:
        import matplotlib.figure  # noqa: F401  # an extra, and slow to import
    except ImportError as error:
        raise ChartError("a plot needs the extra: pip install 'allaboard[simulate]', or '.[simulate]' in the repository") from error


def draw_chart(runs: Mapping[str, Sequence[Run]], file: str, *, waits: bool) -> None:
    """Draw one line for each strategy: the mean of its runs, with a band from the least to the greatest value of the runs.

    With ``waits`` the horizontal axis is hours since the first arrival. Without ``waits`` the times of a replay mean nothing: the axis is
    the load that has arrived, and the last panel shows the pods that were dropped. Raises ``ChartError``.
    """
    import matplotlib
    from matplotlib.figure import Figure

    panels: list[tuple[str, _Value]] = [
        ("allocated (%)", lambda sample: sample.allocated_percent),
        ("expected fragmentation (% of all GPUs)", lambda sample: sample.fragmentation_percent),
        ("gangs waiting", lambda sample: float(sample.gangs_waiting))
        if waits
        else ("gangs placed", lambda sample: float(sample.gangs_placed)),
        ("mean wait of the gangs placed so far (s)", lambda sample: sample.waiting_seconds)
        if waits
        else ("pods that didn't fit", lambda sample: float(sample.pods_failed)),
    ]
    # The same runs give the same file: no random ids, no date.
    with matplotlib.rc_context({"svg.hashsalt": "allaboard", "svg.fonttype": "none"}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        x_values = _hours if waits else _load
        for axes, (title, value) in zip(figure.subplots(2, 2).flat, panels, strict=True):
            for lines_above, (name, found) in zip(reversed(range(len(runs))), runs.items(), strict=True):
                values = [[value(sample) for sample in run.replay.timeline] for run in found]
                _draw_line(axes, name, [x_values(run) for run in found], values, _WIDTH * (2 + lines_above) / 2)
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("hours" if waits else "arrived load (% of capacity)")
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper")
        suffix = Path(file).suffix.lower()
        try:
            figure.savefig(file, format=suffix[1:], dpi=_DPI, metadata={"Date": None} if suffix == ".svg" else None)
        except OSError as error:
            raise ChartError(f"{file}: can't be written: {error.strerror or error}") from error


def _hours(run: Run) -> list[float]:
    start = run.replay.timeline[0].at_seconds
    return [(sample.at_seconds - start) / _HOUR for sample in run.replay.timeline]


def _load(run: Run) -> list[float]:
    return [sample.arrived_percent for sample in run.replay.timeline]


def _draw_line(axes: "Axes", name: str, xs: Sequence[Sequence[float]], values: Sequence[Sequence[float]], width: float) -> None:
    """Draw the mean of several runs as steps, with a band from the least to the greatest value of the runs.

    Each run has its own sample times. The runs are compared on a common grid, on which a value holds until the run's next sample.
    """
    grid = np.linspace(0.0, max(each[-1] for each in xs), _GRID)
    drawn = np.array([np.array(heights)[np.searchsorted(x, grid, side="right") - 1] for x, heights in zip(xs, values, strict=True)])
    [line] = axes.step(grid, drawn.mean(axis=0), where="post", label=name, linewidth=width)
    if len(xs) > 1:
        low, high = drawn.min(axis=0), drawn.max(axis=0)
        axes.fill_between(grid, low, high, step="post", color=line.get_color(), alpha=0.15, linewidth=0)
