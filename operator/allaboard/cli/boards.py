"""Finds what the commands show: the board of a running operator, else of the cluster's objects, else of a snapshot of them."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from allaboard.cli.installed import OF_OPERATORS, find_settings, no_operator, operator_namespaces
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.lists import listed
from allaboard.kube.paths import PODS
from allaboard.kube.port_forward import forwarded
from allaboard.model.errors import MalformedError
from allaboard.model.raw_fields import mapping, text
from allaboard.model.variables import API_VARIABLE, TOKEN_VARIABLE
from allaboard.settings.options import Settings, load_settings
from allaboard.sight.recorded import RecordedBoard
from allaboard.sight.remote import RemoteBoard, UnreadableError
from allaboard.sight.values import Decisions, Domains, Gang, Gangs, Nodes, Queue, Snapshot
from allaboard.whatif.board import StoredBoard
from allaboard.whatif.live import read_live_cluster
from allaboard.whatif.snapshots import Cluster, read_cluster

_PORT: int = Settings.model_fields["api_port"].default


class Shows(Protocol):
    """A board that can be shown. Its methods raise ``UnreadableError``."""

    async def queue(self) -> Queue:
        """Return the gangs that wait."""

    async def gangs(self) -> Gangs:
        """Return all gangs."""

    async def gang(self, namespace: str, name: str) -> Gang | None:
        """Return a gang; None if there is none."""

    async def nodes(self) -> Nodes:
        """Return all nodes."""

    async def domains(self, label: str = "") -> Domains:
        """Return the groups of nodes by a label; without one, by the label of racks."""

    async def decisions(self) -> Decisions:
        """Return the last decisions about all gangs."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a board is to be read, as the command's options say. Without any of them the cluster's operator is looked for."""

    api: str = ""
    """Address of an operator's API."""
    snapshots: Sequence[str] = ()
    """Files with the objects of a cluster."""
    kubeconfig: str = ""

    @property
    def url(self) -> str:
        """The address of the API that is stated, by the option or by the environment; empty if none is."""
        return self.api or os.environ.get(API_VARIABLE, "")


def board_at(url: str) -> AbstractAsyncContextManager[RemoteBoard]:
    """Open the board of the API at ``url``, with the token of the environment."""
    return RemoteBoard.open(url, os.environ.get(TOKEN_VARIABLE, ""))


@asynccontextmanager
async def open_board(wanted: Wanted, notes: list[str]) -> AsyncIterator[Shows]:
    """Yield a board. Append to ``notes`` what the user should know about it.

    Raises ``ManifestError``, ``SettingsError``, ``ApiError`` and ``CredentialsError``.
    """
    if wanted.kubeconfig:
        os.environ["KUBECONFIG"] = wanted.kubeconfig
    if wanted.snapshots:
        settings = load_settings({})
        cluster = read_cluster(wanted.snapshots, settings.reading)
        yield _recorded(cluster, notes) or StoredBoard.of(cluster, settings)
    elif wanted.url:
        async with board_at(wanted.url) as remote:
            yield remote
    else:
        async with AsyncExitStack() as stack:
            yield await _of_the_cluster(stack, wanted.kubeconfig, notes)


async def _of_the_cluster(stack: AsyncExitStack, kubeconfig: str, notes: list[str]) -> Shows:
    """Return the board of the operator that leads, else that of the cluster's objects."""
    server = await stack.enter_async_context(ApiServer.connect(kubeconfig=kubeconfig))
    try:
        remote, why = await open_operator(stack, server)
        if remote is not None:
            return remote
    except (ApiError, UnreadableError) as error:
        why = f"the operator can't be asked: {error}"
    notes.append(f"{why}; shown is what the objects of the cluster say, without reservations and decisions")
    settings = await find_settings(kubeconfig, {}, notes)
    return StoredBoard.of(await read_live_cluster(notes, settings.reading), settings)


def _recorded(cluster: Cluster, notes: list[str]) -> RecordedBoard | None:
    """Return the board that a snapshot holds; None if it holds none of this version."""
    if cluster.board is None:
        return None
    try:
        return RecordedBoard(Snapshot.model_validate(cluster.board))
    except ValidationError:
        notes.append("the operator's state in the snapshot is of another version; shown is what the objects say")
        return None


async def open_operator(stack: AsyncExitStack, server: ApiServer) -> tuple[RemoteBoard | None, str]:
    """Return the board of the operator that leads, through a port-forward, until ``stack`` is closed; or None, and why.

    Raises ``ApiError`` and ``UnreadableError``.
    """
    pods, why = await _operators(server)
    for namespace, pod in pods:
        port = await stack.enter_async_context(forwarded(server, namespace, pod, _PORT))
        remote = await stack.enter_async_context(RemoteBoard.open(f"http://127.0.0.1:{port}"))
        if (await remote.status()).leads:
            return remote, ""
        why = "no replica of the operator leads"
    return None, why


async def _operators(server: ApiServer) -> tuple[Sequence[tuple[str, str]], str]:
    """Return namespace and name of the running pods of operators, and why there are none otherwise. Raises ``ApiError``."""
    selection = {"labelSelector": OF_OPERATORS, "fieldSelector": "status.phase=Running"}
    named: list[tuple[str, str]] = []
    for raw in await listed(server, PODS.everywhere, selection):
        with suppress(MalformedError):
            metadata = mapping(raw, "metadata")
            named.append((text(metadata, "namespace", path="metadata."), text(metadata, "name", path="metadata.")))
    trusted = [each for each in named if each[0] in operator_namespaces()]
    return trusted, no_operator({namespace for namespace, _ in named}, "running ") if not trusted else ""
