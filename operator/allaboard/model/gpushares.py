"""What a pod asks of GPUs beside a number of whole ones, in the words of HAMi, Volcano and KAI."""

from collections.abc import Mapping
from typing import NamedTuple

from allaboard.model.errors import MalformedError, shown
from allaboard.model.gpu_sharing import BY_COUNT, DRIVERS, GPU, WHOLE, Driver, Share
from allaboard.model.limits import CONTAINERS
from allaboard.model.raw_fields import items, mapping, sequence, text
from allaboard.model.requests import RawObject, Requests

FRACTION, MEMORY, NUMBER = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
"""Annotations by which pods ask KAI for parts of GPUs (kai-scheduler pkg/common/constants/constants.go)."""

_ALIYUN = "aliyun.com/gpu-mem"  # AliyunContainerService/gpushare-scheduler-extender pkg/utils/const.go

SEVERAL = "parts of more than one GPU are not supported"
"""Why a pod is refused that asks for them."""

_WORDS = frozenset(word for driver in DRIVERS.values() for word in driver.words)

ASKED = frozenset((*BY_COUNT, *_WORDS, _ALIYUN))
"""Resources by which pods ask for devices of which it must be said which."""


class Asks(NamedTuple):
    """What a pod asks of GPUs beside a number of whole ones. ``container`` is the place of the only one that asks, of all its init
    containers and containers, -1 where there are several or it is an init container. ``unsupported`` says what can't be had.
    """

    share: Share | None = None
    container: int = 0
    unsupported: tuple[str, ...] = ()


NO_ASKS = Asks()


def at_worst(requests: Requests) -> Asks:
    """What a pod is taken to ask for that doesn't say it in a way that makes sense: all of every device."""
    found = next(((driver, amount) for name, amount in requests if (driver := BY_COUNT.get(name))), None)
    return Asks(Share(found[0].name, found[1], WHOLE)) if found and found[0].count != GPU else NO_ASKS


def without_words(requests: Requests) -> Requests:
    """``requests`` without those that say how much of a device is asked for, which are no amounts of a node."""
    return tuple(pair for pair in requests if pair[0] not in _WORDS)


def asks_of(raw: RawObject, requests: Requests) -> Asks:
    """What a pod asks for, whose resources come to ``requests``. Raises ``MalformedError``."""
    annotations = mapping(mapping(raw, "metadata"), "annotations", "metadata.")
    by_kai = FRACTION in annotations or MEMORY in annotations or NUMBER in annotations
    amounts = dict([pair for pair in requests if pair[0] in ASKED])  # each event of a pod comes here
    if not (amounts or by_kai):
        return NO_ASKS
    fraction, memory, number = _kai(annotations) if by_kai else (0, 0, 0)
    if _ALIYUN in amounts:
        return Asks(unsupported=(f"{_ALIYUN} is not supported",))
    counted = [driver for driver in DRIVERS.values() if driver.count in amounts]
    for driver in DRIVERS.values():
        for word in driver.words:
            if word in amounts and driver not in counted:
                raise MalformedError(_path(word), f"says how much of a GPU, and {driver.count} doesn't say of how many")
    if not counted and not (fraction or memory):
        return NO_ASKS
    if not counted:
        text = f"annotation {FRACTION if fraction else MEMORY} alone is not supported, since only KAI's binder hands out such parts: "
        return Asks(unsupported=(f"{text}ask for {' or '.join(f'{count}: 1' for count in BY_COUNT)} as well",))
    if len(counted) > 1:
        return Asks(unsupported=("GPUs of several drivers are not supported",))
    driver, devices, container = counted[0], amounts[counted[0].count], _container(raw)
    if number and number != devices:
        raise MalformedError(f"metadata.annotations[{NUMBER}]", f"says {number}, and {driver.count} {devices}")
    share = _share(driver, amounts, devices, fraction, memory)
    if share is None:
        return Asks(container=container)
    unsupported = []
    if devices > 1:
        unsupported.append(SEVERAL)
    if container < 0:
        unsupported.append("parts of GPUs are supported in one container only, which is no init container")
    return Asks(share, container, tuple(unsupported))


def _share(driver: Driver, amounts: Mapping[str, int], devices: int, fraction: int, memory: int) -> Share | None:
    """``None`` of whole GPUs that are counted as such. MiB go before percent, as drivers have it; without either all of its memory."""
    stated = [word for word in driver.words if word in amounts]
    if stated and (fraction or memory):
        raise MalformedError(_path(stated[0]), f"says how much of a GPU, and so does the annotation {FRACTION if fraction else MEMORY}")
    if not (stated or fraction or memory) and driver.count == GPU:
        return None
    for word in (driver.percentage, driver.cores):
        if amounts.get(word, 0) > 100:
            raise MalformedError(_path(word), f"{amounts[word]} is more than 100 percent")
    memory = memory or amounts.get(driver.memory, 0)
    if memory >= 2**31:
        raise MalformedError(_path(driver.memory), f"{memory} MiB are more than any GPU has")
    thousandths = fraction or (0 if memory else amounts.get(driver.percentage, 100) * (WHOLE // 100))
    return Share(driver.name, devices, thousandths, memory, amounts.get(driver.cores, 0))


def _path(resource: str) -> str:
    return f"spec.containers.resources.requests[{resource}]"


def _kai(annotations: Mapping[str, object]) -> tuple[int, int, int]:
    """Thousandths, MiB, and how many devices; 0 of what isn't said."""
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
        raise MalformedError(f"{path}[{NUMBER}]", "doesn't say how much of a GPU")
    return found, int(memory or 0), int(number or 0)


def _thousandths(fraction: str) -> int:
    """Of ``0.5``, rounded up; 0 where it is none between 0 and 1."""
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
    asking = [place for place, each in enumerate([*first, *regular]) if ASKED & mapping(mapping(each, "resources"), "requests").keys()]
    return asking[0] if len(asking) == 1 and asking[0] >= len(first) else -1
