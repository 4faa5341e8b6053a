"""The command line: ``allaboard``, and the same program as ``kubectl allaboard``.

Commands are imported when they are called, so that ``--help`` and ``plan`` don't pay for the operator.
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from allaboard import __version__
from allaboard.cli.inputs import BadInputError, endings, uninterrupted

_DEFECT = 70  # EX_SOFTWARE of sysexits.h
_INTERRUPTED = 130  # 128 and the number of the signal, as shells have it
_NOBODY_LISTENS = 141
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_COMMANDS = {
    "run": ("allaboard.cli.run", "Run the scheduler on the cluster that KUBECONFIG or the pod's service account names."),
    "plan": ("allaboard.cli.plan", "Place gangs without binding anything, on a cluster or on a snapshot of one."),
    "gpus": ("allaboard.cli.gpus", "Show the GPUs of a cluster: which are free, and how they are."),
    "config": ("allaboard.cli.config", "Check a configuration file, and see what is in force with it."),
    "simulate": ("allaboard.cli.simulate", "Replay a workload on made-up nodes and see what is left unused."),
    "sandbox": ("allaboard.cli.sandbox", "Serve a sandbox cluster for kubectl until interrupted."),
    "demo": ("allaboard.cli.demo", "Watch real manifests being scheduled whole or not at all."),
}

_OF_THE_SANDBOX = ("allaboard_sandbox", "jsonpatch", "jsonschema")  # which the operator does without


class _Commands(click.Group):
    """Finds commands by name, without importing them for the list that ``--help`` shows, and says how they were ended from outside."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _ended():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _ended():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        try:
            with uninterrupted():
                command: click.Command = getattr(import_module(_COMMANDS[cmd_name][0]), cmd_name)
        except ModuleNotFoundError as error:
            if error.name not in _OF_THE_SANDBOX:
                raise
            raise BadInputError(f"`allaboard {cmd_name}` needs the extra: pip install 'allaboard[sandbox]'") from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `allaboard demo`; it needs no cluster. Settings: `allaboard run --help`.",
)
@click.version_option(__version__, "-V", "--version")
def cli() -> None:
    """Allaboard schedules gangs of Kubernetes pods: all members of a job are bound, or none."""


@contextmanager
def _ended() -> Iterator[None]:
    """Before click says "Aborted!", and 1 in each case, which for us means that some gang doesn't fit."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(_INTERRUPTED) from None
    except BrokenPipeError:
        _forget_stdout()
        raise click.exceptions.Exit(_NOBODY_LISTENS) from None
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _forget_stdout()
        raise BadInputError(f"the answer can't be written: {error.strerror}") from error


def _forget_stdout() -> None:
    """Else Python tries again when it ends, and says so."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point of both commands; kubectl finds a plug-in by its name ``kubectl-allaboard``."""
    for number in endings():
        signal.signal(number, signal.default_int_handler)  # so that what was started and written is cleared away
    name = "kubectl allaboard" if Path(sys.argv[0]).name.startswith("kubectl-") else "allaboard"
    try:
        cli(prog_name=name)
    except Exception:
        # Not 1, which says that some gang doesn't fit, nor 2, which says that the input is bad.
        traceback.print_exc()
        sys.exit(_DEFECT)
