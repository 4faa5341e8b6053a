"""The options of one gang: annotations ``allaboard.dev/<option>`` on its pods' template or, weaker, on its PodGroup.

An option that isn't known, or has no meaning, holds the gang: a typing mistake must not silently become the default.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

from allaboard.gangs.podgroup import PodGroup
from allaboard.model.gang import Hold
from allaboard.model.pod import OPTION_PREFIX, Pod

KNOWN = frozenset({"objective", "on-member-lost", "recreate", "undo"})
"""What users may set."""

_OURS = frozenset({"transaction", "epoch"})
_Choice = TypeVar("_Choice", bound=StrEnum)
_Default = TypeVar("_Default", bound=StrEnum | None)


def choice_of(
    name: str, choices: type[_Choice], group: PodGroup | None, alive: Sequence[Pod], default: _Default
) -> tuple[_Choice | _Default, Hold | None]:
    """What the pods ask for, else the PodGroup, else the default; and why the gang can't be trusted, if it can't."""
    field = f"metadata.annotations[{OPTION_PREFIX}{name}]"
    stated = [(pod, value) for pod in alive if (value := pod.option(name)) is not None]
    for pod, value in stated:
        if value not in set(choices):
            return default, Hold("InvalidAnnotation", f"pod {pod.name}: {_not_one_of(name, value, choices)}", pod, field)
        if value != stated[0][1]:
            first = stated[0][0].name
            text = f"Annotations {OPTION_PREFIX}{name} do not match: pod {pod.name} says {value}, pod {first} says {stated[0][1]}"
            return default, Hold(f"{name.title().replace('-', '')}Mismatch", text, pod, field)
    if stated:
        return choices(stated[0][1]), None
    value = group.options.get(name) if group else None
    if group is None or value is None:
        return default, None
    if value not in set(choices):
        return default, Hold("InvalidAnnotation", f"podgroup {group.key}: {_not_one_of(name, value, choices)}", field=field)
    return choices(value), None


def unknown_option(group: PodGroup | None, alive: Sequence[Pod]) -> Hold | None:
    """The first annotation under our prefix that means nothing to us."""
    for pod in alive:
        if name := _first_unknown(option for option, _ in pod.options):
            return Hold("InvalidAnnotation", f"pod {pod.name}: {_no_such(name)}", pod, f"metadata.annotations[{OPTION_PREFIX}{name}]")
    if group is not None and (name := _first_unknown(group.options)):
        text = f"podgroup {group.key}: {_no_such(name)}"
        return Hold("InvalidAnnotation", text, field=f"metadata.annotations[{OPTION_PREFIX}{name}]")
    return None


def _first_unknown(names: Iterable[str]) -> str:
    return next((name for name in names if name not in KNOWN | _OURS), "")


def _no_such(name: str) -> str:
    return f"annotation {OPTION_PREFIX}{name[:64]}: no such option; known are {', '.join(sorted(KNOWN))}"


def _not_one_of(name: str, value: str, choices: type[StrEnum]) -> str:
    return f"annotation {OPTION_PREFIX}{name}: {value[:64]!r} is not one of {', '.join(choices)}"
