"""GPUs that several pods share, and the drivers that hand out parts of them: one table, from what their own sources say.

A driver lists the devices of a node in an annotation of the Node; which devices a pod is to have is written onto the pod by whoever binds
it, and read by the driver's device plugin when the kubelet asks it for devices. Devices are counted in thousandths; what a driver counts in
MiB, percent and pods is made thousandths of a device, never too few, so that no device is given away twice. Of a pod of ours nothing is
trusted but which device it has: how much is what it asks for. Of another scheduler's the annotation counts where it says more than that,
and where a whole GPU is asked for, of which its driver may have been told less.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from itertools import islice
from typing import NamedTuple

import orjson

from allaboard.model.gpus import NVIDIA
from allaboard.model.limits import DEVICES, REGISTRATION_CHARACTERS

GPU = NVIDIA
"""The GPUs that can be shared, and whose fragmentation is measured."""

WHOLE = 1000
"""Free thousandths of a device that nobody uses."""

SHARES = f"parts of {GPU}"
"""In thousandths, what is free of all devices of a node together, as a resource."""


class Device(NamedTuple):
    """One GPU of a node: ``memory`` in MiB, and at most ``split`` pods. Nobody is seated on one that isn't usable."""

    uuid: str
    memory: int
    split: int
    is_usable: bool


class Taken(NamedTuple):
    """What a pod's annotation says that it has of a device: MiB, and percent of its time, and whose annotation that is.

    Of a seat that we have promised none of these is said, for we know whose device it is.
    """

    uuid: str
    memory: int = 0
    cores: int = 0
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Shared:
    """The GPUs of a node that ``driver`` hands out, in its own order. Without devices its list made no sense, or it has gone."""

    driver: str
    devices: tuple[Device, ...] = ()

    @property
    def memory(self) -> int:
        """MiB of the smallest device that is usable; 0 without one."""
        return min((device.memory for device in self.devices if device.is_usable), default=0)

    @property
    def least(self) -> int:
        """Thousandths of a device that any pod takes, so that there are never more pods on it than it may be split among."""
        return max((-(-WHOLE // device.split) for device in self.devices if device.is_usable), default=WHOLE)


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """What a pod asks of each of ``devices`` GPUs, the largest counting: ``thousandths``, MiB of ``memory``, and percent of its time."""

    driver: str
    devices: int = 1
    thousandths: int = 0
    memory: int = 0
    cores: int = 0

    def of(self, memory: int, least: int) -> int:
        """Thousandths of a device that has so many MiB, ``least`` at least; more than there are of one that is too small."""
        by_memory = -(-WHOLE * self.memory // memory) if memory > 0 else WHOLE + 1
        return max(self.nominal, by_memory, least)

    @property
    def nominal(self) -> int:
        """Thousandths of any device that it takes at least."""
        return max(self.thousandths, self.cores * (WHOLE // 100), 1)


Listed = Callable[[str], Iterator[Device]]


@dataclass(frozen=True, slots=True)
class Driver:
    """How one driver is recognised, asked and told. ``memory``, ``percentage``, ``cores`` are resources that no node needs to offer.

    ``register`` is the annotation of a Node that ``listed`` reads, and ``handshake`` the one that begins with ``Deleted`` once the driver
    has left. ``holds`` is the annotation that says which devices a pod has. ``written`` are those that a bind writes, of which ``lists``
    hold the devices; a place for each container goes before ``has_places``.
    """

    name: str
    register: str
    handshake: str
    listed: Listed
    count: str
    memory: str
    percentage: str
    cores: str
    holds: str
    lists: tuple[str, ...]
    node: str
    times: tuple[str, ...]
    phase: str
    has_places: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The resources that say how much of a device is asked for."""
        return self.memory, self.percentage, self.cores


def _in_columns(health: int, mode: int, numbers: tuple[int, ...]) -> Listed:
    """Reads ``id,split,MiB,…:``, with so many fields each, of which some say health and mode; what isn't so raises ``ValueError``."""

    def listed(text: str) -> Iterator[Device]:
        for part in filter(None, text.split(":")):
            fields = part.split(",")
            if len(fields) not in numbers:
                raise ValueError("fields")
            is_mig = len(fields) > mode and fields[mode] == "mig"
            yield _device(fields[0], int(fields[2]), int(fields[1]), fields[health].lower() == "true" and not is_mig)

    return listed


def _hami(text: str) -> Iterator[Device]:
    """JSON by its newer releases, columns by its older ones (pkg/device/devices.go ``UnMarshalNodeDevices``, ``DecodeNodeDevices``)."""
    if not text.lstrip().startswith("["):
        yield from _HAMI_COLUMNS(text)
        return
    for entry in orjson.loads(text):
        is_usable = entry.get("health") is True and entry.get("mode") != "mig"  # what is false is left out
        yield _device(entry["id"], entry.get("devmem", 0), entry.get("count", 0), is_usable)


def _device(uuid: object, memory: object, split: object, is_usable: bool) -> Device:
    # It is written onto pods, which can't be done with a lone surrogate: encoding that raises.
    if not (isinstance(uuid, str) and 0 < len(uuid.encode()) <= 96 and not set(uuid) & set(",:;")):
        raise ValueError("id")
    if not (type(memory) is int and type(split) is int and 0 <= memory < 2**31 and 0 <= split < 2**31):
        raise ValueError("number")
    return Device(uuid, memory, split, is_usable and memory > 0 and split > 0)


_HAMI_COLUMNS = _in_columns(health=6, mode=8, numbers=(7, 9))

HAMI = Driver(
    # Project-HAMi/HAMi pkg/device/nvidia/device.go, pkg/util/types.go; resources as its chart names them by default
    name="HAMi",
    register="hami.io/node-nvidia-register",
    handshake="hami.io/node-handshake",
    listed=_hami,
    count=GPU,
    memory="nvidia.com/gpumem",
    percentage="nvidia.com/gpumem-percentage",
    cores="nvidia.com/gpucores",
    holds="hami.io/vgpu-devices-allocated",
    lists=("hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"),
    node="hami.io/vgpu-node",
    times=("hami.io/vgpu-time", "hami.io/bind-time"),
    phase="hami.io/bind-phase",
    has_places=True,  # pkg/device/devices.go ``Resourcereqs``: init containers first
)

VOLCANO = Driver(
    # volcano-sh/volcano pkg/scheduler/api/devices/nvidia/vgpu/{type,utils}.go, read by
    # Project-HAMi/volcano-vgpu-device-plugin pkg/plugin/vgpu/util/{types,util}.go
    name="Volcano",
    register="volcano.sh/node-vgpu-register",
    handshake="volcano.sh/node-vgpu-handshake",
    listed=_in_columns(health=4, mode=5, numbers=(5, 6)),
    count="volcano.sh/vgpu-number",
    memory="volcano.sh/vgpu-memory",
    percentage="volcano.sh/vgpu-memory-percentage",
    cores="volcano.sh/vgpu-cores",
    holds="volcano.sh/vgpu-ids-new",
    lists=("volcano.sh/vgpu-ids-new", "volcano.sh/devices-to-allocate"),
    node="volcano.sh/vgpu-node",
    times=("volcano.sh/vgpu-time", "volcano.sh/bind-time"),
    phase="volcano.sh/bind-phase",
    has_places=False,  # utils.go ``resourcereqs``: containers that ask for nothing have no place
)

DRIVERS: Mapping[str, Driver] = {driver.name: driver for driver in (HAMI, VOLCANO)}
"""By name; of a node with several the first counts."""

BY_COUNT: Mapping[str, Driver] = {driver.count: driver for driver in DRIVERS.values()}
"""By the resource that says of how many devices a pod has something."""


def shared_by(annotations: Mapping[str, object]) -> Shared | None:
    """The GPUs that a driver hands out on the node with these annotations; ``None`` where none does."""
    for driver in DRIVERS.values():
        listing = annotations.get(driver.register)
        if listing is None:
            continue
        try:
            if str(annotations.get(driver.handshake)).startswith("Deleted") or len(str(listing)) > REGISTRATION_CHARACTERS.most:
                return Shared(driver.name)
            devices = {device.uuid: device for device in driver.listed(str(listing))}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return Shared(driver.name)
        return Shared(driver.name, tuple(devices.values()) if len(devices) <= DEVICES.most else ())
    return None


def taken_by(annotations: Mapping[str, object]) -> tuple[Taken, ...]:
    """The devices that a bound pod has, as the annotations of each driver say; none of one whose annotation makes no sense.

    Anybody may have written those of a driver that isn't the node's: ``charges_of`` tells them apart.
    """
    taken: list[Taken] = []
    for driver in DRIVERS.values():
        holds = annotations.get(driver.holds)
        if isinstance(holds, str) and len(holds) <= REGISTRATION_CHARACTERS.most:
            try:
                parts = [part.split(",") for part in holds.replace(";", ":").split(":") if part]
                taken += [_taken(driver.name, part) for part in parts][: DEVICES.most]
            except (ValueError, IndexError):
                continue
    return tuple(taken)


def _taken(driver: str, fields: Sequence[str]) -> Taken:
    memory, cores = int(fields[2]), int(fields[3])
    if memory < 0 or cores < 0:
        raise ValueError("number")
    return Taken(fields[0].partition("[")[0], memory, cores, driver)  # what follows names a part that MIG has made of it


class Unnamed(NamedTuple):
    """The devices of a pod that nothing names: ``number`` of them, none in the ``named`` places, and ``thousandths`` of each.

    These are counted as on the smallest device, so that they are the same wherever the pod is.
    """

    thousandths: int
    number: int
    named: frozenset[int] = frozenset()

    @property
    def total(self) -> int:
        """Thousandths of all its devices."""
        return self.thousandths * self.number


class Charges(NamedTuple):
    """The devices of a node that a pod takes: (place, thousandths) of each device that is known, and the devices that aren't."""

    named: Sequence[tuple[int, int]] = ()
    unnamed: Unnamed | None = None


def charges_of(shared: Shared, share: Share | None, whole: int, taken: Sequence[Taken]) -> Charges:
    """Return what a pod takes of a node's devices that asks for a ``share``, or for ``whole`` GPUs.

    The pod has the devices ``taken``: those that were promised, or those that the annotation of the node's own driver names. No driver
    goes by the annotation of another. A device that isn't named, or isn't one of the node's, is charged by ``charge_unnamed``.
    """
    driver = DRIVERS[shared.driver]
    number = (share.devices if share.driver == driver.name else 0) if share else whole if driver.count == GPU else 0
    if not number:
        return Charges()
    places = {device.uuid: place for place, device in enumerate(shared.devices)}
    own = (each for each in taken if each.driver in ("", driver.name))
    named = dict(islice(((places[each.uuid], each) for each in own if each.uuid in places), number))
    found = tuple((place, _charge(shared, shared.devices[place].memory, share, named[place])) for place in sorted(named))
    if len(named) == number:
        return Charges(found)
    return Charges(found, Unnamed(_charge(shared, shared.memory, share), number - len(named), frozenset(named)))


def charge_unnamed(shared: Shared, free: Sequence[int], pods: Mapping[Unnamed, int]) -> list[int]:
    """Return ``free``, in thousandths by device, once each pod of ``pods`` is charged for what it asks for, once, where that costs most.

    That is the device of which most is free: each pod breaks another whole GPU, as long as there is one. So no more whole GPUs are left
    than in the worst case. What no single device has is charged to several, so that no more is left in sum than is free. Which device it
    really is isn't known: a device may be given away twice, by what the unnamed pods on it ask for.
    """
    left = list(free)
    usable = _usable(shared)
    for pod in sorted(pods, key=lambda pod: (-pod.thousandths, -pod.number, sorted(pod.named))):
        places = [place for place in usable if place not in pod.named]
        for _ in range(pods[pod]):
            if max((left[place] for place in usable), default=0) <= 0:
                return left  # there is nothing left to charge, however many such pods there are
            rest = pod.total
            for place in (*nlargest(pod.number, places, key=left.__getitem__), *sorted(usable, key=left.__getitem__, reverse=True)):
                part = max(0, min(rest, pod.thousandths, left[place]))
                left[place] -= part
                rest -= part
    return left


def given_back(shared: Shared, free: Sequence[int], charges: Charges) -> list[int]:
    """Return ``free``, in thousandths by device, without the ``charges`` of a pod; unnamed ones come free where that helps least."""
    left = list(free)
    for place, thousandths in charges.named:
        left[place] += thousandths
    if pod := charges.unnamed:
        places = (place for place in _usable(shared) if place not in pod.named)
        for place in nsmallest(pod.number, places, key=left.__getitem__):
            left[place] = min(WHOLE, left[place] + pod.thousandths)
    return left


def _usable(shared: Shared) -> Sequence[int]:
    return [place for place, device in enumerate(shared.devices) if device.is_usable]


def _charge(shared: Shared, memory: int, share: Share | None, has: Taken | None = None) -> int:
    """Thousandths of a device of so many MiB that a pod is charged for, which ``has`` it as its annotation says."""
    asked = share.of(memory, shared.least) if share else 0
    said = Share(shared.driver, memory=has.memory, cores=has.cores).of(memory, shared.least) if has and (has.memory or has.cores) else 0
    return min(max(asked, said) or WHOLE, WHOLE)


def annotations_of(shared: Shared, share: Share | None, container: int, uuids: Sequence[str], node_name: str, now: float) -> dict[str, str]:
    """What is written onto a pod with its seat, so that the driver gives it the devices ``uuids``; ``now``: seconds since the epoch."""
    driver = DRIVERS[shared.driver]
    memory = {device.uuid: device.memory for device in shared.devices}
    parts = []
    for uuid in uuids:
        has = memory.get(uuid, 0)
        mebibytes = has if share is None else share.memory or has * share.thousandths // WHOLE
        parts.append(f"{uuid},NVIDIA,{mebibytes},{100 if share is None else share.cores}:")
    listing = "".join(parts)
    listing = f"{';' * container}{listing};" if driver.has_places else listing
    seconds = str(int(now))
    return {
        driver.node: node_name,
        **dict.fromkeys(driver.times, seconds),
        driver.phase: "allocating",
        **dict.fromkeys(driver.lists, listing),
    }
