"""What a pod asks of a node's GPUs by labels and annotations, beside what its containers request.

Genius's labels are the short way, annotations of ours the long one: they aren't bound to what the value of a label may be, take quantities,
and win. What can't be understood makes the pod malformed: one that asks for two GPUs must never run as one that asked for none.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from math import ceil

from allaboard.model.constraints import GpuRequest, SchedulingSpec
from allaboard.model.errors import MalformedError, shown
from allaboard.model.gpunames import expression
from allaboard.model.gpus import NVIDIA, is_gpu
from allaboard.model.gpushares import SEVERAL
from allaboard.model.limits import CHARACTERS
from allaboard.model.options import OPTION_PREFIX
from allaboard.model.quantities import parse_quantity
from allaboard.model.requests import Requests, as_requests

LABEL_PREFIX = "genius/"
NAMESPACE_PRIORITY_LABEL = f"{LABEL_PREFIX}priority"
GPU_OPTIONS = ("gpu-number", "gpu-memory-each", "gpu-memory-total", "gpu-model")
"""Names of labels after ``LABEL_PREFIX``, and of annotations after ``OPTION_PREFIX``."""

_LABELS = {LABEL_PREFIX + name: name for name in (*GPU_OPTIONS, "priority")}
_SIMILAR = 0.75
"""From 0 to 1, how like one of ``_LABELS`` a name is that was meant to be it (``difflib``)."""
_MOST_UNKNOWN = 8
"""Names under ``LABEL_PREFIX`` that are compared: each takes up to 0.1 ms."""
_MEBIBYTE = 2**20
_MOST_GPUS = 1_000_000
_MOST_MEBIBYTES = 2**31 - 1
_MOST_NAMESPACE_PRIORITY = 2**31 - 1


def gpu_request_in(labels: Mapping[str, object], annotations: Mapping[str, object]) -> tuple[GpuRequest | None, list[MalformedError]]:
    """What a pod's ``labels`` and ``annotations`` ask for, ``None`` if nothing, and what is wrong with those that can't be understood.

    Each is read by itself, for a bound pod is charged by the number whatever is written beside it: where the annotation can't be
    understood the label counts. What isn't text is left to whoever reads the labels as a whole.
    """
    asked, problems = GpuRequest(), list[MalformedError]()

    def read(reader: _Reader, value: object, where: str, *, is_annotation: bool) -> bool:
        nonlocal asked
        try:
            if not isinstance(value, str):
                return False
            asked = reader(asked, value, where, is_annotation)
        except MalformedError as error:
            problems.append(error)
            return False
        return True

    for name, reader in _READERS.items():
        option, label = OPTION_PREFIX + name, LABEL_PREFIX + name
        if not read(reader, annotations.get(option), f"metadata.annotations[{option}]", is_annotation=True):
            read(reader, labels.get(label), f"metadata.labels[{label}]", is_annotation=False)
    try:
        if isinstance(stated := labels.get(NAMESPACE_PRIORITY_LABEL), str):
            _whole(stated, f"metadata.labels[{NAMESPACE_PRIORITY_LABEL}]", _MOST_NAMESPACE_PRIORITY)
    except MalformedError as error:
        problems.append(error)
    problems += _misspelt(labels, annotations)
    return (asked if asked != GpuRequest() else None), problems


def _misspelt(labels: Mapping[str, object], annotations: Mapping[str, object]) -> list[MalformedError]:
    """Return an error for each label that was meant to be one of Genius's, and each annotation that is called like one.

    Others may have labels under the prefix: only a name that begins as theirs do, or is much like one of theirs, was meant to be it.
    """
    unknown = [name for name in labels if isinstance(name, str) and name.startswith(LABEL_PREFIX) and name not in _LABELS]
    problems = []
    for name in sorted(unknown[:_MOST_UNKNOWN]):
        written = re.sub("[_.]", "-", name.removeprefix(LABEL_PREFIX).lower())[:63]
        meant = get_close_matches(written, _LABELS.values(), 1, _SIMILAR)
        if meant or written.startswith("gpu"):
            known = f"did you mean {LABEL_PREFIX}{meant[0]}?" if meant else f"known are {', '.join(_LABELS)}"
            problems.append(MalformedError(f"metadata.labels[{name[: CHARACTERS.most]}]", f"no such label; {known}"))
    for name in sorted(name for name in _LABELS.keys() & annotations.keys() if annotations[name] is not None):
        option = _LABELS[name]
        instead = f"; the annotation is {OPTION_PREFIX}{option}" if option in GPU_OPTIONS else ""
        problems.append(MalformedError(f"metadata.annotations[{name}]", f"is read as a label only{instead}"))
    return problems


def namespace_priority_of(label: str | None) -> int:
    """What the value of the label ``genius/priority`` says, 0 without one; of one that can't be understood the pod is held in any case."""
    return int(label) if label and re.fullmatch(r"[0-9]{1,10}", label) else 0


def with_gpus(spec: SchedulingSpec, asked: GpuRequest | None, *, is_charged: bool = True) -> SchedulingSpec:
    """``spec`` of a pod that asks for that: charged for as many GPUs as it says, if that is more than it requests and ``is_charged``.

    Of the GPUs that it requests, or else NVIDIA's. No container of its is then the one that asks for all of them, so that no driver could
    be told for which they are. Beside a part of a GPU nothing is added, and more than one is refused.
    """
    if asked is None:
        return spec
    requests, kind = dict(spec.requests), _kind_of(spec)
    requested = requests.get(kind, 0)
    asked = replace(asked, requested=requested, is_charged=is_charged)
    if spec.share:
        is_refused = asked.number > 1 and SEVERAL not in spec.unsupported
        return replace(spec, gpus=asked, unsupported=(*spec.unsupported, SEVERAL) if is_refused else spec.unsupported)
    requests[kind] = max(requested, asked.number if is_charged else 0)
    container = -1 if kind == NVIDIA and requests[kind] > requested else spec.device_container
    return replace(spec, requests=as_requests(requests), gpus=asked, device_container=container)


def as_bound(spec: SchedulingSpec, before: SchedulingSpec | None, offered: Requests | None) -> SchedulingSpec:
    """``spec`` of a bound pod, which is charged by its label for no more than its node has of GPUs, and at most what it was bound with.

    ``before``: as it was seen bound before, ``None`` the first time, when what its node has ``offered`` counts, as far as that is known.
    Whoever may write a label takes nothing from others by it, and gives nothing back that containers may use.
    """
    if spec.gpus is None and (before is None or before.gpus is None):
        return spec
    kind, asked = _kind_of(spec), spec.gpus or GpuRequest(requested=spec.amount(_kind_of(spec)))
    if before is not None:
        number = before.amount(_kind_of(before))
    elif offered is not None:
        number = min(spec.amount(kind), dict(offered).get(kind, 0))
    else:
        number = spec.amount(kind)
    charged = max(number, asked.requested)
    if charged == spec.amount(kind) and spec.gpus is not None:
        return spec
    return replace(spec, requests=as_requests({**dict(spec.requests), kind: charged}), gpus=replace(asked, number=charged))


def _kind_of(spec: SchedulingSpec) -> str:
    return next((name for name, _ in spec.requests if is_gpu(name)), NVIDIA)


def asked_by_group(options: Mapping[str, str]) -> GpuRequest | None:
    """What a PodGroup asks of the GPUs of its members. Raises ``MalformedError``."""
    asked, problems = gpu_request_in({}, {OPTION_PREFIX + name: options[name] for name in GPU_OPTIONS[1:] if name in options})
    if problems:
        raise problems[0]
    return asked


def with_group(spec: SchedulingSpec, of_group: GpuRequest) -> SchedulingSpec:
    """``spec`` of a member with what its PodGroup asks for where it says nothing itself; one that asks for no GPUs is left as it is."""
    if not any(is_gpu(name) for name, _ in spec.requests):
        return spec
    own = spec.gpus or GpuRequest()
    return replace(
        spec,
        gpus=replace(
            own,
            memory_each=of_group.memory_each if own.memory_each is None else own.memory_each,
            memory_total=of_group.memory_total if own.memory_total is None else own.memory_total,
            model=own.model or of_group.model,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one option into a field of ``GpuRequest``."""

    field: str
    read: Callable[[str, str, bool], object]

    def __call__(self, asked: GpuRequest, value: str, where: str, is_annotation: bool) -> GpuRequest:
        return replace(asked, **{self.field: self.read(value, where, is_annotation)})  # type: ignore[arg-type]  # of the field's type


def _number(value: str, where: str, is_annotation: bool) -> int:
    return _whole(value, where, _MOST_GPUS)


def _mebibytes(value: str, where: str, is_annotation: bool) -> int:
    if not is_annotation or re.fullmatch(r"[0-9]+", value):
        return _whole(value, where, _MOST_MEBIBYTES, "of MiB")
    found: Fraction = parse_quantity(value, where)
    if found > _MOST_MEBIBYTES * _MEBIBYTE:
        raise MalformedError(where, f"{shown(value)} is more than {_MOST_MEBIBYTES}Mi")
    return ceil(found / _MEBIBYTE)


def _model(value: str, where: str, is_annotation: bool) -> str:
    try:
        expression(value)
    except ValueError as error:
        raise MalformedError(where, str(error)) from None
    return value


def _whole(value: str, where: str, most: int, of_what: str = "") -> int:
    words = f"{shown(value)} is not a whole number {of_what}".rstrip()
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > most:
        raise MalformedError(where, f"{words} from 0 to {most}")
    return int(value)


_READERS = {
    "gpu-number": _Reader("number", _number),
    "gpu-memory-each": _Reader("memory_each", _mebibytes),
    "gpu-memory-total": _Reader("memory_total", _mebibytes),
    "gpu-model": _Reader("model", _model),
}
