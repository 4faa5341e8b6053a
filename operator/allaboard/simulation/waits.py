"""Computes the waits of the gangs of a replay, by size and priority, and the errors of expected starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SIZES = ((0, 0), (1, 3), (4, 15), (16, None))
"""Size classes: the least and the most GPUs of a gang; None without a limit."""

_SHORT_SECONDS = 10.0  # the least run time that a slowdown is computed with


@dataclass(frozen=True, slots=True)
class PlacedGang:
    """A gang that was placed in a replay.

    ``gpus``: the GPUs that its members request. ``arrived``, ``started``: times in seconds. ``expected``: the start that was expected when
    the gang was refused first; None if it wasn't refused, or no start was expected. ``run_seconds`` is None if the gang never ends.
    """

    name: str
    gpus: float
    priority: int
    arrived: float
    started: float
    run_seconds: float | None
    expected: float | None = None
    namespace: str = "default"

    @property
    def waited(self) -> float:
        """The seconds that the gang has waited."""
        return self.started - self.arrived

    @property
    def slowdown(self) -> float | None:
        """The bounded slowdown: wait and run time, as a multiple of the run time; None if the gang never ends."""
        if self.run_seconds is None:
            return None
        return max(1.0, (self.waited + self.run_seconds) / max(self.run_seconds, _SHORT_SECONDS))


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of a class of gangs: in words which gangs, their number, and median, 95th percentile and longest wait in seconds."""

    title: str
    gangs: int
    p50: float
    p95: float
    longest: float


def waits_of(gangs: Sequence[PlacedGang]) -> Sequence[Waits]:
    """Return the waits of ``gangs`` by size class; by priority and by namespace, too, if there are several.

    Classes without gangs are left out.
    """
    classes = {_title(least, most): [each for each in gangs if _is_in(each.gpus, least, most)] for least, most in SIZES}
    priorities = sorted({each.priority for each in gangs}, reverse=True)
    if len(priorities) > 1:
        classes |= {f"priority {priority}": [each for each in gangs if each.priority == priority] for priority in priorities}
    namespaces = sorted({each.namespace for each in gangs})
    if len(namespaces) > 1:
        classes |= {f"namespace {namespace}": [each for each in gangs if each.namespace == namespace] for namespace in namespaces}
    return [_waits(title, found) for title, found in classes.items() if found]


def mean_slowdown(gangs: Sequence[PlacedGang]) -> float:
    """Return the mean bounded slowdown of the gangs that end; 1 if there are none."""
    found = [each.slowdown for each in gangs if each.slowdown is not None]
    return float(np.mean(found)) if found else 1.0


def expected_start_error(gangs: Sequence[PlacedGang]) -> float | None:
    """Return by how many seconds the expected starts were off: the median; None if no start was expected."""
    errors = [abs(each.started - each.expected) for each in gangs if each.expected is not None]
    return float(np.median(errors)) if errors else None


def as_figures(waits: Sequence[Waits]) -> Mapping[str, Mapping[str, float]]:
    """Return waits as numbers, by title."""
    return {each.title: {"gangs": each.gangs, "p50": each.p50, "p95": each.p95, "max": each.longest} for each in waits}


def _waits(title: str, gangs: Sequence[PlacedGang]) -> Waits:
    waited = np.array([each.waited for each in gangs])
    return Waits(title, len(gangs), *(round(float(np.percentile(waited, share)), 1) for share in (50, 95, 100)))


def _title(least: int, most: int | None) -> str:
    if most == 0:
        return "no GPU"
    return f"{least} GPUs or more" if most is None else f"{least}-{most} GPUs"


def _is_in(gpus: float, least: int, most: int | None) -> bool:
    """Return whether a number of GPUs is in a size class; a part of a GPU counts as one."""
    whole = int(np.ceil(gpus))
    return whole >= least and (most is None or whole <= most)
