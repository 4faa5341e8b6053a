"""Runs a coroutine without an event loop, for callers that have nothing else to do meanwhile."""

from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def finished(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what a coroutine returns that may give way to others, but never waits for anything.

    Raises what the coroutine raises, and ``RuntimeError`` if it waits for something.
    """
    try:
        while True:
            if work.send(None) is not None:
                work.close()
                raise RuntimeError("the coroutine waits for something, which takes an event loop")
    except StopIteration as stopped:
        answer: Answer = stopped.value
        return answer
