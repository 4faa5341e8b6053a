"""Schedules that each aim at one guarantee, to break it at once where random schedules take long. A correct scheduler passes them all."""

import inspect
from collections.abc import Callable

from . import commits, halves, late, leaders, policies, releases, rules, runs, turns, webhooks

Schedule = Callable[[], None]

SCHEDULES: dict[str, Schedule] = {
    name: schedule
    for module in (commits, releases, halves, leaders, turns, late, rules, runs, policies, webhooks)
    for name, schedule in vars(module).items()
    if inspect.isfunction(schedule) and schedule.__module__ == module.__name__ and not name.startswith("_")
}
