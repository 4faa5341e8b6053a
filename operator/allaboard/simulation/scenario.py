"""Reads a scenario to be replayed from YAML: nodes, and gangs with arrival and run times. ``docs/simulate.md`` shows the form.

Errors name the file and the path of the field. An unknown key is an error, too: otherwise a misspelt key would silently mean the default.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from allaboard.model.errors import MalformedError, shown
from allaboard.model.quantities import milli_amount, resource_amount
from allaboard.model.raw_fields import integer, items, text, texts
from allaboard.model.yamltext import TextError, decoded, yaml_value
from allaboard.simulation.trace import MOST_GPUS
from allaboard.simulation.workload import WHOLE_GPU_MILLI, Arrival, SimNode, TaskClass, Workload

STDIN = "-"
MOST = 200_000
"""The largest number of nodes, and of pods, in a scenario. The limit keeps a typing mistake from exhausting memory."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])"
_TIME = re.compile(rf"(?P<number>[0-9]{{1,9}}(?:\.[0-9]{{1,6}})?)|(?:{_PART}){{1,4}}", re.ASCII)
_NODE = ("name", "count", "cpu", "memory", "gpus", "model")
_GANG = ("name", "arrival", "run", "walltime", "repeat", "every", "minMember", "priority", "namespace", "members")
_MEMBER = ("count", "cpu", "memory", "gpus", "models")


class ScenarioError(ValueError):
    """A scenario can't be used. ``field`` is a path in the scenario, or empty if the whole file is meant."""

    def __init__(self, file: str, field: str, problem: str) -> None:
        super().__init__(": ".join(part for part in (file, field, problem) if part))
        self.file = file
        self.field = field
        self.problem = problem


def read_scenario(file: str) -> Workload:
    """Return the workload of ``file`` (``-``: standard input), whose gangs wait until they fit. Raises ``ScenarioError``."""
    name = "standard input" if file == STDIN else file
    raw = _parsed(file, name)
    try:
        _refuse_unknown_keys(raw, ("nodes", "workload"), "")
        nodes = tuple(_nodes(raw))
        position: dict[TaskClass, int] = {}
        arrivals = tuple(_arrivals(raw, position))
        _refuse_duplicates("nodes", [node.name for node in nodes])
        _refuse_duplicates("workload", [arrival.name for arrival in arrivals])
    except MalformedError as error:
        raise ScenarioError(name, error.field, error.problem) from error
    return Workload(nodes, tuple(position), tuple(sorted(arrivals, key=lambda arrival: arrival.at_seconds)), waits=True)


def _parsed(file: str, name: str) -> Mapping[str, object]:
    try:
        raw = yaml_value(decoded(sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()))
    except OSError as error:
        raise ScenarioError(name, "", f"can't be read: {error.strerror or error}") from error
    except TextError as error:
        raise ScenarioError(name, "", str(error)) from error
    if raw is None:
        raise ScenarioError(name, "", "is empty")
    if not isinstance(raw, Mapping):
        raise ScenarioError(name, "", f"holds {shown(raw)}, not an object with nodes and workload")
    return raw


def _nodes(raw: Mapping[str, object]) -> Iterator[SimNode]:
    total = 0
    for path, entry in _entries(raw, "nodes"):
        _refuse_unknown_keys(entry, _NODE, path)
        name, count = _name(entry, path), _count(entry, path)
        total += count
        if total > MOST:
            raise MalformedError(f"{path}count", f"makes more than {MOST} nodes")
        gpus = integer(entry, "gpus", path=path)
        if not 0 <= gpus <= MOST_GPUS:
            raise MalformedError(f"{path}gpus", f"{gpus} is not a number of GPUs from 0 to {MOST_GPUS}")
        cpu, memory = (_amount(entry, resource, path, is_needed=True) for resource in ("cpu", "memory"))
        model = text(entry, "model", path=path)
        for index in range(count):
            yield SimNode(f"{name}-{index}" if "count" in entry else name, cpu, memory, gpus, model)


def _arrivals(raw: Mapping[str, object], position: dict[TaskClass, int]) -> Iterator[Arrival]:
    pods = 0
    for path, entry in _entries(raw, "workload"):
        _refuse_unknown_keys(entry, _GANG, path)
        name = _name(entry, path)
        members: list[int] = []
        for where, member in _entries(entry, "members", path):
            _refuse_unknown_keys(member, _MEMBER, where)
            count = _count(member, where)
            if pods + len(members) + count > MOST:
                raise MalformedError(f"{where}count", f"makes more than {MOST} pods")
            members += [position.setdefault(_task(member, where), len(position))] * count
        minimum = integer(entry, "minMember", len(members), path)
        if not 1 <= minimum <= len(members):
            raise MalformedError(f"{path}minMember", f"{minimum} is not from 1 to {len(members)}, the number of members")
        repeat = _count(entry, path, "repeat")
        pods += len(members) * repeat
        if pods > MOST:
            raise MalformedError(f"{path}repeat", f"makes more than {MOST} pods")
        every = _seconds(entry, "every", path) or 0.0
        if repeat > 1 and "every" not in entry:
            raise MalformedError(f"{path}every", "is missing; it is the time between two gangs of repeat")
        first, run = _seconds(entry, "arrival", path) or 0.0, _seconds(entry, "run", path)
        walltime = _seconds(entry, "walltime", path) or 0.0
        priority, namespace = integer(entry, "priority", path=path), text(entry, "namespace", "default", path)
        for index in range(repeat):
            title, arrival = f"{name}-{index}" if "repeat" in entry else name, first + index * every
            yield Arrival(title, tuple(members), minimum, priority, arrival, run, walltime, namespace)


def _task(member: Mapping[str, object], path: str) -> TaskClass:
    gpu_milli = milli_amount(member["gpus"], f"{path}gpus") if member.get("gpus") is not None else 0
    gpus, share = divmod(gpu_milli, WHOLE_GPU_MILLI)
    if gpus and share:
        raise MalformedError(f"{path}gpus", f"{shown(member['gpus'])} is not a whole number; only a single GPU can be shared")
    if gpus > MOST_GPUS:
        raise MalformedError(f"{path}gpus", f"{gpus} is more than {MOST_GPUS}, which no node has")
    models = tuple(sorted(set(texts(member, "models", path))))
    each = share or (WHOLE_GPU_MILLI if gpus else 0)
    cpu, memory = (_amount(member, resource, path) for resource in ("cpu", "memory"))
    return TaskClass(cpu, memory, max(gpus, int(share > 0)), each, models if gpu_milli else ())


def _entries(raw: Mapping[str, object], key: str, path: str = "") -> list[tuple[str, Mapping[str, object]]]:
    found = list(items(raw, key, path))
    if not found:
        raise MalformedError(f"{path}{key}", "is missing or empty; list at least one")
    return found


def _refuse_unknown_keys(entry: Mapping[str, object], known: tuple[str, ...], path: str) -> None:
    for key in entry:
        if key not in known:
            raise MalformedError(f"{path}{key}", f"is not a known key; known are {', '.join(known)}")


def _name(entry: Mapping[str, object], path: str) -> str:
    name = text(entry, "name", path=path)
    if not name:
        raise MalformedError(f"{path}name", "is missing")
    return name


def _count(entry: Mapping[str, object], path: str, key: str = "count") -> int:
    count = integer(entry, key, 1, path)
    if not 1 <= count <= MOST:
        raise MalformedError(f"{path}{key}", f"{count} is not from 1 to {MOST}")
    return count


def _amount(entry: Mapping[str, object], resource: str, path: str, *, is_needed: bool = False) -> int:
    value = entry.get(resource)
    if value is None:
        if is_needed:
            raise MalformedError(f"{path}{resource}", "is missing; a node needs it")
        return 0
    return resource_amount(resource, value, f"{path}{resource}")


def _seconds(entry: Mapping[str, object], key: str, path: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    found = None if isinstance(value, bool) else _TIME.fullmatch(str(value))
    if not found:
        raise MalformedError(f"{path}{key}", f"{shown(value)} is not a time such as 90, 90s, 5m, 1h30m or 1d")
    if found["number"]:
        return float(found["number"])
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, str(value)))


def _refuse_duplicates(path: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise MalformedError(path, f"two have the name {shown(name)}; names must differ")
        seen.add(name)
