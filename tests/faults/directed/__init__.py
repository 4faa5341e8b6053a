"""Schedules that aim at one promise each: what random ones find in time, these find at once. On a scheduler that keeps its promises they
find nothing.
"""

import inspect
from collections.abc import Callable

from . import commits, halves, late, leaders, releases, rules, runs, turns

Schedule = Callable[[], None]

SCHEDULES: dict[str, Schedule] = {
    name: schedule
    for module in (commits, releases, halves, leaders, turns, late, rules, runs)
    for name, schedule in vars(module).items()
    if inspect.isfunction(schedule) and schedule.__module__ == module.__name__ and not name.startswith("_")
}
