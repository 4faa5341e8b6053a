"""Watches the objects of job operators that state walltimes, as far as the cluster serves them and the operator may read them.

No other part depends on these watches: a cluster without Kubeflow and KubeRay is normal, and so is an operator that may not read their
objects. Without them the walltimes are unknown, and everything else works.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from allaboard.gangs.owner_walltimes import OWNER_KINDS, OwnerKind, OwnerStore, OwnerWalltime
from allaboard.kube.client import ApiServer
from allaboard.kube.reflector import Reflector
from allaboard.kube.retry import Sleep

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 30.0
_WATCH_SECONDS = 30  # Walltimes needn't be as new as pods and nodes.
_FORBIDDEN, _NOT_SERVED, _NO_SUCH_METHOD = 403, 404, 405

Observe = Callable[[OwnerWalltime | None, OwnerWalltime | None], None]


class OwnerWatches:
    """The watches of all kinds of owners. ``observe(old, new)`` is called after each change of an owner's walltime."""

    def __init__(self, server: ApiServer, observe: Observe, kinds: Sequence[OwnerKind] = OWNER_KINDS, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._watches = [_Watch(server, observe, kind, sleep) for kind in kinds]

    async def run(self) -> None:
        """Read all kinds until cancelled. A warning lists the kinds that the operator may not read, whenever these kinds change."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())
            reported: list[str] = []
            while True:
                await self.wait_until_read(_RETRY_SECONDS)
                refused = [watch for watch in self._watches if watch.refusal]
                names = [watch.kind.name for watch in refused]
                if names and names != reported:
                    logger.warning("walltimes of %s aren't read: %s", ", ".join(names), refused[0].refusal)
                reported = names
                await self._sleep(_RETRY_SECONDS)

    async def wait_until_read(self, seconds: float) -> None:
        """Wait for up to ``seconds`` until each kind has been listed, or can't be read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for watch in self._watches:
                    await watch.settled.wait()


class _Watch:
    """The watch of one kind.

    ``settled`` is set once the kind has been listed, or can't be read. ``refusal`` is why the operator may not read the kind; it is empty
    if the operator may, and if the cluster doesn't serve the kind.
    """

    def __init__(self, server: ApiServer, observe: Observe, kind: OwnerKind, sleep: Sleep) -> None:
        self.kind = kind
        self.settled = asyncio.Event()
        self.refusal = ""
        self._server = server
        self._sleep = sleep
        self._store = OwnerStore(observe)

    async def run(self) -> None:
        """Read the kind whenever that is possible, until cancelled."""
        while True:
            try:
                if not await self._read():
                    self._forget()
            except Exception:
                logger.exception("walltimes of %s can't be read; trying again", self.kind.name)
            self.settled.set()
            await self._sleep(_RETRY_SECONDS)

    async def _read(self) -> bool:
        """Read the first version that is served, until it can no longer be read. Return whether a version could be read at all."""
        for resource in self.kind.resources:
            reflector = Reflector(
                self._server,
                resource.everywhere,
                self.kind.read,
                self._store,
                ends_on=(_FORBIDDEN, _NOT_SERVED, _NO_SUCH_METHOD),
                watch_seconds=_WATCH_SECONDS,
            )
            async with asyncio.TaskGroup() as tasks:
                settling = tasks.create_task(self._settle_after(reflector.synced))
                await reflector.run()
                settling.cancel()
            if reflector.synced.is_set():
                return True
            error = reflector.ended_by
            self.refusal = str(error) if error is not None and error.status != _NOT_SERVED else ""
            if self.refusal:
                break
        return False

    async def _settle_after(self, synced: asyncio.Event) -> None:
        await synced.wait()
        self.refusal = ""
        self.settled.set()

    def _forget(self) -> None:
        """Remove all owners: the kind couldn't be read, and not half a minute ago either, which may have been a passing fault."""
        for key in list(self._store.known()):
            self._store.remove(key)
