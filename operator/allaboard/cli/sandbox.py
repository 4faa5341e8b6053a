"""``allaboard sandbox``: serve a simulated cluster for trials, with nothing to install.

Stdout gets one line only, an ``export`` command for scripts and other terminals. Hints go to stderr.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import yaml

from allaboard.cli import bundled
from allaboard.cli.inputs import BadInputError, endings
from allaboard.cli.run import start_logging
from allaboard.settings.options import SettingsError, load_settings
from allaboard_sandbox import ApiError, Sandbox


def sandbox(
    nodes: int,
    gpus: int,
    cpu: str,
    memory: str,
    port: int,
    kubeconfig_out: Path | None,
    is_scheduled: bool,
    is_shown: bool,
    gang_scheduler_name: str,
) -> None:
    """Serve a sandbox cluster until interrupted. Raises ``BadInputError``."""
    is_scheduled = is_scheduled or is_shown
    if is_scheduled:
        try:
            start_logging(load_settings())
        except SettingsError as error:
            raise BadInputError(str(error)) from error
    cluster = Sandbox(port=port, gang_scheduler_name=gang_scheduler_name)
    try:
        for crd in bundled.crds():
            cluster.apply(crd)
        for number in range(1, nodes + 1):
            cluster.add_node(f"node-{number}", cpu=cpu, memory=memory, gpus=gpus)
    except bundled.NotBundledError as error:
        raise click.ClickException(str(error)) from error
    except ApiError as error:
        raise click.UsageError(error.message) from error
    asyncio.run(_serve(cluster, port, kubeconfig_out, is_scheduled=is_scheduled, is_shown=is_shown))


async def _serve(cluster: Sandbox, port: int, kubeconfig_out: Path | None, *, is_scheduled: bool, is_shown: bool) -> None:
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in endings():
        loop.add_signal_handler(number, interrupted.set)
    with contextlib.ExitStack() as stack:
        if kubeconfig_out is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="allaboard-sandbox-"))
            kubeconfig_out = Path(folder, "kubeconfig")
        kubeconfig = kubeconfig_out.resolve()

        async def stay() -> None:
            click.echo(f"export KUBECONFIG={kubeconfig}")
            lines = "lines" if is_scheduled else "line"
            click.echo(f"Serving on {cluster.url}. In another terminal, run the {lines} above; then: kubectl get nodes", err=True)
            if not is_scheduled:
                click.echo("No scheduler runs yet: start `allaboard run` in a third terminal, or use --run next time.", err=True)
            click.echo("Interrupt with Ctrl-C.", err=True)
            await interrupted.wait()

        try:
            await _start(cluster, port, kubeconfig_out)
            await (_scheduled(kubeconfig, stay, is_shown=is_shown) if is_scheduled else stay())
        finally:
            await cluster.stop()


async def _scheduled(kubeconfig: Path, stay: Callable[[], Awaitable[None]], *, is_shown: bool) -> None:
    """Run ``stay`` while the operator runs in this process. An interrupt, which Kopf handles, ends both."""
    # Imported here: it takes a second, which a sandbox without a scheduler can save.
    from allaboard.cli.embedded import OperatorEndedError, OperatorStoppedError, api_port, operator

    port = api_port()
    address = f"http://127.0.0.1:{port}"
    try:
        async with operator(kubeconfig, ui=is_shown, api_port=port):
            # The operator is no pod of the sandbox, so commands wouldn't find it.
            click.echo(f"export ALLABOARD_API={address}")
            if is_shown:
                click.echo(f"The departure board: {address}/", err=True)
            await stay()
    except OperatorStoppedError:
        return
    except OperatorEndedError as error:
        raise click.ClickException(str(error)) from error


async def _start(cluster: Sandbox, port: int, kubeconfig_out: Path) -> None:
    try:
        await cluster.start()
    except OSError as error:
        # asyncio's own message repeats the address.
        raise BadInputError(f"can't listen on port {port}: {os.strerror(error.errno or 0)}") from error
    try:
        _write_kubeconfig(cluster, kubeconfig_out)
    except OSError as error:
        raise BadInputError(f"{kubeconfig_out}: can't be written: {error.strerror or error}") from error


def _write_kubeconfig(cluster: Sandbox, path: Path) -> None:
    """Write the kubeconfig. Raises ``OSError``, and ``BadInputError`` if the file exists and isn't a sandbox's kubeconfig."""
    if path.exists() and not _is_sandbox_kubeconfig(path.read_text(errors="replace")):
        raise BadInputError(f"{path}: exists, and isn't a sandbox's kubeconfig; name another file")
    cluster.write_kubeconfig(path)


def _is_sandbox_kubeconfig(text: str) -> bool:
    """Return whether ``text`` is a sandbox's kubeconfig or empty."""
    with contextlib.suppress(yaml.YAMLError):
        found = yaml.safe_load(text)
        clusters = found.get("clusters") if isinstance(found, dict) else None
        return not found or (isinstance(clusters, list) and [each.get("name") for each in clusters] == [Sandbox.NAME])
    return False
