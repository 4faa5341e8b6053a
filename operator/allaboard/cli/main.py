"""The command line: ``allaboard``, and the same program as ``kubectl allaboard``.

``commands`` says what each command takes, and imports what it does when it is called: help and shell completion don't wait for that.
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from allaboard import __version__
from allaboard.cli import commands
from allaboard.cli.inputs import BadInputError, endings

_DEFECT = 70  # EX_SOFTWARE of sysexits.h
_INTERRUPTED = 130  # 128 and the number of the signal, as shells have it
_NOBODY_LISTENS = 141
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Commands(click.Group):
    """The commands. One that is ended from outside says how it was ended."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _ended():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _ended():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order in which they were added, instead of by name


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `allaboard demo`; it needs no cluster. Settings: `allaboard run --help`.",
)
@click.version_option(__version__, "-V", "--version")
def cli() -> None:
    """Allaboard schedules gangs of Kubernetes pods: all members of a job are bound, or none."""


for _command in (commands.run, commands.plan, commands.gpus, commands.config, commands.simulate, commands.sandbox, commands.demo):
    cli.add_command(_command)


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
