"""Pauses scheduling while the cached cluster state is stale."""

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2


async def until_fresh(is_fresh: Callable[[], bool]) -> None:
    """Wait while the cached cluster state is too old to decide by. The watches reconnect by themselves."""
    if is_fresh():
        return
    logger.warning("the API server has been silent for too long: nothing is decided until it answers again")
    while not is_fresh():  # noqa: ASYNC110  # no event marks the end of a silence
        await asyncio.sleep(_POLL_SECONDS)
    logger.info("the API server answers again")
