"""Processes of our own that calculate: spawned, never forked, and ended by whoever started them.

A forked one would share the event loop's signal wake-up and stop the operator when it is ended.
"""

import os
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask

_WARNINGS = "PYTHONWARNINGS"


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


_SPAWNED = _Context()


def spawned() -> SpawnContext:
    """The context in which processes of ours are started.

    The process with which multiprocessing clears away the semaphores of one that was killed is started first: it would warn of each time
    that it does so, in a terminal in which nothing else runs any more.
    """
    before = os.environ.get(_WARNINGS)
    os.environ[_WARNINGS] = f"{before},ignore:resource_tracker" if before else "ignore:resource_tracker"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ[_WARNINGS]
        else:
            os.environ[_WARNINGS] = before
    return _SPAWNED
