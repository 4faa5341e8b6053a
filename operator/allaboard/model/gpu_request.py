"""Reads the labels and annotations by which a pod asks for GPUs, beside the requests of its containers.

Genius's labels are the short form. This scheduler's annotations are the long form: their values may be any text and quantities, and
annotations win over labels. A value that can't be understood makes the pod malformed: a pod that asks for two GPUs must never run with
none.
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
"""Names of the options for GPUs. As labels they have the prefix ``LABEL_PREFIX``, as annotations ``OPTION_PREFIX``."""

_LABELS = {LABEL_PREFIX + name: name for name in (*GPU_OPTIONS, "priority")}
_SIMILAR = 0.75
"""The least similarity, from 0 to 1, at which a name counts as a misspelling of a name in ``_LABELS`` (``difflib``)."""
_MOST_UNKNOWN = 8
"""The most unknown names under ``LABEL_PREFIX`` that are compared with known names; each comparison takes up to 0.1 ms."""
_MEBIBYTE = 2**20
_MOST_GPUS = 1_000_000
_MOST_MEBIBYTES = 2**31 - 1
_MOST_NAMESPACE_PRIORITY = 2**31 - 1


def gpu_request_in(labels: Mapping[str, object], annotations: Mapping[str, object]) -> tuple[GpuRequest | None, list[MalformedError]]:
    """Return what ``labels`` and ``annotations`` ask of GPUs, ``None`` if nothing, and the errors in values that can't be understood.

    Each option is read by itself: a bound pod is charged for the number of GPUs even if other options are malformed. If an annotation can't
    be understood, the label of the same option counts. Values that aren't strings are skipped here, since their errors are reported where
    all labels are read.
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
    """Return an error for each misspelt label of Genius, and for each annotation that has the name of a label of Genius.

    Other labels with Genius's prefix are allowed. A label counts as misspelt if its name begins with ``gpu`` or resembles a known name.
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
    """Return the number in the label ``genius/priority``; 0 without the label.

    A malformed label gives 0. The pod is held because of the error in the label.
    """
    return int(label) if label and re.fullmatch(r"[0-9]{1,10}", label) else 0


def with_gpus(spec: SchedulingSpec, asked: GpuRequest | None, *, is_charged: bool = True) -> SchedulingSpec:
    """Return ``spec`` with what the pod asks of GPUs by labels; if ``is_charged``, its requests include the number of GPUs asked for.

    The number counts for the kind of GPU that the pod requests, or for NVIDIA's if the pod requests none. If the number exceeds what the
    containers request of NVIDIA's GPUs, ``device_container`` is -1, since no container requests all of the GPUs. If the pod requests a part
    of a GPU, no GPU is added, and a number above 1 is refused.
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
    """Return ``spec`` of a bound pod, with the number of GPUs that the pod is charged for by its label.

    When the pod is first seen bound, ``before`` is ``None``. The number is then at most what the pod's node has ``offered``, if that is
    known. Later the number stays as in ``before``. So an edited label takes no GPUs from other pods, and frees no GPUs that containers may
    use.
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
    """Return what a PodGroup asks of the GPUs of its members, ``None`` if nothing. Raises ``MalformedError``."""
    asked, problems = gpu_request_in({}, {OPTION_PREFIX + name: options[name] for name in GPU_OPTIONS[1:] if name in options})
    if problems:
        raise problems[0]
    return asked


def with_group(spec: SchedulingSpec, of_group: GpuRequest) -> SchedulingSpec:
    """Return ``spec`` of a member, with its PodGroup's options for GPUs in place of those that the member doesn't state.

    ``spec`` is unchanged if the member requests no GPUs.
    """
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
