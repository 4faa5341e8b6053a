"""The pods that run on nodes, and when each of them is expected to end: what says how much capacity will be free at a later time.

Pods that were bound together end together: they are one *unit*. A unit ends when its last pod is expected to end:

- a pod with a walltime ends that long after its start;
- a pod that has outrun its walltime or its estimate ends as long from now as it has outrun it. Tsafrir, Etsion and Feitelson (TPDS 18(6),
  2007) raise an outrun estimate in steps that double;
- a pod without a walltime, but with an estimate (``cluster.run_times``), ends that long after its start;
- any other pod without a walltime ends as long from now as it has run until now. That is the median if run times follow a power law with
  exponent 1, as they often do;
- a pod of a service, such as a Deployment, never ends.

None of these times ends a pod.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

import numpy as np

from allaboard.model.arrays import Floats, Integers, Texts
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gpu_sharing import WHOLE
from allaboard.model.node import Node
from allaboard.model.requests import Requests
from allaboard.model.walltime import LEAVING, NEVER, UNKNOWN

_Key = TypeVar("_Key", bound=Hashable)

LEAST_RESIDUAL_SECONDS = 600.0
"""The least time that a pod without a known end is expected to run from now on. When a younger pod ends isn't known at all."""

LEAVING_SECONDS = 30.0
"""The time in which a pod that is being deleted is expected to end: Kubernetes' default grace period."""

_SOON_SECONDS = 120.0
"""A grace period that ends in more than so many seconds is used to its end."""

_STUCK_SECONDS = 60.0
"""A pod that is still there so many seconds after its grace period may stay for long, for instance because of a finalizer."""


class Basis(StrEnum):
    """The facts from which the end of a pod is expected, the least certain first."""

    UNKNOWN = "unknown"
    """None: the pod states no walltime and has run for less than ten minutes."""
    GUESSED = "guessed"
    """The estimate, the time for which the pod has run, or the time by which it has outrun its walltime."""
    STATED = "stated"
    """The pod's walltime."""


BASES = tuple(Basis)

_SHORT = 1 << 16
_MOST_KNOWN = 64  # results of ``Departures.freed`` that are kept: 200 KB each for 5,000 nodes


@dataclass(frozen=True, slots=True, eq=False)
class Departures:
    """The units in the order of their expected ends, and what each of their pods frees. Units that never end are left out.

    ``ends``: float64[units], ascending, in seconds since the epoch. ``basis``: int64[units], positions in ``BASES``, the least certain of
    the unit's pods. ``unit``: int64[pods], ascending, the unit of each pod. ``row``: int64[pods], the node's row in the snapshot.
    ``amounts``: int64[pods, resources]. ``parts``: int64[pods], thousandths of GPUs. ``uids``: object[pods], the UID of each pod.
    ``nodes``: the number of nodes.
    """

    ends: Floats
    basis: Integers
    unit: Integers
    row: Integers
    amounts: Integers
    parts: Integers
    uids: Texts
    nodes: int
    _freed: dict[int, tuple[Integers, Integers]] = field(default_factory=dict, repr=False)
    """The results of ``freed``: a search for a start asks for many numbers of units, and several gangs for the same."""

    def number_by(self, when: float) -> int:
        """Return how many units end at ``when`` or before."""
        return int(np.searchsorted(self.ends, when, side="right"))

    def freed(self, units: int) -> tuple[Integers, Integers]:
        """Return what the first ``units`` free: int64[nodes, resources], and thousandths of GPUs: int64[nodes]. Both are read-only."""
        if (known := self._freed.get(units)) is not None:
            return known
        fewer = max((each for each in self._freed if each < units), default=0)
        first, last = np.searchsorted(self.unit, (fewer, units), side="left").tolist()
        if fewer:
            freed, parts = (each.copy(order="K") for each in self._freed[fewer])
        else:
            freed, parts = np.zeros((self.amounts.shape[1], self.nodes), dtype=np.int64).T, np.zeros(self.nodes, dtype=np.int64)
        row = self.row[first:last]
        for column in range(freed.shape[1]):
            np.add.at(freed[:, column], row, self.amounts[first:last, column])
        np.add.at(parts, row, self.parts[first:last])
        freed.setflags(write=False)
        parts.setflags(write=False)
        if len(self._freed) >= _MOST_KNOWN:
            self._freed.clear()
        self._freed[units] = freed, parts
        return freed, parts

    def of_nodes(self, rows: Integers) -> "Departures":
        """Return the departures from the nodes ``rows`` only; ``row`` is then a position in ``rows``. All units keep their places."""
        place = np.full(self.nodes, -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        kept = np.flatnonzero(place[self.row] >= 0)
        of_pods = self.unit[kept], place[self.row[kept]], self.amounts[kept], self.parts[kept], self.uids[kept]
        return Departures(self.ends, self.basis, *of_pods, len(rows))


class RunningPods:
    """The pods that have a node, of all schedulers, in arrays of which each event changes one entry.

    ``version`` counts the changes, and ``removals`` the pods that were removed.
    """

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}  # by UID
        self._vacant: list[int] = []
        self._node: Integers = np.full(64, -1, dtype=np.int64)  # -1: the slot is vacant
        self._uid: Texts = np.full(64, "", dtype=np.object_)
        self._spec: Integers = np.zeros(64, dtype=np.int64)
        self._unit: Integers = np.zeros(64, dtype=np.int64)
        self._started: Floats = np.zeros(64)
        self._walltime: Floats = np.zeros(64)
        self._estimate: Floats = np.zeros(64)
        self._nodes: _Codes[str] = _Codes()
        self._specs: _Codes[tuple[Requests, int]] = _Codes()
        self._units: _Codes[Hashable] = _Codes()
        self.version = self.removals = 0

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, uid: object) -> bool:
        return uid in self._slots

    def put(
        self,
        uid: str,
        node_name: str,
        spec: SchedulingSpec,
        *,
        unit: Hashable,
        started: float,
        walltime: float,
        estimate: float = 0.0,
    ) -> None:
        """Add a pod, or replace what is known of it. ``started`` is 0 for a pod whose start isn't known yet: it starts now.

        For a pod that is being deleted (``LEAVING``) it is the end of the grace period.
        ``estimate`` is the time in seconds that a pod without a walltime is expected to run; 0 if there is no estimate.
        """
        slot = self._slots.get(uid)
        codes = self._nodes.code(node_name), self._specs.code((spec.requests, spec.gpu_share)), self._units.code(unit)
        if slot is None:
            slot = self._slots[uid] = self._vacant.pop() if self._vacant else len(self._slots)
            if slot >= len(self._node):
                self._extend()
            self._uid[slot] = uid
        else:
            self._drop_codes(slot)
        self._node[slot], self._spec[slot], self._unit[slot] = codes
        self._started[slot], self._walltime[slot], self._estimate[slot] = started, walltime, estimate
        self.version += 1

    def remove(self, uid: str) -> None:
        """Remove a pod, if it is known."""
        if (slot := self._slots.pop(uid, None)) is None:
            return
        self._drop_codes(slot)
        self._node[slot] = -1
        self._vacant.append(slot)
        self.version += 1
        self.removals += 1

    def departures(self, nodes: Sequence[Node], resources: Sequence[str], now: float, staying: Iterable[str] = ()) -> Departures:
        """Return the departures as expected ``now``, in seconds since the epoch, for the ``nodes`` and ``resources`` of a snapshot.

        ``staying`` are the UIDs of pods that count as staying for ever.
        """
        row_of_code = np.full(max(1, len(self._nodes)), -1, dtype=np.int64)
        for row, node in enumerate(nodes):
            if (code := self._nodes.find(node.name)) is not None:
                row_of_code[code] = row
        used = np.flatnonzero(self._node >= 0)
        rows = row_of_code[self._node[used]]
        walltime = self._walltime
        if stay := [slot for uid in staying if (slot := self._slots.get(uid)) is not None]:
            walltime = walltime.copy()
            walltime[stay] = NEVER
        ends, basis = _ends(self._started[used], walltime[used], self._estimate[used], now)
        # 1. The end of each unit is the end of its last pod, on whatever node that is.
        units = self._unit[used]
        unit_ends = np.full(max(1, len(self._units)), -np.inf)
        np.maximum.at(unit_ends, units, ends)
        unit_basis = np.full(len(unit_ends), len(BASES) - 1, dtype=np.int64)
        np.minimum.at(unit_basis, units, basis)
        # 2. Units in the order of their ends; equal ends in the order of the units' first nodes.
        first_row = np.full(len(unit_ends), len(nodes), dtype=np.int64)
        np.minimum.at(first_row, units, np.where(rows < 0, len(nodes), rows))
        order = _by_end_and_row(unit_ends, first_row)
        order = order[np.isfinite(unit_ends[order])]
        rank = np.full(len(unit_ends), -1, dtype=np.int64)
        rank[order] = np.arange(len(order))
        # 3. The pods of these units on nodes of the snapshot, in the order of their units.
        kept = np.flatnonzero((rows >= 0) & (rank[units] >= 0))
        ranks = rank[units[kept]]
        # A stable sort of 16-bit numbers is a radix sort, which takes a seventh of the time. More units have mostly one pod each.
        kept = kept[np.argsort(ranks.astype(np.uint16), kind="stable") if len(order) < _SHORT else np.argsort(ranks)]
        amounts, parts = self._amounts(resources)
        specs = self._spec[used[kept]]
        of_pods = rank[units[kept]], rows[kept], amounts[specs], parts[specs], self._uid[used[kept]]
        return Departures(unit_ends[order], unit_basis[order], *of_pods, len(nodes))

    def _amounts(self, resources: Sequence[str]) -> tuple[Integers, Integers]:
        """Return what each known spec requests: int64[specs, resources], and thousandths of GPUs: int64[specs]."""
        columns = {resource: column for column, resource in enumerate(resources)}
        amounts = np.zeros((max(1, len(self._specs)), len(columns)), dtype=np.int64)
        parts = np.zeros(len(amounts), dtype=np.int64)
        for (requests, share), code in self._specs.items():
            for resource, amount in requests:
                if (column := columns.get(resource)) is not None:
                    amounts[code, column] = amount
            parts[code] = parts_of(requests, share)
        return amounts, parts

    def _drop_codes(self, slot: int) -> None:
        self._nodes.drop(int(self._node[slot]))
        self._specs.drop(int(self._spec[slot]))
        self._units.drop(int(self._unit[slot]))

    def _extend(self) -> None:
        more = len(self._node)
        self._node = np.concatenate([self._node, np.full(more, -1, dtype=np.int64)])
        self._spec, self._unit = (np.concatenate([codes, np.zeros(more, dtype=np.int64)]) for codes in (self._spec, self._unit))
        self._uid = np.concatenate([self._uid, np.full(more, "", dtype=np.object_)])
        times = (self._started, self._walltime, self._estimate)
        self._started, self._walltime, self._estimate = (np.concatenate([each, np.zeros(more)]) for each in times)


def parts_of(requests: Requests, share: int) -> int:
    """Return the thousandths of GPUs that a pod takes of devices: its ``share`` of one, or all of the devices that it requests."""
    return share or WHOLE * min(dict(requests).get("nvidia.com/gpu", 0), 1024)


def _by_end_and_row(ends: Floats, rows: Integers) -> Integers:
    """Return the positions in the order of ``ends``, and equal ends in the order of ``rows``.

    Two quick sorts take half as long as ``lexsort``.
    """
    by_end = np.argsort(ends)
    ordered = ends[by_end]
    number = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])]) if len(ends) else by_end
    found: Integers = by_end[np.argsort(number * (int(rows.max(initial=0)) + 1) + rows[by_end])]
    return found


def _ends(started: Floats, walltime: Floats, estimate: Floats, now: float) -> tuple[Floats, Integers]:
    """Return when each pod is expected to end, float64[pods], and what that follows from: int64[pods], positions in ``BASES``."""
    start = np.where(started > 0.0, np.minimum(started, now), now)
    has_limit, is_leaving = (walltime > UNKNOWN) & (walltime < NEVER), walltime == LEAVING
    has_estimate = (walltime == UNKNOWN) & (estimate > 0.0)
    expected = start + np.where(has_estimate, estimate, walltime)
    is_outrun = (has_limit | has_estimate) & (expected <= now)
    residual = np.maximum(np.where(is_outrun, now - expected, now - start), LEAST_RESIDUAL_SECONDS)
    ends = np.where((has_limit | has_estimate) & ~is_outrun, expected, now + residual)
    # Of a pod that is being deleted, ``started`` is the end of its grace period. A pod that is still there long after that may stay.
    late = now - np.where(started > 0.0, started, now)
    is_stuck = is_leaving & (late > _STUCK_SECONDS)
    leaves = np.where(late < -_SOON_SECONDS, now - late, now + LEAVING_SECONDS)
    ends = np.where(is_leaving, np.where(is_stuck, now + np.maximum(late, LEAST_RESIDUAL_SECONDS), leaves), ends)
    is_stated = (has_limit & ~is_outrun) | (is_leaving & ~is_stuck)
    is_old = (now - start >= LEAST_RESIDUAL_SECONDS) | has_estimate | is_stuck
    return np.where(walltime == NEVER, np.inf, ends), np.where(is_stated, 2, np.where(is_old, 1, 0)).astype(np.int64)


class _Codes(Generic[_Key]):
    """Small numbers for keys, which are used again once no pod uses their key."""

    def __init__(self) -> None:
        self._codes: dict[_Key, int] = {}
        self._keys: list[_Key | None] = []
        self._counts: list[int] = []
        self._vacant: list[int] = []

    def __len__(self) -> int:
        """Return a number that is larger than all codes in use."""
        return len(self._keys)

    def find(self, key: _Key) -> int | None:
        return self._codes.get(key)

    def items(self) -> list[tuple[_Key, int]]:
        return list(self._codes.items())

    def code(self, key: _Key) -> int:
        """Return the code of a key, and count one more use of it."""
        code = self._codes.get(key)
        if code is None:
            if self._vacant:
                code = self._vacant.pop()
                self._keys[code], self._counts[code] = key, 0
            else:
                code = len(self._keys)
                self._keys.append(key)
                self._counts.append(0)
            self._codes[key] = code
        self._counts[code] += 1
        return code

    def drop(self, code: int) -> None:
        """Count one use less."""
        self._counts[code] -= 1
        if not self._counts[code]:
            key = self._keys[code]
            if key is not None:
                del self._codes[key]
            self._keys[code] = None
            self._vacant.append(code)
