"""Runs the webhooks beside the scheduler: keeps their process alive and their certificate good.

Nothing that goes wrong here is more than a warning. While no webhook answers, pods come in as they are.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from allaboard.admission.certificate_secret import NAME, CertificateSecret
from allaboard.admission.certificates import Pair
from allaboard.admission.review import Rules
from allaboard.admission.server import bound, serve
from allaboard.kube.client import ApiError, ApiServer
from allaboard.runtime.processes import spawned
from allaboard.settings.options import Settings

logger = logging.getLogger(__name__)

_SOON_SECONDS = 2.0
_END_SECONDS = 3.0


class WebhookProcess:
    """``run`` it, then ``close`` it. Raises ``OSError`` when the port is taken."""

    def __init__(self, certificate_secret: CertificateSecret, port: int, rules: Rules, resync_seconds: float) -> None:
        self._keeper, self._port, self._rules, self._resync_seconds = certificate_secret, port, rules, resync_seconds
        self._listening: socket.socket | None = bound(port)
        self._process: SpawnProcess | None = None
        self._orders: Connection | None = None
        self._served: Pair | None = None
        self._ended = asyncio.Event()
        self._told = ""

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            pause = _SOON_SECONDS
            try:
                self._serve(await self._keeper.look())
                self._told = ""
                if self._keeper.is_settled:
                    pause = self._resync_seconds
            except Exception as error:
                self._tell(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ended.wait()
            if self._ended.is_set():
                logger.warning("the process that serves the webhooks has ended; it is started again")
                await self.close()
                await asyncio.sleep(_SOON_SECONDS)

    async def close(self) -> None:
        """End the process, and free the port: who calls is refused at once, and doesn't wait."""
        process, orders, listening = self._process, self._orders, self._listening
        self._process = self._orders = self._listening = self._served = None
        self._ended.clear()
        if listening is not None:
            listening.close()
        if orders is not None:
            orders.close()
        if process is not None:
            asyncio.get_running_loop().remove_reader(process.sentinel)
            await asyncio.to_thread(process.join, _END_SECONDS)
            if process.is_alive():
                process.kill()
                await asyncio.to_thread(process.join)
            process.close()

    def _serve(self, pair: Pair) -> None:
        """Have the process serve ``pair``; it is started when there is none. Raises ``OSError``."""
        if self._process is None:
            self._listening = self._listening or bound(self._port)
            theirs, self._orders = spawned().Pipe(duplex=False)
            with theirs:
                process = spawned().Process(target=serve, args=(self._listening, theirs, self._rules), name="admission", daemon=True)
                process.start()
            self._process = process
            asyncio.get_running_loop().add_reader(process.sentinel, self._note_end, process.sentinel)
        if pair != self._served and self._orders is not None:
            self._orders.send(pair)
            if self._served is None:
                logger.info("the webhooks are served on port %d", self._port)
            self._served = pair

    def _note_end(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self._ended.set()

    def _tell(self, error: Exception) -> None:
        """Say what is new."""
        message = f"the webhooks can't be seen to: {error}; trying again"
        if message != self._told:
            self._told = message
            logger.warning("%s", message, exc_info=not isinstance(error, ApiError | OSError))


@asynccontextmanager
async def opened(settings: Settings, server: ApiServer, namespace: str, leads: Callable[[], bool]) -> AsyncIterator[WebhookProcess]:
    """The desk that the settings ask for, closed at the end. Raises ``OSError`` when the port is taken."""
    hosts = settings.admission_hosts or (f"{NAME}.{namespace}.svc",)
    life = timedelta(days=settings.admission_certificate_days)
    certificate_secret = CertificateSecret(server, namespace=namespace, hosts=hosts, life=life, leads=leads)
    rules = Rules(settings.scheduler_names, settings.namespaces, settings.openfaas)
    webhook_process = WebhookProcess(certificate_secret, settings.admission_port, rules, settings.resync_seconds)
    try:
        yield webhook_process
    finally:
        await webhook_process.close()
