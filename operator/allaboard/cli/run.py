"""``allaboard run``: run the operator, with flags of its own instead of Kopf's command line."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

import click

from allaboard.cli.inputs import endings, uninterrupted
from allaboard.kube.client import CredentialsError, load_credentials
from allaboard.logs import keep_records_apart
from allaboard.model.errors import unserved
from allaboard.settings.options import CONFIG_VARIABLE, Settings, SettingsError, load_settings


class _JsonLines(logging.Formatter):
    """Formatter that writes one JSON object a line. The facts of a decision are fields of the object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "decision", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def start_logging(settings: Settings, *, verbose: bool = False) -> None:
    """Log to stderr, in the format of the settings. ``verbose`` adds debug messages and those of Kopf."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if settings.log_format == "json" else logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    keep_records_apart()
    if not verbose:
        logging.getLogger("kopf").setLevel(logging.WARNING)
        logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # it logs each probe


def _check_port(port: int) -> None:
    """Raise ``ClickException`` if the port is in use. Kopf, which serves the probe there, would print a traceback."""
    try:
        if port:
            socket.create_server(("", port)).close()
    except OSError as error:
        raise click.ClickException(unserved("health", port, error, "--health-port")) from error


def run(config: str | None, kubeconfig: str | None, verbose: bool, **flags: Any) -> None:
    """Run the scheduler until interrupted. Flags are passed on as environment variables."""
    if kubeconfig:
        os.environ["KUBECONFIG"] = os.environ["ALLABOARD_KUBECONFIG"] = kubeconfig
    if config:
        os.environ[CONFIG_VARIABLE] = config
    # The operator reads its settings from the environment, whichever command starts it.
    for name, value in flags.items():
        if value not in (None, ()):
            os.environ[f"ALLABOARD_{name.upper()}"] = ",".join(value) if isinstance(value, tuple) else str(value)
    try:
        settings = load_settings()
    except SettingsError as error:
        raise click.UsageError(str(error)) from error

    try:
        asyncio.run(load_credentials(settings.kubeconfig, settings.in_force.kubeconfig_place))
    except CredentialsError as error:
        raise click.UsageError(str(error)) from error

    _check_port(settings.health_port)

    with uninterrupted():
        import kopf
        import uvloop

        from allaboard.cli.operating import Operating

    start_logging(settings, verbose=verbose)
    memo, numbers = kopf.Memo(), {signal.SIGINT, signal.SIGTERM, *endings()}

    async def operate() -> None:
        loop = asyncio.get_running_loop()

        def take_signals() -> None:
            for number in numbers:
                loop.add_signal_handler(number, lambda: operating.end())

        liveness = f"http://0.0.0.0:{settings.health_port}/healthz" if settings.health_port else None
        operating = Operating(memo, take_signals, liveness_endpoint=liveness)
        with suppress(asyncio.CancelledError):
            await operating.task

    try:
        # `kopf run` chooses this event loop by itself.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(operate())
    except Exception as error:
        raise click.ClickException(str(error)) from error
    if "app" in memo and memo.app.has_failed:
        sys.exit(1)  # the log says why; the kubelet, or another supervisor, starts the process again
