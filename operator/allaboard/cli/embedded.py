"""Run the operator as ``kopf run`` does, but in the caller's process: for the demo, the sandbox and the tests."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import kopf

from allaboard.app import App
from allaboard.cli.operating import Operating
from allaboard.handlers import IS_EMBEDDED
from allaboard.settings.options import Settings


class OperatorEndedError(RuntimeError):
    """The operator couldn't start, or ended by itself."""


class OperatorStoppedError(OperatorEndedError):
    """A signal ended the operator."""


def api_port() -> int:
    """Return a port at which the operator can serve its API: the usual one, or a free one if that is in use."""
    usual: int = Settings.model_fields["api_port"].default
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", usual))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def operator(kubeconfig: Path, ready_seconds: float = 30.0, **settings: object) -> AsyncIterator[App]:
    """Run the operator on the cluster of ``kubeconfig`` until the context ends. Yield as soon as it schedules.

    ``settings`` are options of ``allaboard.settings.options.Settings``. Raises ``OperatorEndedError`` if the operator can't start, and
    inside the context if the operator ends early. An interrupt raises ``OperatorStoppedError``.
    """
    environment = {"KUBECONFIG": str(kubeconfig), "ALLABOARD_METRICS_PORT": "0", "ALLABOARD_API_PORT": "0"}
    environment |= {f"ALLABOARD_{name.upper()}": str(value) for name, value in settings.items()}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    memo = kopf.Memo({IS_EMBEDDED: True})
    caller, problems, is_left = asyncio.current_task(), list[OperatorEndedError](), False

    def cancel_caller() -> None:
        if caller is not None and not is_left and not problems:
            problems.append(_end_of(operating.task, memo, "the operator has ended"))
            caller.cancel()

    operating = Operating(memo, lambda: _on_signals(cancel_caller))
    try:
        app = await _ready(operating.task, memo, ready_seconds)
        operating.task.add_done_callback(lambda _: cancel_caller())
        yield app
    except asyncio.CancelledError:
        if problems and caller is not None:
            caller.uncancel()
            raise problems[0] from None
        raise
    finally:
        is_left = True
        operating.end()
        await asyncio.gather(operating.task, return_exceptions=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


async def _ready(running: "asyncio.Task[None]", memo: kopf.Memo, seconds: float) -> App:
    try:
        async with asyncio.timeout(seconds):
            while "app" not in memo and not running.done():  # noqa: ASYNC110  # Kopf has no event for the end of its start
                await asyncio.sleep(0.01)
            if "app" in memo:
                decides = asyncio.create_task(memo.app.scheduling.wait())
                try:
                    await asyncio.wait({running, decides}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    decides.cancel()
    except TimeoutError:
        raise OperatorEndedError(f"the operator made no decision within {seconds:g} s; the lines above may say why") from None
    if running.done():
        raise _end_of(running, memo, "the operator could not start")
    app: App = memo.app
    return app


def _end_of(running: "asyncio.Task[None]", memo: kopf.Memo, problem: str) -> OperatorEndedError:
    if running.done() and not running.cancelled() and (error := running.exception()):
        return OperatorEndedError(f"{problem}: {error}")
    if "app" in memo and memo.app.has_failed:  # a part of it has failed, and the operator has sent itself a signal
        return OperatorEndedError(f"{problem}; the lines above say why")
    return OperatorStoppedError("the operator was stopped")


def _on_signals(cancel_caller: Callable[[], None]) -> None:
    """Call ``cancel_caller()`` on a signal, since the other work of this process must end, too."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, cancel_caller)
