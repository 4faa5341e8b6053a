"""``allaboard gpus``: show the GPUs of a cluster, their free capacity and their metrics, computed by the operator's own code."""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import click
import numpy as np

from allaboard.cli.inputs import BadInputError
from allaboard.cli.installed import settings_in_force
from allaboard.cli.tables import PlainTable, line_width, print_notes, print_notice, print_tables
from allaboard.cluster.view import ClusterView
from allaboard.gpu.cache import CardCache
from allaboard.gpu.errors import SourceError
from allaboard.gpu.gathering import MOST_CARDS
from allaboard.gpu.sources import find
from allaboard.gpu.web import Web
from allaboard.kube.client import ApiError, ApiServer, CredentialsError, RawObject
from allaboard.kube.lists import pages
from allaboard.kube.paths import NODES, PODS
from allaboard.model.errors import MalformedError
from allaboard.model.gpu_inventory import kind_of
from allaboard.model.gpu_sharing import WHOLE
from allaboard.model.gpus import Cards, Measure, is_gpu
from allaboard.model.node import Node, node_from
from allaboard.model.pod import Pod, pod_from
from allaboard.model.snapshot import Snapshot
from allaboard.settings.options import CONFIG_VARIABLE, Settings, SettingsError

_NOTHING = "-"
_VENDOR = re.compile(r"^(NVIDIA|AMD|Intel)[- ](?=.)")
_GAP = 2
_WORDS = ("NODE", "MODEL", "HEALTH")
_SHORTEST_NODE = 12
_LESS_IMPORTANT = ("POWER", "TEMP", "MEM FREE", "UTIL")


@dataclass(frozen=True, slots=True)
class CardRow:
    """One card. Utilization is from 0 to 1; a value that no exporter reports is None."""

    name: str
    model: str
    memory_mib: float | None
    free_mib: float | None
    utilization: float | None
    power_watts: float | None
    temperature_celsius: float | None
    xid: int | None
    remap_failure: bool | None


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One card that a driver shares between pods."""

    uuid: str
    """The driver's name of the card."""
    free_thousandths: int
    """Thousandths of the card that no pod requests; 0 if the card takes no further pod."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node that has GPUs."""

    node: str
    model: str
    free: int
    """GPUs that no pod requests. If a driver shares the cards, this is the number of further pods that may share them."""
    allocatable: int
    """Allocatable GPUs. If a driver shares the cards, this is the number of pods that may share them."""
    memory_mib: float | None
    """Memory of the smallest card; None if unknown."""
    health: str
    """The errors of the node's cards; ``ok`` if there are none, empty if no exporter reports errors."""
    age_seconds: float | None
    """Age of the metrics; None without metrics."""
    cards: tuple[CardRow, ...]
    """Cards that have metrics."""
    devices: tuple[DeviceRow, ...] = ()
    """Cards that a driver shares between pods."""


def gpus(
    kubeconfig: str | None, config: str | None, url: str | None, no_metrics: bool, each_card: bool, watch: bool, every: float, output: str
) -> None:
    """Print the GPUs of the cluster. Raises ``BadInputError`` if the cluster can't be read."""
    if config:
        os.environ[CONFIG_VARIABLE] = config
    if url is not None and no_metrics:
        raise click.UsageError("--url and --no-metrics: state one of them")
    stated = {"source": "off"} if no_metrics else {} if url is None else {"source": "auto", "url": url}
    notes: list[str] = []
    try:
        settings = settings_in_force(kubeconfig or "", {"gpu_metrics": stated} if stated else {}, notes)
    except SettingsError as error:
        raise BadInputError(str(error)) from error
    print_notes(notes)
    try:
        note = asyncio.run(_show(settings, kubeconfig or settings.kubeconfig, every if watch else None, each_card, output))
    except (CredentialsError, ApiError) as error:
        raise BadInputError(str(error)) from error
    if url and note:  # the user named a Prometheus, and it can't be read
        raise click.exceptions.Exit(1)


async def _show(settings: Settings, kubeconfig: str, every: float | None, each_card: bool, output: str) -> str:
    """Print the GPUs, once or each time after ``every`` seconds. Return why there are no metrics; empty if there are metrics."""
    cache = CardCache(settings.gpu_metrics.stale_seconds)
    async with ApiServer.connect(settings.request_timeout_seconds, kubeconfig=kubeconfig) as server:
        while True:
            rows, note = await read_gpus(server, settings, cache)
            if output == "json":
                click.echo(json.dumps({"nodes": [asdict(row) for row in rows], "note": note}, indent=2))
            else:
                if every is not None and sys.stdout.isatty():
                    click.clear()
                if note:
                    print_notice(note)
                print_tables(_fitted(_of_cards(rows) if each_card else _of_nodes(rows), line_width()))
            if every is None:
                return note
            await asyncio.sleep(every)


async def read_gpus(server: ApiServer, settings: Settings, cache: CardCache) -> tuple[list[NodeRow], str]:
    """Return the nodes with GPUs, and why there are no metrics (empty if there are). Raises ``ApiError``."""
    view, options = ClusterView(policy=settings.gpu.policy), settings.gpu_metrics
    read = partial(pod_from, reading=settings.reading)
    async for page in pages(server, NODES.everywhere):
        for raw in page.items:
            _observe_node(view, raw)
    async for page in pages(server, PODS.everywhere):
        for raw in page.items:
            _observe_pod(view, raw, read)
    note = ""
    if options.source != "off":
        try:
            async with Web.open(options) as web:
                source = await find(options, server, web, lambda name: view.node(name) is not None)
                cache.take(await source.read(), time.monotonic())
        except (SourceError, ApiError) as error:
            note = f"no metrics: {error}"
    now = time.monotonic()
    ages, cards = cache.ages(now), cache.cards(now)
    snapshot = view.snapshot()
    columns = [column for column, name in enumerate(snapshot.resources) if is_gpu(name)]
    allocatable = snapshot.allocatable[:, columns].sum(axis=1)
    view.observe_cards(cards)  # unhealthy cards reduce the free GPUs, and not the allocatable ones above
    free = np.maximum(0, view.snapshot().free[:, columns]).sum(axis=1)
    rows = []
    for place, node in enumerate(snapshot.nodes):
        known = tuple(_cards(node, cards))
        if known or allocatable[place]:
            row = _row(node, int(free[place]), int(allocatable[place]), known, ages.get(node.name))
            rows.append(replace(row, devices=tuple(_devices(node, snapshot, place))))
    return rows, note


def _observe_node(view: ClusterView, raw: RawObject) -> None:
    try:
        view.upsert_node(node_from(raw))
    except MalformedError:
        return  # as the operator does


def _observe_pod(view: ClusterView, raw: RawObject, read: Callable[[RawObject], Pod]) -> None:
    try:
        view.upsert_pod(read(raw))
    except MalformedError:
        return


def _cards(node: Node, cards: Cards) -> Iterator[CardRow]:
    row = cards.rows.get(node.name)
    if row is None:
        return
    for column, name in enumerate(cards.names[row]):
        model = int(cards.model[row, column])
        known = [None if np.isnan(value) else float(value) for value in cards.values[:, row, column]]
        xid, remapped = known[Measure.XID], known[Measure.REMAP_FAILURE]
        yield CardRow(
            name,
            cards.models[model] if model >= 0 else "",
            known[Measure.MEMORY],
            known[Measure.FREE],
            known[Measure.UTILIZATION],
            known[Measure.POWER],
            known[Measure.TEMPERATURE],
            None if xid is None else int(xid),
            None if remapped is None else remapped > 0,
        )


def _devices(node: Node, snapshot: Snapshot, place: int) -> Iterator[DeviceRow]:
    if node.shared is not None and snapshot.devices is not None:
        for device, free in zip(node.shared.devices, snapshot.devices[place].tolist(), strict=False):
            yield DeviceRow(device.uuid, max(0, free))


def _row(node: Node, free: int, allocatable: int, cards: tuple[CardRow, ...], age: float | None) -> NodeRow:
    labelled = kind_of(node)
    models = sorted({card.model for card in cards if card.model}) or [labelled.product]
    memory = [card.memory_mib for card in cards if card.memory_mib is not None]
    size = min(memory) if memory else None if np.isnan(labelled.memory) else labelled.memory
    return NodeRow(node.name, ", ".join(models[:2]), free, allocatable, size, _health(cards), age, cards)


def _health(cards: Sequence[CardRow]) -> str:
    """Return the first error of the cards and the number of further errors; ``ok`` without errors, empty if no exporter reports errors."""
    wrong = [f"{card.name}: XID {card.xid}" for card in cards if card.xid]
    wrong += [f"{card.name}: rows not remapped" for card in cards if card.remap_failure]
    if wrong:
        return wrong[0] if len(wrong) == 1 else f"{wrong[0]} +{len(wrong) - 1}"
    return "ok" if any(card.xid is not None or card.remap_failure is not None for card in cards) else ""


def _of_nodes(rows: Sequence[NodeRow]) -> PlainTable:
    table = _table("NODE", "MODEL", "FREE", "MEM/GPU", "MEM FREE", "UTIL", "POWER", "TEMP", "HEALTH", "AGE")
    for row in rows:
        each = row.cards
        table.add_row(
            row.node,
            _short(row.model) or _NOTHING,
            _free(row),
            _gib(row.memory_mib),
            _gib(_total(card.free_mib for card in each)),
            _percent(_mean(card.utilization for card in each)),
            _whole(_total(card.power_watts for card in each), " W"),
            _whole(max((card.temperature_celsius for card in each if card.temperature_celsius is not None), default=None), " C"),
            row.health or _NOTHING,
            _whole(row.age_seconds, "s"),
        )
    return table


def _of_cards(rows: Sequence[NodeRow]) -> PlainTable:
    are_shared = any(row.devices for row in rows)
    parts_of = ("FREE",) if are_shared else ()
    table = _table("NODE", "GPU", *parts_of, "MODEL", "MEM", "MEM FREE", "UTIL", "POWER", "TEMP", "HEALTH", "AGE")
    for row in rows:
        parts = {device.uuid: _part(device.free_thousandths) for device in row.devices}
        for card in row.cards or (() if row.devices else _by_label(row)):
            table.add_row(
                row.node,
                card.name,
                *((parts.pop(card.name, _NOTHING),) if are_shared else ()),
                _short(card.model) or _NOTHING,
                _gib(card.memory_mib),
                _gib(card.free_mib),
                _percent(card.utilization),
                _whole(card.power_watts, " W"),
                _whole(card.temperature_celsius, " C"),
                _health([card]).partition(": ")[2] or _health([card]) or _NOTHING,
                _whole(row.age_seconds, "s"),
            )
        for uuid, free in parts.items():  # most exporters number the cards, and their numbers can't be matched with the driver's names
            table.add_row(row.node, uuid, free, *[_NOTHING] * 8)
    return table


def _by_label(row: NodeRow) -> Iterator[CardRow]:
    """Yield a row for each GPU of a node without metrics, from the node's labels."""
    for number in range(min(row.allocatable, MOST_CARDS)):
        yield CardRow(str(number), row.model, row.memory_mib, None, None, None, None, None, None)


def _short(model: str) -> str:
    """Return ``model``, which may list the names of several models, without the vendor's name."""
    return ", ".join(_VENDOR.sub("", name) for name in model.split(", "))


def _free(row: NodeRow) -> str:
    if not row.devices:
        return f"{row.free}/{row.allocatable}"
    return f"{_part(sum(device.free_thousandths for device in row.devices))}/{len(row.devices)}"


def _part(thousandths: int) -> str:
    return f"{thousandths / WHOLE:g}"


def _table(*names: str) -> PlainTable:
    table = PlainTable(padding=(0, _GAP, 0, 0), header_style="table.header")
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name not in _WORDS)
    return table


def _fitted(table: PlainTable, width: int) -> PlainTable:
    """Return ``table`` with at most ``width`` characters a line. If necessary, names of nodes are cut and columns left out."""
    texts = {str(column.header): [str(column.header), *map(str, column.cells)] for column in table.columns}
    whole = {name: max(map(len, column)) for name, column in texts.items()}
    least = whole | {name: max(len(word) for text in texts[name] for word in text.split()) for name in _WORDS}
    least["NODE"] = min(whole["NODE"], _SHORTEST_NODE)
    spare = width + _GAP - sum(each + _GAP for each in least.values())
    for name in _LESS_IMPORTANT:
        if spare < 0 and least.pop(name, None) is not None:
            spare += whole[name] + _GAP
    table.columns = [column for column in table.columns if str(column.header) in least]
    for column in table.columns:
        name = str(column.header)
        more = max(0, min(spare, whole[name] - least[name]))
        column.width, spare = least[name] + more, spare - more
    return table


def _total(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _gib(mebibytes: float | None) -> str:
    return _NOTHING if mebibytes is None else f"{mebibytes / 1024:.0f}Gi"


def _percent(ratio: float | None) -> str:
    return _NOTHING if ratio is None else f"{ratio:.0%}"


def _whole(value: float | None, unit: str) -> str:
    return _NOTHING if value is None else f"{value:.0f}{unit}"
