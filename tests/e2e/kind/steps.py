"""Steps that prepare a kind cluster; the duration of each step is printed."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from tests.e2e.controlplane.binaries import MissingToolError

_TAIL = 25


class Steps:
    """Runs commands that take a while; ``cache`` is the folder of their results."""

    def __init__(self, cache: Path, console: Console) -> None:
        self.cache, self.console = cache, console
        cache.mkdir(parents=True, exist_ok=True)

    def run(self, what: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, stdin: Path | None = None) -> str:
        """Run a command and return its output. Raises ``MissingToolError`` with the end of the output if the command fails."""
        started = time.monotonic()
        if not self.console.is_terminal:
            self.console.print(f"{what} …", highlight=False, soft_wrap=True)
        with self.console.status(f"{what} …"), open(stdin or os.devnull, "rb") as given:
            done = subprocess.run(
                [str(word) for word in command], env=environment, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
        output = done.stdout.decode(errors="replace")
        if done.returncode:
            raise MissingToolError(f"{what} failed with {done.returncode}:\n" + "\n".join(output.splitlines()[-_TAIL:]))
        self.console.print(f"{what}: {time.monotonic() - started:.0f} s", highlight=False, soft_wrap=True)
        return output
