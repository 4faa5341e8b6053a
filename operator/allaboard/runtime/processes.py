"""Child processes that calculate: spawned, never forked, and ended by the code that started them.

A forked process would share the event loop's signal wake-up. A signal that ends the forked process would then stop the operator.
"""

import os
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask

_WARNINGS = "PYTHONWARNINGS"


class _Process(SpawnProcess):
    """A process that ignores interrupts, also while it starts: a terminal sends an interrupt to all of its processes."""

    def start(self) -> None:
        previous = pthread_sigmask(SIG_BLOCK, {SIGINT})  # a child inherits which signals are blocked
        try:
            super().start()
        finally:
            pthread_sigmask(SIG_SETMASK, previous)


class _Context(SpawnContext):
    Process = _Process


_SPAWNED = _Context()


def spawned() -> SpawnContext:
    """Return the context in which child processes are started.

    Multiprocessing's resource tracker is started first, with its warnings off. It removes the semaphores of a killed process, and would
    otherwise warn of that in the terminal, even after the operator has ended.
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
