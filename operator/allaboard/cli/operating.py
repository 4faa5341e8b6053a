"""Kopf's operator as a task of this process, which ends as soon as it is told to."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf
from kopf._cogs.clients.watching import infinite_watch

from allaboard.handlers import TAKE_SIGNALS  # whose import registers them with Kopf

_SAY_THAT_IT_ENDS = ("kopf.activities", "kopf._core.reactor.running")
"""Loggers of Kopf, which warns when it is ended while it starts."""


class Operating:
    """An operator at work.

    It is cancelled to be ended, whereupon it cleans up as well. A stop flag alone has Kopf wait five seconds for all that goes on beside,
    be it of its own (its look at what the cluster serves, which nobody ends) or of this process.
    """

    def __init__(self, memo: kopf.Memo, take_signals: Callable[[], None], **options: Any) -> None:
        self._take_signals = take_signals
        self._has_begun = self._shall_end = False
        self._flag = asyncio.Event()
        memo[TAKE_SIGNALS] = self._begin
        take_signals()
        asyncio.get_running_loop().set_exception_handler(_but_for_watches)
        operator = kopf.operator(clusterwide=True, standalone=True, stop_flag=self._flag, memo=memo, **options)
        self.task: asyncio.Task[None] = asyncio.create_task(operator, name="operator")

    def end(self) -> None:
        """Tell it to end, however often: a second cancellation would keep it from cleaning up."""
        if self._has_begun and not self._flag.is_set():
            for name in _SAY_THAT_IT_ENDS:
                logging.getLogger(name).setLevel(logging.ERROR)
            self._flag.set()  # or Kopf would have the process killed ten minutes later
            self.task.cancel()
        self._shall_end = True

    def _begin(self) -> None:
        """Kopf has begun its tasks, of which Python would warn if they were cancelled before."""
        self._take_signals()
        self._has_begun = True
        if self._shall_end:
            self.end()


def _but_for_watches(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the loop says of errors that nobody takes, but of one that is none.

    A watch of Kopf's that was cancelled while it handed an event on is left for the loop to close when it ends. That closes the watch and
    the context inside of it at once, whereupon the watch finds its context closed, and Python calls that an error.
    """
    if getattr(context.get("asyncgen"), "__name__", "") != infinite_watch.__name__:
        loop.default_exception_handler(context)
