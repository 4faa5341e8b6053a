"""Runs the webhooks in a process beside the scheduler: restarts the process when it ends, and renews its certificate.

Any failure here is only a warning. While no webhook answers, the API server stores pods unchanged.
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
from allaboard.admission.server import bind_socket, serve
from allaboard.kube.client import ApiError, ApiServer
from allaboard.runtime.processes import spawned
from allaboard.settings.options import Settings

logger = logging.getLogger(__name__)

_SOON_SECONDS = 2.0  # pause after a failure, and while the API server doesn't trust the certificate yet
_END_SECONDS = 3.0  # time for the process to end before it is killed


class WebhookProcess:
    """The process that serves the webhooks on ``port``; call ``run``, then ``close``. Raises ``OSError`` if the port is taken."""

    def __init__(self, certificate_secret: CertificateSecret, port: int, rules: Rules, resync_seconds: float) -> None:
        self._certificate_secret, self._port, self._rules, self._resync_seconds = certificate_secret, port, rules, resync_seconds
        self._listening: socket.socket | None = bind_socket(port)
        self._process: SpawnProcess | None = None
        self._pairs: Connection | None = None
        self._served: Pair | None = None
        self._ended = asyncio.Event()
        self._logged = ""  # the last failure, until one succeeds again

    async def run(self) -> None:
        """Keep the process running with a valid certificate, until cancelled."""
        while True:
            pause = _SOON_SECONDS
            try:
                self._serve(await self._certificate_secret.refresh())
                self._logged = ""
                if self._certificate_secret.is_settled:
                    pause = self._resync_seconds
            except Exception as error:
                self._log_failure(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ended.wait()
            if self._ended.is_set():
                logger.warning("the process that serves the webhooks has ended; starting it again")
                await self.close()
                await asyncio.sleep(_SOON_SECONDS)

    async def close(self) -> None:
        """End the process and close the port, so that the API server's calls are refused at once instead of waiting."""
        process, pairs, listening = self._process, self._pairs, self._listening
        self._process = self._pairs = self._listening = self._served = None
        self._ended.clear()
        if listening is not None:
            listening.close()
        if pairs is not None:
            pairs.close()
        if process is not None:
            asyncio.get_running_loop().remove_reader(process.sentinel)
            await asyncio.to_thread(process.join, _END_SECONDS)
            if process.is_alive():
                process.kill()
                await asyncio.to_thread(process.join)
            process.close()

    def _serve(self, pair: Pair) -> None:
        """Make the process serve ``pair``; start the process if there is none. Raises ``OSError``."""
        if self._process is None:
            self._listening = self._listening or bind_socket(self._port)
            receiver, self._pairs = spawned().Pipe(duplex=False)
            with receiver:
                process = spawned().Process(target=serve, args=(self._listening, receiver, self._rules), name="admission", daemon=True)
                process.start()
            self._process = process
            asyncio.get_running_loop().add_reader(process.sentinel, self._note_end, process.sentinel)
        if pair != self._served and self._pairs is not None:
            self._pairs.send(pair)
            if self._served is None:
                logger.info("the webhooks are served on port %d", self._port)
            self._served = pair

    def _note_end(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self._ended.set()

    def _log_failure(self, error: Exception) -> None:
        """Log a failure unless it is the one that was logged last."""
        message = f"the webhooks can't be set up: {error}; trying again"
        if message != self._logged:
            self._logged = message
            logger.warning("%s", message, exc_info=not isinstance(error, ApiError | OSError))


@asynccontextmanager
async def open_webhook_process(
    settings: Settings, server: ApiServer, namespace: str, leads: Callable[[], bool]
) -> AsyncIterator[WebhookProcess]:
    """Yield the webhook process of the settings, and close it at the end. Raises ``OSError`` if the port is taken."""
    hosts = settings.admission_hosts or (f"{NAME}.{namespace}.svc",)
    life = timedelta(days=settings.admission_certificate_days)
    certificate_secret = CertificateSecret(server, namespace=namespace, hosts=hosts, life=life, leads=leads)
    rules = Rules(settings.scheduler_names, settings.namespaces, settings.openfaas)
    webhook_process = WebhookProcess(certificate_secret, settings.admission_port, rules, settings.resync_seconds)
    try:
        yield webhook_process
    finally:
        await webhook_process.close()
