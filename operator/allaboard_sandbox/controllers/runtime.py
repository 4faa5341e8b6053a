"""Run the stand-in controllers.

Each change yields keys to reconcile, and one task reconciles them one by one. A key that is queued several times is reconciled once.
"""

import asyncio
import logging
from collections.abc import Hashable, Iterable
from typing import Any, Protocol

from allaboard_sandbox.api import Api
from allaboard_sandbox.controllers.collector import GarbageCollector, NamespaceCollector, PodCollector
from allaboard_sandbox.controllers.deployment import DeploymentController
from allaboard_sandbox.controllers.disruption import DisruptionController
from allaboard_sandbox.controllers.job import JobController
from allaboard_sandbox.controllers.node import NodeController
from allaboard_sandbox.controllers.ownership import Ownership
from allaboard_sandbox.controllers.replicaset import ReplicaSetController
from allaboard_sandbox.controllers.statefulset import StatefulSetController
from allaboard_sandbox.controllers.tfjob import TFJobController
from allaboard_sandbox.controllers.volume import VolumeController
from allaboard_sandbox.errors import ApiError
from allaboard_sandbox.store import Change

RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Controller(Protocol):
    """A control loop that brings objects of one kind into their desired state."""

    def keys(self, change: Change) -> Iterable[Hashable]:
        """Return the keys to reconcile because of a change. The method must not write to the store."""
        ...

    def reconcile(self, key: Any) -> None:
        """Bring the object at ``key``, which may be gone, closer to its desired state."""
        ...


class Controllers:
    """Runs all stand-in controllers, which share one work queue."""

    def __init__(self, api: Api, *, gang_scheduler_name: str = "") -> None:
        self._ownership = Ownership(api.store)
        self._controllers: list[Controller] = [
            GarbageCollector(api, self._ownership),
            NamespaceCollector(api),
            PodCollector(api),
            NodeController(api),
            ReplicaSetController(api, self._ownership),
            DeploymentController(api, self._ownership),
            StatefulSetController(api, self._ownership),
            JobController(api, self._ownership),
            TFJobController(api, self._ownership, gang_scheduler_name=gang_scheduler_name),
            DisruptionController(api),
            VolumeController(api),
        ]
        # A dict, because it keeps the order in which keys were first queued.
        self._queue: dict[tuple[int, Hashable], None] = {}
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_change(self, change: Change) -> None:
        """Queue the keys that the controllers must reconcile because of a change."""
        self._ownership.on_change(change)
        for index, controller in enumerate(self._controllers):
            for key in controller.keys(change):
                self._queue[index, key] = None
        if self._queue:
            self._filled.set()

    def start(self) -> None:
        """Start the task that reconciles queued keys."""
        self._task = asyncio.create_task(self._run(), name="sandbox controllers")

    async def stop(self) -> None:
        """Stop the task that reconciles queued keys."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._queue:
                index, key = next(iter(self._queue))
                del self._queue[index, key]
                try:
                    self._controllers[index].reconcile(key)
                except ApiError as error:
                    logger.debug("%s of %s: %s", type(self._controllers[index]).__name__, key, error)
                    asyncio.get_running_loop().call_later(RETRY_SECONDS, self._requeue, (index, key))
                await asyncio.sleep(0)

    def _requeue(self, entry: tuple[int, Hashable]) -> None:
        self._queue[entry] = None
        self._filled.set()
