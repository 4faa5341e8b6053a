"""A coroutine that doesn't wait is run without an event loop."""

import asyncio

import pytest

from allaboard.runtime.inline import finished


def test_result_of_a_coroutine_that_yields_to_other_tasks_is_returned() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert finished(work()) == 7


def test_exception_of_a_coroutine_is_raised() -> None:
    async def work() -> None:
        raise LookupError("not found")

    with pytest.raises(LookupError, match="not found"):
        finished(work())


def test_coroutine_that_waits_for_something_is_refused() -> None:
    class Waits:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield "something"

    async def work() -> None:
        await Waits()

    with pytest.raises(RuntimeError, match="event loop"):
        finished(work())
