"""GPUs that several pods share, and one table of the drivers that hand out parts of GPUs, written from the sources of the drivers.

A driver lists the devices of a node in an annotation of the Node. The scheduler that binds a pod writes the pod's devices into annotations
of the pod. The driver's device plugin reads these annotations when the kubelet asks for devices. Devices are counted in thousandths. A
driver's MiB, percent and number of pods are converted to thousandths of a device and rounded up, so that no device is given away twice.

On a pod of this scheduler the annotation only says which device the pod has; how much of the device it takes follows from its requests. On
a pod of another scheduler the annotation counts if it states more than the requests. If such a pod requests a whole GPU, the annotation
counts even if it states less, since the driver may have given the pod less.
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
"""The resource whose GPUs can be shared, and whose fragmentation is measured."""

WHOLE = 1000
"""Free thousandths of a device that no pod uses."""

SHARES = f"parts of {GPU}"
"""Name of the resource that is the free thousandths of all devices of a node together."""


class Device(NamedTuple):
    """One GPU of a node: its ``memory`` in MiB, and ``split``, the number of pods that may share it. Unusable GPUs get no pods."""

    uuid: str
    memory: int
    split: int
    is_usable: bool


class Taken(NamedTuple):
    """A device that a pod has, how much of it the pod has, and the driver whose annotation says so.

    ``memory`` is in MiB, ``cores`` in percent of compute time. These and the driver are empty for a device that this scheduler assumed for
    the pod: how much such a pod takes follows from the pod and its node.
    """

    uuid: str
    memory: int = 0
    cores: int = 0
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Shared:
    """The GPUs of a node that ``driver`` hands out, in the driver's order.

    ``devices`` is empty if the driver's list is malformed, or if the driver has left the node.
    """

    driver: str
    devices: tuple[Device, ...] = ()

    @property
    def memory(self) -> int:
        """MiB of the smallest usable device; 0 without usable devices."""
        return min((device.memory for device in self.devices if device.is_usable), default=0)

    @property
    def least(self) -> int:
        """The least thousandths that a pod takes of any device: so many that no device gets more pods than may share it."""
        return max((-(-WHOLE // device.split) for device in self.devices if device.is_usable), default=WHOLE)


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """The part of a GPU that a pod asks for, of each of ``devices`` GPUs.

    The part is the largest of ``thousandths``, ``memory`` in MiB, and ``cores`` in percent of compute time.
    """

    driver: str
    devices: int = 1
    thousandths: int = 0
    memory: int = 0
    cores: int = 0

    def of(self, memory: int, least: int) -> int:
        """Return the part in thousandths of a device with ``memory`` MiB, at least ``least``; more than 1000 if the device is too small."""
        by_memory = -(-WHOLE * self.memory // memory) if memory > 0 else WHOLE + 1
        return max(self.nominal, by_memory, least)

    @property
    def nominal(self) -> int:
        """The least thousandths that the part takes of any device. ``memory`` isn't counted, since its part differs between devices."""
        return max(self.thousandths, self.cores * (WHOLE // 100), 1)


Listed = Callable[[str], Iterator[Device]]


@dataclass(frozen=True, slots=True)
class Driver:
    """The resources and annotations of one driver.

    ``register`` is the annotation in which a Node lists its devices, and ``listed`` parses this annotation. ``handshake`` is the annotation
    of a Node whose value begins with ``Deleted`` once the driver has left. ``count`` is the resource for the number of devices. ``memory``,
    ``percentage`` and ``cores`` are resources for the part of each device, which nodes need not offer. ``holds`` is the annotation in which
    a pod names its devices. A bind writes the annotations ``lists`` (the devices), ``node``, ``times`` and ``phase``. With ``has_places``
    the lists have an entry for each container.
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
    def part_resources(self) -> tuple[str, ...]:
        """The resources that state the part of each device."""
        return self.memory, self.percentage, self.cores


def _in_columns(health: int, mode: int, numbers: tuple[int, ...]) -> Listed:
    """Return a parser of lists of devices. An entry of such a list is ``id,split,MiB,…:``, where ``split`` pods may share the device.

    ``health`` and ``mode``: positions of the fields with the device's health and mode. ``numbers``: how many fields an entry may have. The
    parser raises ``ValueError`` for malformed text.
    """

    def listed(text: str) -> Iterator[Device]:
        for part in filter(None, text.split(":")):
            fields = part.split(",")
            if len(fields) not in numbers:
                raise ValueError("fields")
            is_mig = len(fields) > mode and fields[mode] == "mig"
            yield _device(fields[0], int(fields[2]), int(fields[1]), fields[health].lower() == "true" and not is_mig)

    return listed


def _hami(text: str) -> Iterator[Device]:
    """Parse HAMi's list of devices: JSON of newer releases, or entries with separated fields of older releases.

    (pkg/device/devices.go ``UnMarshalNodeDevices``, ``DecodeNodeDevices``)
    """
    if not text.lstrip().startswith("["):
        yield from _HAMI_COLUMNS(text)
        return
    for entry in orjson.loads(text):
        is_usable = entry.get("health") is True and entry.get("mode") != "mig"  # HAMi leaves out fields that are false
        yield _device(entry["id"], entry.get("devmem", 0), entry.get("count", 0), is_usable)


def _device(uuid: object, memory: object, split: object, is_usable: bool) -> Device:
    # The id is written onto pods. A lone surrogate can't be written, and ``encode`` raises for it.
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
    has_places=False,  # utils.go ``resourcereqs``: containers that request no device have no entry
)

DRIVERS: Mapping[str, Driver] = {driver.name: driver for driver in (HAMI, VOLCANO)}
"""Drivers by name. If a node has several drivers, the first in this order counts."""

BY_COUNT: Mapping[str, Driver] = {driver.count: driver for driver in DRIVERS.values()}
"""Drivers, by the name of the resource by which pods request a number of the driver's devices."""


def shared_by(annotations: Mapping[str, object]) -> Shared | None:
    """Return the GPUs that a driver hands out on the node with these annotations; ``None`` without a driver."""
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
    """Return the devices that a bound pod's annotations name, for any driver. A malformed annotation names no devices.

    A tenant may forge the annotation of a driver that isn't the node's driver; ``charges_of`` ignores such an annotation.
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
    return Taken(fields[0].partition("[")[0], memory, cores, driver)  # the bracket names a MIG partition of the device


class Unnamed(NamedTuple):
    """The unknown devices of a pod: ``number`` devices, of each of which the pod takes ``thousandths``.

    ``named`` are positions of the pod's known devices. ``thousandths`` is what the pod would take of the node's smallest device, so it
    doesn't depend on which devices the pod has.
    """

    thousandths: int
    number: int
    named: frozenset[int] = frozenset()

    @property
    def total(self) -> int:
        """Thousandths that the pod takes of all its unknown devices together."""
        return self.thousandths * self.number


class Charges(NamedTuple):
    """The devices of a node that a pod takes: (position, thousandths) of each known device, and the unknown devices."""

    named: Sequence[tuple[int, int]] = ()
    unnamed: Unnamed | None = None


def charges_of(shared: Shared, share: Share | None, whole: int, taken: Sequence[Taken]) -> Charges:
    """Return the devices of a node that a pod takes, if the pod asks for a ``share``, or for ``whole`` GPUs.

    ``taken`` are the devices that were assumed for the pod, or that its annotations name. Only annotations of the node's own driver count.
    Devices that aren't named, or aren't the node's, are returned as unknown; ``charge_unnamed`` charges unknown devices.
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
    """Return ``free``, in thousandths by device, after pods with unknown devices are charged.

    ``pods``: the number of pods by what they take of unknown devices.

    A pod is charged on the device with the most free, since that costs other pods most: each pod breaks another whole GPU, as long as there
    is one. So no more whole GPUs are left than in the worst case. If no single device has enough, several devices are charged, so that the
    sum is right. Since the real device isn't known, a device may be given away twice, by at most what the pods with unknown devices ask
    for.
    """
    left = list(free)
    usable = _usable(shared)
    for pod in sorted(pods, key=lambda pod: (-pod.thousandths, -pod.number, sorted(pod.named))):
        places = [place for place in usable if place not in pod.named]
        for _ in range(pods[pod]):
            if max((left[place] for place in usable), default=0) <= 0:
                return left  # nothing is left to charge, however many pods remain
            rest = pod.total
            for place in (*nlargest(pod.number, places, key=left.__getitem__), *sorted(usable, key=left.__getitem__, reverse=True)):
                part = max(0, min(rest, pod.thousandths, left[place]))
                left[place] -= part
                rest -= part
    return left


def given_back(shared: Shared, free: Sequence[int], charges: Charges) -> list[int]:
    """Return ``free``, in thousandths by device, after the pod with these ``charges`` is gone.

    Unknown devices are taken to be the devices with the least free, since freeing these helps other pods least.
    """
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
    """Return the thousandths that a pod is charged for a device with ``memory`` MiB.

    ``has``: what the pod's annotation says of the device.
    """
    asked = share.of(memory, shared.least) if share else 0
    said = Share(shared.driver, memory=has.memory, cores=has.cores).of(memory, shared.least) if has and (has.memory or has.cores) else 0
    return min(max(asked, said) or WHOLE, WHOLE)


def annotations_of(shared: Shared, share: Share | None, container: int, uuids: Sequence[str], node_name: str, now: float) -> dict[str, str]:
    """Return the annotations of a bind by which the driver gives the pod the devices ``uuids``.

    ``now``: seconds since the epoch.
    """
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
