"""Run Kopf's operator as a task that can be ended at once."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf
from kopf._cogs.clients.watching import infinite_watch

from allaboard.handlers import TAKE_SIGNALS  # importing this module registers the handlers with Kopf

_LOGGERS_OF_THE_END = ("kopf.activities", "kopf._core.reactor.running")
"""Loggers of Kopf that warn if the operator is cancelled while it starts."""


class Operating:
    """A running operator of Kopf.

    ``end`` cancels its task, which then cleans up. Kopf's stop flag alone isn't enough: Kopf would wait five seconds for other tasks, such
    as its own observation of the cluster's resources, which doesn't end by itself.
    """

    def __init__(self, memo: kopf.Memo, take_signals: Callable[[], None], **options: Any) -> None:
        self._take_signals = take_signals
        self._has_started = self._is_ending = False
        self._flag = asyncio.Event()
        memo[TAKE_SIGNALS] = self._note_start
        take_signals()
        asyncio.get_running_loop().set_exception_handler(_ignore_closed_watches)
        operator = kopf.operator(clusterwide=True, standalone=True, stop_flag=self._flag, memo=memo, **options)
        self.task: asyncio.Task[None] = asyncio.create_task(operator, name="operator")

    def end(self) -> None:
        """End the operator. Further calls do nothing, since a second cancellation would interrupt the cleanup."""
        if self._has_started and not self._flag.is_set():
            for name in _LOGGERS_OF_THE_END:
                logging.getLogger(name).setLevel(logging.ERROR)
            self._flag.set()  # otherwise Kopf has the process killed ten minutes later
            self.task.cancel()
        self._is_ending = True

    def _note_start(self) -> None:
        """Record that Kopf has started its tasks, and end them if ``end`` was called. Python warns of tasks cancelled before they start."""
        self._take_signals()
        self._has_started = True
        if self._is_ending:
            self.end()


def _ignore_closed_watches(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle unhandled errors of the event loop as usual, but ignore one that a cancelled watch of Kopf causes.

    A watch that was cancelled while it yielded an event is closed by the loop at its end. The loop closes the watch and its inner context
    at the same time, so the watch finds its context closed. Python reports that as an error.
    """
    if getattr(context.get("asyncgen"), "__name__", "") != infinite_watch.__name__:
        loop.default_exception_handler(context)
