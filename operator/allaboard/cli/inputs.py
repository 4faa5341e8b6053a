"""What commands take: types of options that click lacks, and what ends a command: an error for what it was given, and signals."""

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from allaboard.model.errors import MalformedError
from allaboard.model.quantities import parse_quantity

BAD_INPUT = 2


class BadInputError(click.ClickException):
    """The command can't do with what it was given; one line, without the usage."""

    exit_code = BAD_INPUT


def endings() -> list[signal.Signals]:
    """The signals that end a command from outside, but for those that it was started to ignore, as by nohup."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that would end the command take effect afterwards: an import that is interrupted may say that a library is broken.

    For a time in which there is one thread only: another would take the signal.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, endings())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


class FiniteRange(click.FloatRange):
    """A number from a range. Click's own takes ``nan`` for one: no comparison tells that it isn't."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Quantity(click.ParamType[str]):
    """A Kubernetes quantity of more than nothing, as it was stated."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            is_positive = parse_quantity(value) > 0
        except MalformedError as error:
            self.fail(error.problem, param, ctx)
        if not is_positive:
            self.fail(f"{value!r} is nothing; say how much there is", param, ctx)
        return str(value)
