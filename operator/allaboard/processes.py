"""Processes of our own that calculate: spawned, never forked, and ended by whoever started them.

A forked one would share the event loop's signal wake-up and stop the operator when it is ended.
"""

from multiprocessing.context import SpawnContext, SpawnProcess
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask


class _Process(SpawnProcess):
    """An interrupt goes to all processes of a terminal. This one doesn't hear of it, not even while it starts."""

    def start(self) -> None:
        previous = pthread_sigmask(SIG_BLOCK, {SIGINT})  # what is blocked here is blocked there
        try:
            super().start()
        finally:
            pthread_sigmask(SIG_SETMASK, previous)


class _Context(SpawnContext):
    Process = _Process


SPAWNED = _Context()
