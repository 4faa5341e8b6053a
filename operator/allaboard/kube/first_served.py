"""Mirrors kinds of objects that the cluster may not serve, or that the operator may not read, whenever they can be read."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from allaboard.kube.client import ApiServer
from allaboard.kube.paths import Resource
from allaboard.kube.reflector import Reflector, Store
from allaboard.kube.retry import Sleep

logger = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
"""The pause between two tries to read a kind."""

_FORBIDDEN, _NOT_SERVED, _NO_SUCH_METHOD = 403, 404, 405


class FirstServed:
    """Mirrors the first of ``resources``, the versions of a kind, that is served. ``project`` and ``store`` are those of a ``Reflector``.

    ``settled`` is set once the kind has been listed, or can't be read. ``refusal`` is why the operator may not read the kind; it is empty
    if the operator may, and if the cluster doesn't serve the kind.
    """

    def __init__(
        self,
        server: ApiServer,
        resources: Sequence[Resource],
        project: Callable[[dict[str, Any]], Any],
        store: Store[Any],
        *,
        watch_seconds: int,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.settled = asyncio.Event()
        self.refusal = ""
        self._server, self._resources, self._project, self._store = server, resources, project, store
        self._watch_seconds, self._sleep = watch_seconds, sleep
        self._reflector: Reflector | None = None
        self._is_absent = False

    def is_known(self, seconds: float) -> bool:
        """Return whether the store has all objects, as of less than ``seconds`` ago. It has, too, if the cluster serves no version."""
        if self._reflector is not None and self._reflector.synced.is_set():
            return self._reflector.age_seconds < seconds
        return self._is_absent

    async def run(self) -> None:
        """Read the kind whenever that is possible, until cancelled."""
        while True:
            try:
                was_read = await self._read()
                self._is_absent = not (was_read or self.refusal)
                if not was_read:
                    self._forget()
            except Exception:
                logger.exception("%s can't be read; trying again", self._resources[0].plural)
            self.settled.set()
            await self._sleep(RETRY_SECONDS)

    async def _read(self) -> bool:
        """Read the first version that is served, until it can no longer be read. Return whether a version could be read at all."""
        for resource in self._resources:
            self._reflector = reflector = Reflector(
                self._server,
                resource.everywhere,
                self._project,
                self._store,
                ends_on=(_FORBIDDEN, _NOT_SERVED, _NO_SUCH_METHOD),
                watch_seconds=self._watch_seconds,
            )
            async with asyncio.TaskGroup() as tasks:
                settling = tasks.create_task(self._settle_after(reflector.synced))
                await reflector.run()
                settling.cancel()
            self._reflector = None
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
        """Remove all records: the kind couldn't be read, and not half a minute ago either, which may have been a passing fault."""
        for key in list(self._store.known()):
            self._store.remove(key)
