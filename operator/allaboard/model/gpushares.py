"""Reads which parts of GPUs a pod asks for, by the resources and annotations of HAMi, Volcano and KAI."""

from collections.abc import Mapping
from typing import NamedTuple

from allaboard.model.errors import MalformedError, shown
from allaboard.model.gpu_sharing import BY_COUNT, DRIVERS, GPU, WHOLE, Driver, Share
from allaboard.model.limits import CONTAINERS
from allaboard.model.raw_fields import items, mapping, sequence, text
from allaboard.model.requests import RawObject, Requests

FRACTION, MEMORY, NUMBER = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
KAI_ANNOTATIONS = frozenset({FRACTION, MEMORY, NUMBER})
"""Annotations by which pods ask KAI for parts of GPUs (kai-scheduler pkg/common/constants/constants.go)."""

_ALIYUN = "aliyun.com/gpu-mem"  # AliyunContainerService/gpushare-scheduler-extender pkg/utils/const.go

SEVERAL = "parts of more than one GPU are not supported"
"""The reason why a pod that asks for parts of several GPUs is refused."""

_PART_RESOURCES = frozenset(resource for driver in DRIVERS.values() for resource in driver.part_resources)

DEVICE_RESOURCES = frozenset((*BY_COUNT, *_PART_RESOURCES, _ALIYUN))
"""Resources by which pods request GPUs, for which particular devices must be chosen for each pod."""


class ShareRequest(NamedTuple):
    """The request of a pod for GPUs or parts of GPUs, by the resources and annotations of drivers.

    ``share`` is the requested part; ``None`` for whole GPUs. ``container`` is the position of the only container that requests devices, in
    the list of init containers and containers; -1 if several containers request devices, or an init container does. ``unsupported`` says
    what isn't supported.
    """

    share: Share | None = None
    container: int = 0
    unsupported: tuple[str, ...] = ()


NO_SHARE = ShareRequest()


def largest_share_of(requests: Requests) -> ShareRequest:
    """Return the request by which a pod with a malformed request is charged: all of every device."""
    found = next(((driver, amount) for name, amount in requests if (driver := BY_COUNT.get(name))), None)
    return ShareRequest(Share(found[0].name, found[1], WHOLE)) if found and found[0].count != GPU else NO_SHARE


def without_part_resources(requests: Requests) -> Requests:
    """Return ``requests`` without the resources that state the part of a device, since no node offers amounts of these resources."""
    return tuple(pair for pair in requests if pair[0] not in _PART_RESOURCES)


def share_request_of(raw: RawObject, requests: Requests) -> ShareRequest:
    """Return the request of a pod for GPUs or parts of GPUs; ``requests`` are the pod's summed requests. Raises ``MalformedError``."""
    annotations = mapping(mapping(raw, "metadata"), "annotations", "metadata.")
    by_kai = not KAI_ANNOTATIONS.isdisjoint(annotations)
    amounts = dict([pair for pair in requests if pair[0] in DEVICE_RESOURCES])  # a list is fast: this runs for each event of a pod
    if not (amounts or by_kai):
        return NO_SHARE
    fraction, memory, number = _kai(annotations) if by_kai else (0, 0, 0)
    if _ALIYUN in amounts:
        return ShareRequest(unsupported=(f"{_ALIYUN} is not supported",))
    counted = [driver for driver in DRIVERS.values() if driver.count in amounts]
    for driver in DRIVERS.values():
        for resource in driver.part_resources:
            if resource in amounts and driver not in counted:
                raise MalformedError(_path(resource), f"says how much of a GPU, but {driver.count} doesn't say of how many GPUs")
    if not counted and not (fraction or memory):
        return NO_SHARE
    if not counted:
        text = f"annotation {FRACTION if fraction else MEMORY} alone is not supported, since only KAI's binder hands out such parts: "
        return ShareRequest(unsupported=(f"{text}ask for {' or '.join(f'{count}: 1' for count in BY_COUNT)} as well",))
    if len(counted) > 1:
        return ShareRequest(unsupported=("GPUs of several drivers are not supported",))
    driver, devices, container = counted[0], amounts[counted[0].count], _container(raw)
    if number and number != devices:
        raise MalformedError(f"metadata.annotations[{NUMBER}]", f"is {number}, but {driver.count} is {devices}")
    share = _share(driver, amounts, devices, fraction, memory)
    if share is None:
        return ShareRequest(container=container)
    unsupported = []
    if devices > 1:
        unsupported.append(SEVERAL)
    if container < 0:
        unsupported.append("parts of GPUs are supported in one container only, which must not be an init container")
    return ShareRequest(share, container, tuple(unsupported))


def _share(driver: Driver, amounts: Mapping[str, int], devices: int, fraction: int, memory: int) -> Share | None:
    """Return the requested part of each device; ``None`` for whole GPUs that are counted as whole GPUs.

    Memory in MiB counts before a percentage, as in the drivers. If neither is stated, the part is all of the device's memory.
    """
    stated = [resource for resource in driver.part_resources if resource in amounts]
    if stated and (fraction or memory):
        raise MalformedError(_path(stated[0]), f"says how much of a GPU, and so does the annotation {FRACTION if fraction else MEMORY}")
    if not (stated or fraction or memory) and driver.count == GPU:
        return None
    for resource in (driver.percentage, driver.cores):
        if amounts.get(resource, 0) > 100:
            raise MalformedError(_path(resource), f"{amounts[resource]} is more than 100 percent")
    memory = memory or amounts.get(driver.memory, 0)
    if memory >= 2**31:
        raise MalformedError(_path(driver.memory), f"{memory} MiB are more than any GPU has")
    thousandths = fraction or (0 if memory else amounts.get(driver.percentage, 100) * (WHOLE // 100))
    return Share(driver.name, devices, thousandths, memory, amounts.get(driver.cores, 0))


def _path(resource: str) -> str:
    return f"spec.containers.resources.requests[{resource}]"


def _kai(annotations: Mapping[str, object]) -> tuple[int, int, int]:
    """Return the thousandths, MiB and number of devices that KAI's annotations ask for; 0 for each that isn't stated."""
    path = "metadata.annotations"
    fraction, memory, number = (text(annotations, name, path=f"{path}.") for name in (FRACTION, MEMORY, NUMBER))
    found = _thousandths(fraction) if fraction else 0
    if fraction and not found:
        raise MalformedError(f"{path}[{FRACTION}]", f"{shown(fraction)} is not more than 0 and less than 1, such as 0.5")
    for name, value in ((MEMORY, memory), (NUMBER, number)):
        if value and not (value.isascii() and value.isdecimal() and len(value) <= 9 and int(value)):
            raise MalformedError(f"{path}[{name}]", f"{shown(value)} is not a whole number of at least 1")
    if fraction and memory:
        raise MalformedError(f"{path}[{MEMORY}]", f"says how much of a GPU, and so does {FRACTION}")
    if not (fraction or memory or number):
        return 0, 0, 0  # each is null or empty
    if not (fraction or memory):
        raise MalformedError(f"{path}[{NUMBER}]", "says of how many GPUs, but nothing says how much of each")
    return found, int(memory or 0), int(number or 0)


def _thousandths(fraction: str) -> int:
    """Return the thousandths of a fraction such as ``0.5``, rounded up; 0 if it isn't between 0 and 1."""
    whole, _, digits = fraction.partition(".")
    if not (fraction.isascii() and whole in ("", "0") and digits.isdecimal() and len(digits) <= 18):
        return 0
    scale: int = 10 ** len(digits)
    return -(-int(digits) * WHOLE // scale)


def _container(raw: RawObject) -> int:
    spec = mapping(raw, "spec")
    if not spec.get("initContainers") and len(sequence(spec, "containers", "spec.")) == 1:
        return 0
    first, regular = ([each for _, each in items(spec, key, "spec.", CONTAINERS)] for key in ("initContainers", "containers"))
    places = [
        place for place, each in enumerate([*first, *regular]) if DEVICE_RESOURCES & mapping(mapping(each, "resources"), "requests").keys()
    ]
    return places[0] if len(places) == 1 and places[0] >= len(first) else -1
