"""Draws timelines: allocation, fragmentation, gangs placed and waiting time against arrived load."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allaboard.simulation.replay import Sample
from allaboard.simulation.sweep import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
_GRID = 200
_SIZE = (11.0, 7.5)
_DPI = 120

_Value = Callable[[Sample], float]


class ChartError(Exception):
    """A chart can't be drawn where it should be."""


def check_chart(file: str) -> None:
    """Find out before the replay, which may take long, whether its chart can be drawn. Raises ``ChartError``."""
    path = Path(file)
    if path.suffix.lower() not in FORMATS:
        raise ChartError(f"{file or '--plot'}: a plot is written as {' or '.join(FORMATS)}; name the file so")
    if not path.absolute().parent.is_dir():
        raise ChartError(f"{file}: there is no folder {path.parent}; make it first")
    try:
        import matplotlib.figure  # noqa: F401  # an extra, and slow to import
    except ImportError as error:
        raise ChartError("a plot needs the extra: pip install 'allaboard[simulate]'") from error


def draw_chart(runs: Mapping[str, Sequence[Run]], file: str, *, waits: bool) -> None:
    """One line for each strategy, the mean of its runs, and around it from the least to the most of them. Raises ``ChartError``.

    Where nothing ``waits``, the last panel shows the pods that were dropped.
    """
    import matplotlib
    from matplotlib.figure import Figure

    panels: list[tuple[str, _Value]] = [
        ("allocated (%)", lambda sample: sample.allocated_percent),
        ("expected fragmentation (% of all GPUs)", lambda sample: sample.fragmentation_percent),
        ("gangs placed", lambda sample: float(sample.gangs_placed)),
        ("mean waiting time (s)", lambda sample: sample.waiting_seconds)
        if waits
        else ("pods that didn't fit", lambda sample: float(sample.pods_failed)),
    ]
    # The same runs give the same file: no random ids, no date.
    with matplotlib.rc_context({"svg.hashsalt": "allaboard", "svg.fonttype": "none"}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        for axes, (title, value) in zip(figure.subplots(2, 2).flat, panels, strict=True):
            for name, found in runs.items():
                _draw_line(axes, name, found, value)
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("arrived load (% of capacity)")
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
        figure.axes[0].legend()
        suffix = Path(file).suffix.lower()
        try:
            figure.savefig(file, format=suffix[1:], dpi=_DPI, metadata={"Date": None} if suffix == ".svg" else None)
        except OSError as error:
            raise ChartError(f"{file}: can't be written: {error.strerror or error}") from error


def _draw_line(axes: "Axes", name: str, runs: Sequence[Run], value: _Value) -> None:
    """Runs are sampled at loads of their own, so they meet on a grid; what happens at the same load later, as gangs finish, isn't shown."""
    last = max(run.replay.timeline[-1].arrived_percent for run in runs)
    grid = np.linspace(0.0, last, _GRID)
    lines = []
    for run in runs:
        by_load: dict[float, float] = {}
        for sample in run.replay.timeline:
            by_load.setdefault(sample.arrived_percent, value(sample))
        lines.append(np.interp(grid, list(by_load), list(by_load.values())))
    values = np.array(lines)
    [line] = axes.plot(grid, values.mean(axis=0), label=name)
    if len(runs) > 1:
        axes.fill_between(grid, values.min(axis=0), values.max(axis=0), color=line.get_color(), alpha=0.15, linewidth=0)
