"""``allaboard run``: the operator, configured by flags instead of Kopf's command line."""

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
    """One JSON object a line; a decision's facts stand as fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
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
    """Log what the operator does to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if settings.log_format == "json" else logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    keep_records_apart()
    if not verbose:
        logging.getLogger("kopf").setLevel(logging.WARNING)
        logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # the probes, every few seconds


def _refuse_a_taken_port(port: int) -> None:
    """Kopf, which serves health, would say so in a traceback. Raises ``ClickException``."""
    try:
        if port:
            socket.create_server(("", port)).close()
    except OSError as error:
        raise click.ClickException(unserved("health", port, error, "--health-port")) from error


def run(config: str | None, kubeconfig: str | None, verbose: bool, **flags: Any) -> None:
    """Run the scheduler until interrupted, with what is stated on the command line as environment variables."""
    if kubeconfig:
        os.environ["KUBECONFIG"] = os.environ["ALLABOARD_KUBECONFIG"] = kubeconfig
    if config:
        os.environ[CONFIG_VARIABLE] = config
    # The operator reads the environment, however it is started; flags go the same way.
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

    _refuse_a_taken_port(settings.health_port)

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
        # As `kopf run` does by itself.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(operate())
    except Exception as error:
        raise click.ClickException(str(error)) from error
    if "app" in memo and memo.app.has_failed:
        sys.exit(1)  # the log says why; whoever runs us starts us again
