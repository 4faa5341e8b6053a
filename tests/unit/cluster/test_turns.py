"""No namespace takes the others' turns."""

import asyncio

from allaboard.cluster.turns import Turns


async def test_no_namespace_has_more_than_its_own_turns_and_nobody_more_than_all() -> None:
    turns = Turns(5, 2)
    now: dict[str, int] = {}
    most: dict[str, int] = {}
    together = 0

    async def request(namespace: str) -> None:
        nonlocal together
        async with turns.of(namespace):
            now[namespace] = now.get(namespace, 0) + 1
            most[namespace] = max(most.get(namespace, 0), now[namespace])
            together = max(together, sum(now.values()))
            await asyncio.sleep(0)
            now[namespace] -= 1

    await asyncio.gather(*(request(f"ns-{number % 4}") for number in range(80)))
    assert max(most.values()) == 2
    assert len(most) == 4
    assert together == 5


async def test_a_namespace_that_nobody_waits_for_is_forgotten() -> None:
    turns = Turns(5, 2)
    for number in range(100):
        async with turns.of(f"ns-{number}"):
            pass
    assert len(turns._of) <= 1
