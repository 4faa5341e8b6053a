"""Runs the operator as a process that can be killed and stopped at any moment, behind a port that opens when the process may begin.

A process takes a second or two to start. One that waits at a closed port has started when it is let in, so a kill and a restart take a
fraction of that time.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import yaml

START_SECONDS = 90.0
SETTLED_SECONDS = 5.0
RUN = ("-m", "allaboard", "run")
# Short pauses; the queue's own tests check the real ones.
PAUSES = {"ALLABOARD_BACKOFF_INITIAL_SECONDS": "0.1", "ALLABOARD_BACKOFF_MAX_SECONDS": "1"}
_SYNCED = "scheduling begins"


class Door:
    """A port through which one operator reaches the cluster, once it is opened. Connections made before wait."""

    def __init__(self, url: str) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._target = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """URL of the port."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def write_kubeconfig(self, path: Path, original: Path) -> None:
        """Write ``original`` with the door's URL as the cluster's server."""
        config = yaml.safe_load(original.read_text())
        for cluster in config["clusters"]:
            cluster["cluster"]["server"] = self.url
        path.write_text(yaml.safe_dump(config))

    async def open(self) -> None:
        """Accept connections, also those that wait."""
        self._server = await asyncio.start_server(self._relay, sock=self._socket)

    async def close(self) -> None:
        """Cut all connections."""
        if self._server is None:
            self._socket.close()
            return
        self._server.close()
        for task in list(self._relays):
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        try:
            inner_reader, inner_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:
            writer.transport.abort()
            return
        ways = [asyncio.ensure_future(_pump(reader, inner_writer)), asyncio.ensure_future(_pump(inner_reader, writer))]
        try:
            # When either side ends, the other side learns it at once: a server must know that its client has died.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._relays.discard(task)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in (writer, inner_writer):
                each.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()


class Operator:
    """One process of the operator, as an async context manager that ends it. It reaches the cluster once ``let_in`` is called."""

    def __init__(
        self,
        url: str,
        kubeconfig: Path,
        folder: Path,
        *,
        command: Sequence[str] = RUN,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._door = Door(url)
        self._kubeconfig = folder / "kubeconfig"
        self._door.write_kubeconfig(self._kubeconfig, kubeconfig)
        self._command = [sys.executable, *command, "--metrics-port=0", "--health-port=0", "--api-port=0", *arguments]
        self._environment = {**os.environ, **PAUSES, **(environment or {}), "KUBECONFIG": str(self._kubeconfig)}
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._decides = asyncio.Event()
        self._heard = asyncio.Condition()
        self.lines: list[str] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment,
            cwd=self._folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        self._listening = asyncio.create_task(self._listen(self._process))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.kill()
        await self._door.close()

    @property
    def pid(self) -> int:
        """The process ID."""
        assert self._process is not None
        return self._process.pid

    async def let_in(self) -> None:
        """Open its door, and return when it makes decisions."""
        await self.open()
        await self.decides()

    async def open(self) -> None:
        """Open its door."""
        await self._door.open()

    async def decides(self) -> None:
        """Return when it makes decisions."""
        async with asyncio.timeout(START_SECONDS):
            await self._decides.wait()

    async def settled(self) -> None:
        """Return when the process has ended, or after ``SETTLED_SECONDS``."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_SECONDS):
                await self._process.wait()

    async def says_within(self, text: str) -> None:
        """Return when the process has printed a line with ``text`` in it."""
        async with asyncio.timeout(START_SECONDS), self._heard:
            while not any(text in line for line in self.lines):
                await self._heard.wait()

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        assert self._process is not None and self._listening is not None
        if self._process.returncode is None:
            # A stopped process dies of SIGKILL too.
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    def stop(self) -> None:
        """Send SIGSTOP: the process does nothing until ``go_on``."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    async def ask(self, question: str) -> str:
        """Write a line to its standard input, and return the rest of the next line that begins with ``question``."""
        assert self._process is not None and self._process.stdin is not None
        before = len(self.lines)
        self._process.stdin.write(f"{question}\n".encode())
        return await self.says(f"{question} ", since=before)

    async def says(self, beginning: str, since: int = 0) -> str:
        """Return the rest of the first line from ``since`` on that begins with ``beginning``."""
        async with asyncio.timeout(START_SECONDS), self._heard:
            while True:
                for line in self.lines[since:]:
                    if line.startswith(beginning):
                        return line.removeprefix(beginning)
                await self._heard.wait()

    def log(self) -> str:
        """Return all that the process has printed."""
        return "\n".join(self.lines)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while raw := await process.stderr.readline():
            line = raw.decode(errors="replace").rstrip()
            async with self._heard:
                self.lines.append(line)
                self._heard.notify_all()
            if _SYNCED in line:
                self._decides.set()


@contextlib.asynccontextmanager
async def started(url: str, kubeconfig: Path, folder: Path, **options: object) -> AsyncIterator[Operator]:
    """Yield an operator that makes decisions."""
    async with Operator(url, kubeconfig, folder, **options) as operator:  # type: ignore[arg-type]  # passed on as they are
        await operator.let_in()
        yield operator
