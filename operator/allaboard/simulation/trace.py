"""Reads node and task lists in the CSV form of the openb traces (Alibaba's ``cluster-trace-gpu-v2023``).

Nodes: ``sn, cpu_milli, memory_mib, gpu, model``. Tasks: ``name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec``. The column
``gpu_spec`` lists GPU models, separated by ``|``, and may be absent. Further columns are ignored. Errors name the file and the line.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from allaboard.model.errors import shown
from allaboard.simulation.workload import MIB, WHOLE_GPU_MILLI, SimNode, TaskClass

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
TASK_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
MOST_GPUS = 64
"""The largest number of GPUs of one node. The limit keeps a typing mistake from exhausting memory."""
_MOST = 2**40


class TraceError(ValueError):
    """A list of nodes or tasks can't be used. ``line`` counts from 1, the header included; 0 means the whole file."""

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(f"{file}{f', line {line}' if line else ''}: {problem}")
        self.file = file
        self.line = line
        self.problem = problem


def read_nodes(file: str) -> tuple[SimNode, ...]:
    """Return the nodes of ``file``. Raises ``TraceError``."""
    nodes: dict[str, SimNode] = {}
    for row in _rows(file, NODE_COLUMNS, "nodes"):
        name = row.text("sn")
        if name in nodes:
            raise row.error(f"there is a node {shown(name)} already; names must differ")
        gpus = row.number("gpu", most=MOST_GPUS)
        nodes[name] = SimNode(name, row.number("cpu_milli"), row.number("memory_mib") * MIB, gpus, row.optional("model"))
    return tuple(nodes.values())


def read_tasks(file: str) -> tuple[tuple[str, TaskClass], ...]:
    """Return the name and the requests of each task of ``file``. Raises ``TraceError``."""
    tasks = []
    for row in _rows(file, TASK_COLUMNS, "tasks"):
        gpus = row.number("num_gpu", most=MOST_GPUS)
        gpu_milli = row.number("gpu_milli", most=WHOLE_GPU_MILLI) if gpus or row.optional("gpu_milli") else 0
        if gpu_milli and not gpus:
            raise row.error(f"num_gpu is 0 but gpu_milli is {gpu_milli}; a task that takes a share of a GPU has num_gpu 1")
        if gpus and not gpu_milli:
            raise row.error(f"num_gpu is {gpus} but gpu_milli is 0; gpu_milli is the part of each GPU, 1000 for a whole one")
        if gpus > 1 and gpu_milli != WHOLE_GPU_MILLI:
            raise row.error(f"num_gpu is {gpus} and gpu_milli {gpu_milli}; only a single GPU can be shared, so gpu_milli must be 1000")
        models = tuple(sorted({model.strip() for model in row.optional("gpu_spec").split("|") if model.strip()})) if gpus else ()
        task = TaskClass(row.number("cpu_milli"), row.number("memory_mib") * MIB, gpus, gpu_milli, models)
        tasks.append((row.text("name"), task))
    return tuple(tasks)


class _Row:
    def __init__(self, file: str, line: int, values: Mapping[str, str]) -> None:
        self._file = file
        self._line = line
        self._values = values

    def error(self, problem: str) -> TraceError:
        return TraceError(self._file, self._line, problem)

    def optional(self, column: str) -> str:
        return self._values.get(column, "").strip()

    def text(self, column: str) -> str:
        value = self.optional(column)
        if not value:
            raise self.error(f"{column} is empty; every line needs one")
        return value

    def number(self, column: str, most: int = _MOST) -> int:
        value = self.optional(column)
        if not (value.isascii() and value.isdecimal()):
            raise self.error(f"{column} is {shown(value)}, which is not a whole number of 0 or more")
        if len(value) > 20 or int(value) > most:
            raise self.error(f"{column} is {shown(value)}, which is more than {most}")
        return int(value)


def _rows(file: str, columns: tuple[str, ...], what: str) -> Iterator[_Row]:
    is_empty = True
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = [name.strip() for name in next(filter(None, reader), [])]
            if not header:
                raise TraceError(file, 0, f"is empty; a list of {what} has {', '.join(columns)}")
            missing = [name for name in columns if name not in header]
            if missing:
                lacks = f"lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
                raise TraceError(file, reader.line_num, f"{lacks}; a list of {what} has {', '.join(columns)}")
            for values in reader:
                if not values:
                    continue
                if len(values) != len(header):
                    raise TraceError(file, reader.line_num, f"has {len(values)} values where the header names {len(header)} columns")
                is_empty = False
                yield _Row(file, reader.line_num, dict(zip(header, values, strict=True)))
    except OSError as error:
        raise TraceError(file, 0, f"can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(file, 0, f"is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except csv.Error as error:
        raise TraceError(file, reader.line_num, f"is not CSV: {error}") from error
    if is_empty:
        raise TraceError(file, 0, f"holds no {what}, only a header")
