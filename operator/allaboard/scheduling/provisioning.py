"""Carries out what ``nodes_wanted`` decides: asks an autoscaler for the nodes of gangs, and gives requests up.

Requests are made in the task of their gang. ``run`` deletes the requests that are no longer needed, beside the cycle. These are requests of
gangs that are bound, held or gone, for members that have changed, or of an earlier leader that was killed in between.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from allaboard.binding.requester import Requester
from allaboard.cluster.provisioning_requests import ProvisioningRequests
from allaboard.gangs.run_history import settled
from allaboard.kube.client import ApiError
from allaboard.kube.paths import PROVISIONING_REQUESTS
from allaboard.kube.reachable import until_readable
from allaboard.kube.reflector import Reflector
from allaboard.leadership.lease import LeaseLostError
from allaboard.model.gang import Gang, GangKey
from allaboard.model.provisioning import Provisioning
from allaboard.model.provisioning_request import ProvisioningRequest, request_from
from allaboard.planning.known_gangs import KnownGangs
from allaboard.records.asked import Asked, Demand
from allaboard.records.backoff import Backoff
from allaboard.runtime.slices import Slices
from allaboard.scheduling.nodes_wanted import Annotate, Ask, GiveUp, Progress, Step, given_up, is_needed, progress_of

logger = logging.getLogger(__name__)

REQUEST_BACKOFF = Backoff(60.0, 1800.0)
"""The pauses after requests that brought no nodes, in seconds."""
_TRANSIENT_SECONDS = 5.0  # the pause after an error of the API server that may pass
_PODGROUP_SECONDS, _POLL_SECONDS = 2.0, 0.05  # a gang of labels gets its PodGroup after its first refusal
_UNREADABLE_SECONDS = 30.0


class Result(NamedTuple):
    """The result of a step: what the gang's message says then, and in how many seconds the gang is attempted again; None if nothing."""

    shown: Provisioning | None = None
    again_seconds: float | None = None


@dataclass(slots=True)
class Provisionings:
    """The nodes that an autoscaler is asked for. Without a ``requester`` none is asked."""

    gangs: KnownGangs
    requester: Requester | None = None
    backoff: Backoff = REQUEST_BACKOFF
    requests: ProvisioningRequests = field(init=False)
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the requests are listed, or it is known that they can't be listed."""
    _is_served: bool = False
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _has_warned: bool = False

    def __post_init__(self) -> None:
        self.requests = ProvisioningRequests(self.is_ours)

    def is_ours(self, request: ProvisioningRequest) -> bool:
        """Return whether this installation has made a request, and no other one of this scheduler."""
        namespaces = self.requester.namespaces if self.requester is not None else ()
        return self.gangs.registry.answers_to(request.scheduler_name) and (not namespaces or request.namespace in namespaces)

    @property
    def is_on(self) -> bool:
        """True if requests are made."""
        return self.requester is not None and bool(self.requester.class_name)

    def progress(self, key: GangKey) -> Progress | None:
        """Return how far the nodes are that a refused gang lacks; None if no autoscaler is asked for the gang."""
        gang, record = self._gang(key), self.gangs.records.find(key)
        if gang is None or self.requester is None or (self.is_on and not self._is_served):
            return None
        asked = record.asked if record else None
        return progress_of(gang, asked, self.requests.of(key), self.gangs.clock(), is_on=self.is_on)

    def _gang(self, key: GangKey) -> Gang | None:
        """Return a gang with the specs that its pods state: what volumes and other pods require isn't added."""
        gang = self.gangs.registry.gang(key)
        return settled(gang, self.gangs.records.find(key), self.gangs.clock()) if gang is not None else None

    def retry_at(self, key: GangKey) -> float | None:
        """Return the time, on the clock, from which nodes may be asked for again; None if nothing delays that."""
        record, now = self.gangs.records.find(key), self.gangs.clock()
        return record.asked.retry_at if record and record.asked and record.asked.retry_at > now else None

    def settle(self, key: GangKey) -> None:
        """Forget what was asked for a gang that is whole or gone. Its request is deleted."""
        if (record := self.gangs.records.find(key)) is not None and record.asked is not None:
            record.asked = None
        if self.requests.of(key):
            self._wanted.set()

    async def carry_out(self, gang: Gang, step: Step) -> Result:
        """Carry out a step of a gang. Return what follows from it."""
        if (requester := self.requester) is None:
            return Result()
        try:
            match step:
                case Ask():
                    return await self._ask(requester, gang, step)
                case Annotate(pods, name):
                    again = _TRANSIENT_SECONDS if await requester.annotate(pods, name) else None
                    live = next((each for each in self.requests.of(gang.key) if each.name == name), None)
                    return Result(Provisioning(live.key, live.stage, live.note) if live else None, again)
                case GiveUp(request, demand):
                    shown = given_up(request)
                    asked = self._pause(gang.key, demand, shown.note, request.name)
                    await requester.delete(request)
                    return Result(replace(shown, retry_time=asked.retry_time), asked.retry_at - self.gangs.clock())
        except ApiError as error:
            return await self._failed(requester, gang.key, step, error)
        except LeaseLostError:
            return Result()

    async def _ask(self, requester: Requester, gang: Gang, step: Ask) -> Result:
        uid = await self._group_uid(gang.key)
        if not uid:
            raise ApiError(404, "NotFound", "it has no PodGroup, which would own the request")
        objects = await requester.objects_for(gang, uid, step.shapes)
        name, record = objects[-1]["metadata"]["name"], self.gangs.records.of(gang.key)
        failures = record.asked.failures if record.asked is not None and record.asked.demand == step.demand else 0
        record.asked = Asked(step.demand, name, failures)
        request = await requester.make(objects)
        if request is None:
            raise ApiError(409, "AlreadyExists", f"there is a ProvisioningRequest {name} already, which isn't this gang's")
        self.requests.upsert(request.key, request)
        self._wanted.set()  # a request for other members is no longer needed
        failed = await requester.annotate([pod for pod in step.pods if pod.consumes != name], name)
        return Result(Provisioning(request.key, request.stage, request.note), _TRANSIENT_SECONDS if failed else None)

    async def _group_uid(self, key: GangKey) -> str:
        """Return the UID of a gang's PodGroup, which may be created just now; empty without one."""
        ends = self.gangs.clock() + _PODGROUP_SECONDS
        while (group := self.gangs.registry.group(key)) is None and self.gangs.clock() < ends:  # noqa: ASYNC110  # Kopf delivers it
            await asyncio.sleep(_POLL_SECONDS)
        return group.uid if group else ""

    async def _failed(self, requester: Requester, key: GangKey, step: Step, error: ApiError) -> Result:
        """Pause after the API server has refused a step. The gang is then handled as if no nodes were asked for."""
        if not isinstance(step, Ask):
            logger.info("gang %s: its ProvisioningRequest can't be deleted: %s", key, error)
            return Result(again_seconds=_TRANSIENT_SECONDS)
        if not error.is_transient:
            await requester.annotate([pod for pod in step.pods if pod.consumes], "")
        problem = f"no ProvisioningRequest can be made: {error}"
        if not (self._has_warned or error.is_transient):
            self._has_warned = True
            logger.warning("gang %s: %s; it waits for nodes like a gang without provisioning_class", key, problem)
        asked = self._pause(key, step.demand, problem, seconds=_TRANSIENT_SECONDS if error.is_transient else None)
        return Result(Provisioning(note=problem, retry_time=asked.retry_time), asked.retry_at - self.gangs.clock())

    def _pause(self, key: GangKey, demand: Demand, problem: str, name: str = "", seconds: float | None = None) -> Asked:
        """Record that nothing is asked for ``demand`` until a pause is over, which ``problem`` explains."""
        record = self.gangs.records.of(key)
        failures = 1 if seconds is None else 0
        failures += record.asked.failures if record.asked is not None and record.asked.demand == demand else 0
        pause = self.backoff.after(failures) if seconds is None else seconds
        record.asked = Asked(demand, name, failures, self.gangs.clock() + pause, self.gangs.waits.now() + pause, problem)
        return record.asked

    # Beside the cycle

    async def run(self, leads: Callable[[], bool], every_seconds: float) -> None:
        """Follow the requests, and delete those that are no longer needed, until cancelled."""
        if self.requester is None:
            self.looked.set()
        elif self.is_on:
            await self._until_served(self.requester)
            reflector = Reflector(self.requester.server, PROVISIONING_REQUESTS.everywhere, request_from, self.requests)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reflector.run())
                await reflector.synced.wait()
                self._is_served = True
                self.looked.set()
                while True:
                    self._wanted.clear()
                    if leads():
                        await self.sweep(self.requester)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(every_seconds):
                            await self._wanted.wait()
        else:
            self.looked.set()
            while not leads():  # noqa: ASYNC110  # leading has no event of its own
                await asyncio.sleep(1.0)
            await self._remove_left(self.requester)
        await asyncio.Event().wait()  # this task ends only with the operator

    async def _until_served(self, requester: Requester) -> None:
        """Wait until requests can be listed. If they can't be listed at first, say so once, and let gangs be scheduled."""

        def on_refusal(error: ApiError) -> None:
            if not self.looked.is_set():
                logger.warning(
                    "provisioning_class: no nodes are asked for, since ProvisioningRequests can't be listed: %s; it needs the CRD"
                    " of cluster-autoscaler, and the rights of config/components/provisioning",
                    error,
                )
                self.looked.set()

        await until_readable(requester.server, PROVISIONING_REQUESTS.everywhere, on_refusal=on_refusal)

    async def sweep(self, requester: Requester) -> None:
        """Delete the requests that are no longer needed. A request that can't be deleted is tried again at the next sweep."""
        slices = Slices()
        for request in self.requests:
            await slices.give_way()
            record = self.gangs.records.find(request.owner)
            if request.is_terminating or (record is not None and record.task is not None):
                continue  # the gang's task may be making the request just now
            if not is_needed(request, self._gang(request.owner), record.asked if record else None):
                try:
                    await requester.delete(request)
                except (ApiError, LeaseLostError) as error:
                    logger.info("ProvisioningRequest %s can't be deleted: %s", request.key, error)

    async def _remove_left(self, requester: Requester) -> None:
        """Delete the requests that were left when ``provisioning_class`` was switched off, as far as the rights are left, too."""
        while True:
            try:
                for request in filter(self.is_ours, await requester.left()):
                    await requester.delete(request)
                return
            except (ApiError, LeaseLostError) as error:
                logger.debug("ProvisioningRequests can't be removed: %s", error)
                if isinstance(error, LeaseLostError) or not error.is_transient:
                    return
            await asyncio.sleep(_UNREADABLE_SECONDS)
