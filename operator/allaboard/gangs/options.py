"""Read the options of a gang: annotations ``allaboard.dev/<option>`` of its pods, else of its PodGroup.

A gang with an unknown or malformed option is held: a typing mistake must not silently become the default.
"""

import re
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import TypeVar

from allaboard.gangs.podgroup import PodGroup
from allaboard.model.constraints import GpuRequest
from allaboard.model.errors import MalformedError
from allaboard.model.gang import Hold, RoleMinimums
from allaboard.model.gpu_request import GPU_OPTIONS, asked_by_group
from allaboard.model.options import KNOWN, OPTION_PREFIX, OURS
from allaboard.model.pod import Pod
from allaboard.model.walltime import UNKNOWN, parse_walltime

_Choice = TypeVar("_Choice", bound=StrEnum)
_Default = TypeVar("_Default", bound=StrEnum | None)
_Value = TypeVar("_Value")
_Other = TypeVar("_Other")
_ROLE = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_ROLE_MINIMUM = re.compile(rf"\s*({_ROLE})\s*=\s*([0-9]{{1,9}})\s*")
_OF_PODS = {
    "gpu-number": ("[0-9]+", "must be a whole number"),
    "recreate": ("true|false", 'must be "true" or "false"'),
    "role": (_ROLE, "must be a word, such as worker"),
}
"""Options that only a pod can have: the form of the value as a regular expression, and the form in words."""

_MOST_ROLES = 64


def choice_of(
    name: str, choices: type[_Choice], group: PodGroup | None, alive: Sequence[Pod], default: _Default
) -> tuple[_Choice | _Default, Hold | None]:
    """Return the value of an option that must be one of ``choices``, and a hold if it isn't (``option_of``)."""

    def parse(value: str) -> _Choice:
        if value not in set(choices):
            raise ValueError(f"{value[:64]!r} is not one of {', '.join(choices)}")
        return choices(value)

    return option_of(name, parse, group, alive, default)


def option_of(
    name: str, parse: Callable[[str], _Value], group: PodGroup | None, alive: Sequence[Pod], default: _Other
) -> tuple[_Value | _Other, Hold | None]:
    """Return an option's value and a hold: the value that the ``alive`` pods state, else the PodGroup's value, else the default.

    The hold is None unless the value is malformed, or two pods state different values. ``parse`` returns the value of an annotation's text,
    or raises ``ValueError`` with a message that says what is wrong with the text.
    """
    field = f"metadata.annotations[{OPTION_PREFIX}{name}]"
    stated = [(pod, value) for pod in alive if (value := pod.option(name)) is not None]
    if stated:
        first, common = stated[0]
        other = next(((pod, value) for pod, value in stated if value != common), None)
        found: _Value | _Other = default
        for pod, value in (
            stated[0],
            *([other] if other else ()),
        ):  # only distinct values are parsed: thousands of pods may state the same one
            try:
                found = parse(value)
            except ValueError as error:
                return default, Hold("InvalidAnnotation", f"pod {pod.name}: annotation {OPTION_PREFIX}{name}: {error}", pod, field)
        if other is None:
            return found, None
        text = f"Annotations {OPTION_PREFIX}{name} do not match: pod {other[0].name} says {other[1]}, pod {first.name} says {common}"
        return default, Hold(f"{name.title().replace('-', '')}Mismatch", text, other[0], field)
    value_of_group = group.options.get(name) if group else None
    if group is None or value_of_group is None:
        return default, None
    try:
        return parse(value_of_group), None
    except ValueError as error:
        return default, Hold("InvalidAnnotation", f"podgroup {group.key}: annotation {OPTION_PREFIX}{name}: {error}", field=field)


def one_of(words: Collection[str], setting: str) -> Callable[[str], str]:
    """Return a parser that accepts only ``words``, which the setting ``setting`` lists; it raises ``ValueError`` for other values."""

    def parse(value: str) -> str:
        if value not in words:
            raise ValueError(f"{value[:64]!r} is not one of {', '.join(words)}, which the setting {setting} lists")
        return value

    return parse


def role_minimums(value: str) -> RoleMinimums:
    """Return the roles and minimums of a value such as ``ps=1,worker=3``, sorted by role. Raises ``ValueError`` if it is malformed."""
    found: dict[str, int] = {}
    for part in value.split(","):
        pair = _ROLE_MINIMUM.fullmatch(part)
        if pair is None or pair[1] in found or len(found) >= _MOST_ROLES:
            raise ValueError(f"{value[:64]!r} is not of the form ps=1,worker=3, each role once")
        found[pair[1]] = int(pair[3])
    return tuple(sorted(found.items()))


def walltime_of(
    group: PodGroup | None, alive: Sequence[Pod], distinct: Sequence[Pod], of_owner: Callable[[str], float]
) -> tuple[float, Hold | None]:
    """Return the longest time in seconds that a gang will run, and a hold if an annotation with such a time is malformed.

    It is the longest walltime of the ``alive`` members, else the PodGroup's, else the longest of their owners: ``of_owner`` returns the
    walltime of an owner by its UID. Members without a walltime count only if no member has the annotation: then it isn't known when they
    end. ``distinct`` are members of which each has other options.
    """
    field, owner, stated = f"metadata.annotations[{OPTION_PREFIX}walltime]", None, ""
    try:
        for owner in distinct:
            if stated := owner.option("walltime") or "":
                parse_walltime(stated)
        known = {pod.walltime for pod in alive}
        if known and (UNKNOWN not in known or any(pod.option("walltime") for pod in distinct)):
            return max(known), None
        owner, stated = None, (group.options.get("walltime") or "") if group else ""
        return parse_walltime(stated) if stated else _of_owners(alive, of_owner), None
    except ValueError as error:
        where = f"pod {owner.name}" if owner else f"podgroup {group.key if group else ''}"
        return UNKNOWN, Hold("InvalidAnnotation", f"{where}: annotation {OPTION_PREFIX}walltime: {error}", owner, field)


def _of_owners(alive: Sequence[Pod], of_owner: Callable[[str], float]) -> float:
    """Return the longest walltime of the members' owners; unknown if a member has no owner, or an owner without a walltime."""
    owners = {id(pod.owner): pod.owner for pod in alive}  # mostly one object for all pods of a controller
    known = {of_owner(owner.uid) if owner else UNKNOWN for owner in owners.values()}
    return max(known, default=UNKNOWN) if UNKNOWN not in known else UNKNOWN


def of_group(group: PodGroup | None) -> tuple[GpuRequest | None, Hold | None]:
    """Return the GPU request of a PodGroup's annotations, and a hold if the request is malformed. Each is None if absent."""
    if group is None or group.options.keys().isdisjoint(GPU_OPTIONS):
        return None, None
    try:
        return asked_by_group(group.options), None
    except MalformedError as error:
        return None, Hold("InvalidAnnotation", f"podgroup {group.key}: {error}", field=error.field)


def meaningless_option(group: PodGroup | None, alive: Sequence[Pod]) -> Hold | None:
    """Return a hold for the first annotation ``allaboard.dev/…`` that is unknown, malformed, or not allowed on its kind of object.

    None if there is no such annotation.
    """
    for pod in alive:
        for name, value in pod.options:
            if problem := _problem_of(name, value):
                return _hold(f"pod {pod.name}", name, problem, pod)
    if group is not None:
        for name in group.options:
            if problem := "only a pod can have it" if name in _OF_PODS else _problem_of(name):
                return _hold(f"podgroup {group.key}", name, problem)
    return None


def _problem_of(name: str, value: str = "") -> str:
    if name not in KNOWN | OURS:
        return f"no such option; known are {', '.join(sorted(KNOWN))}"
    form, words = _OF_PODS.get(name, ("", ""))
    return f"{words}, not {value[:64]!r}" if value and form and not re.fullmatch(form, value) else ""


def _hold(owner: str, name: str, problem: str, pod: Pod | None = None) -> Hold:
    text = f"{owner}: annotation {OPTION_PREFIX}{name[:64]}: {problem}"
    return Hold("InvalidAnnotation", text, pod, f"metadata.annotations[{OPTION_PREFIX}{name}]")
