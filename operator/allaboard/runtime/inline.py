"""Run a coroutine without an event loop, for callers that have no other tasks to run."""

from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def finished(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run ``work``, a coroutine that may yield to other tasks but never waits for anything, and return its result.

    Raises what the coroutine raises, and ``RuntimeError`` if the coroutine waits for something.
    """
    try:
        while True:
            if work.send(None) is not None:
                work.close()
                raise RuntimeError("the coroutine waits for something, which needs an event loop")
    except StopIteration as stopped:
        answer: Answer = stopped.value
        return answer
