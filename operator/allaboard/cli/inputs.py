"""Option types that click lacks, the error for bad input, and the signals that end a command."""

import math
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from allaboard.model.errors import MalformedError, one_line
from allaboard.model.quantities import parse_quantity
from allaboard.model.variables import NAMESPACE_VARIABLE, TOKEN_VARIABLE

BAD_INPUT = 2

OPERATOR = (
    f"The operator is looked for in the namespaces allaboard-system and kube-system, or in the one that {NAMESPACE_VARIABLE} names. Pods of"
    f" other namespaces are not trusted, since users could have created them. {TOKEN_VARIABLE} is the token for an address of an API."
)
"""The part of the help that says which operator a command asks."""

_MOST_SEEDS = 10_000


class BadInputError(click.ClickException):
    """Bad input, printed in one line without the usage. The exit code is 2."""

    exit_code = BAD_INPUT

    def format_message(self) -> str:
        """Return the message. Others may have written parts of it, such as names, so unprintable characters are escaped."""
        return one_line(self.message)


def endings() -> list[signal.Signals]:
    """Return the signals that end a command, except those that the process was started to ignore (as by nohup)."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals that would end the command until the context ends: an interrupted import may report that a library is broken.

    Only for single-threaded phases, since the system would deliver the signal to another thread.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, endings())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class FiniteRange(click.FloatRange):
    """A finite number from a range. Click's own type accepts ``nan``, since every comparison with it is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return ``value`` as a number. A value that isn't a finite number of the range is bad input."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Quantity(click.ParamType[str]):
    """A Kubernetes quantity of more than 0, as text."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return ``value`` unchanged. A value that isn't a quantity of more than 0 is bad input."""
        try:
            is_positive = parse_quantity(value) > 0
        except MalformedError as error:
            self.fail(error.problem, param, ctx)
        if not is_positive:
            self.fail(f"{value!r} is not more than 0", param, ctx)
        return str(value)


class Seeds(click.ParamType[tuple[int, ...]]):
    """Seeds, such as ``42-51``, ``7`` or ``42-51,100``."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return each seed that ``value`` names once, in the order of the text. A text of another form is bad input."""
        seeds: dict[int, None] = {}
        for part in str(value).split(","):
            found = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part, re.ASCII)
            if not found:
                self.fail(f"{part!r} is not a seed or a range of them such as 42-51", param, ctx)
            first, last = int(found[1]), int(found[2] or found[1])
            if first > last:
                self.fail(f"{part!r} ends before it starts", param, ctx)
            if len(seeds) + last - first >= _MOST_SEEDS:
                self.fail(f"{value!r} are too many seeds; {_MOST_SEEDS} are the most allowed", param, ctx)
            seeds |= dict.fromkeys(range(first, last + 1))
        return tuple(seeds)


class ManyValues(click.Command):
    """A command whose options -f and --cluster take all values up to the next option, as in ``-f examples/*.yaml``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with the option repeated before each of its values."""
        return super().parse_args(ctx, list(_spread(args, ("-f", "--filename", "--cluster"))))


def _spread(args: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """Yield ``-f a b`` as ``-f a -f b``. A lone ``-`` is a value, which means standard input."""
    option = ""
    has_value = False
    for position, argument in enumerate(args):
        if argument == "--":
            yield from args[position:]
            return
        if argument.startswith("-") and argument != "-":
            option = argument if argument in options else ""
            has_value = False
        elif option:
            if has_value:
                yield option
            has_value = True
        yield argument
