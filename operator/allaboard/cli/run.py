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
from allaboard.cluster.client import CredentialsError, load_credentials
from allaboard.logs import keep_records_apart
from allaboard.model.errors import unserved
from allaboard.model.gang import Objective
from allaboard.settings import CONFIG_VARIABLE, Settings, SettingsError, load_settings


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


def _help(text: str, setting: str, of_none: str = "none") -> str:
    """``text`` and the default of a setting, which is stated in one place only."""
    value = Settings.model_fields[setting].default
    shown = ("yes" if value else "no") if isinstance(value, bool) else ", ".join(value) if isinstance(value, tuple) else value
    return f"{text} [{shown or of_none}]."


@click.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="YAML file of settings; environment and flags win over it.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Cluster to schedule, instead of what KUBECONFIG names.")
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    help=_help("Pods with this schedulerName are ours (repeatable)", "scheduler_names"),
)
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, help=_help("Schedule pods of this namespace only (repeatable)", "namespaces", "all")
)
@click.option(
    "--objective",
    type=click.Choice([objective.value for objective in Objective]),
    help=_help("What placements aim at unless a gang says otherwise", "objective"),
)
@click.option("--strategy", metavar="NAME", help=_help("Who places gangs unless they say otherwise", "strategy"))
@click.option("--workers", type=int, help=_help("Processes that search", "workers"))
@click.option("--leader-elect/--no-leader-elect", default=None, help=_help("Let one of several replicas decide", "leader_elect"))
@click.option(
    "--lease-namespace", help=_help("Namespace of the replicas' Lease", "lease_namespace", "the pod's own; `default` outside of a cluster")
)
@click.option("--metrics-port", type=int, help=_help("Port of /metrics; 0 for none", "metrics_port"))
@click.option("--health-port", type=int, help=_help("Port of /healthz; 0 for none", "health_port"))
@click.option("--log-format", type=click.Choice(["text", "json"]), help=_help("How log lines look", "log_format"))
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def run(config: str | None, kubeconfig: str | None, verbose: bool, **flags: Any) -> None:
    """Run the scheduler until interrupted.

    Every setting is also an environment variable, ALLABOARD_ and its name in capitals (ALLABOARD_BIND_CONCURRENCY=128), and a key
    of the --config file. Pods of all namespaces are watched in any case, since they take room on nodes.
    """
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
