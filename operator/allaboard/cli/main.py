"""The command line: ``allaboard``, and the same program as ``kubectl allaboard``.

``commands`` holds the options of each command. It imports a command's module only when the command is called, so help and shell completion
answer at once.
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
_BROKEN_PIPE = 141  # 128 and the number of SIGPIPE
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Commands(click.Group):
    """The group of commands. It prints one line, and sets the exit code, if a command is interrupted or its output can't be written."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the command line."""
        with _exit_codes():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _exit_codes():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order in which they were added, instead of sorted."""
        return list(self.commands)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `allaboard demo`; it needs no cluster. Settings: `allaboard run --help`.",
)
@click.version_option(__version__, "-V", "--version")
def cli() -> None:
    """Allaboard schedules gangs of Kubernetes pods: all members of a job are bound, or none."""


for _command in (
    commands.run,
    commands.plan,
    commands.queue,
    commands.explain,
    commands.top,
    commands.history,
    commands.ui,
    commands.snapshot,
    commands.gpus,
    commands.config,
    commands.simulate,
    commands.sandbox,
    commands.demo,
    commands.completion,
):
    cli.add_command(_command)


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Set the exit code of a command that is interrupted or can't write its output.

    click would exit with 1, which means here that a gang doesn't fit, and print "Aborted!".
    """
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise click.exceptions.Exit(_INTERRUPTED) from None
    except BrokenPipeError:
        _discard_stdout()
        raise click.exceptions.Exit(_BROKEN_PIPE) from None
    except OSError as error:
        if error.errno not in _WRITE_ERRORS:
            raise
        _discard_stdout()
        raise BadInputError(f"the output can't be written: {error.strerror}") from error


def _discard_stdout() -> None:
    """Discard further output. Otherwise Python flushes it at exit, and prints a second error."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line, as ``allaboard`` or as kubectl's plug-in ``kubectl-allaboard``."""
    for number in endings():
        signal.signal(number, signal.default_int_handler)  # an exception lets commands end their processes and remove their files
    name = "kubectl allaboard" if Path(sys.argv[0]).name.startswith("kubectl-") else "allaboard"
    try:
        cli(prog_name=name)
    except Exception:
        # Not 1, which means that a gang doesn't fit, and not 2, which means bad input.
        traceback.print_exc()
        sys.exit(_DEFECT)
