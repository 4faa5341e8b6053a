"""The annotations under our prefix, of a pod or a PodGroup, as far as they can mean anything.

Of names that aren't known the first is kept, without its value: enough to say what is wrong, however many and however long they are.
"""

from collections.abc import Mapping

from allaboard.model.errors import MalformedError, shown
from allaboard.model.limits import CHARACTERS, OPTION_CHARACTERS, OverLimitError
from allaboard.model.raw_fields import mapping

OPTION_PREFIX = "allaboard.dev/"
"""Annotations under this prefix are options of ours; others are not kept."""

KNOWN = frozenset(
    {
        "gpu-memory-each",
        "gpu-memory-total",
        "gpu-model",
        "gpu-number",
        "min-members",
        "objective",
        "on-member-lost",
        "recreate",
        "required-topology",
        "role",
        "strategy",
        "topology",
        "undo",
    }
)
"""What users may set."""

OURS = frozenset({"transaction", "epoch"})
"""What we write ourselves."""

Options = tuple[tuple[str, str], ...]


def options_in(metadata: Mapping[str, object]) -> tuple[Options, MalformedError | None]:
    """The options by their names without the prefix, in order, and what is wrong with one that had to be left out."""
    annotations = mapping(metadata, "annotations", "metadata.")
    stated = [key for key in annotations if isinstance(key, str) and key.startswith(OPTION_PREFIX)]
    problem = _stated_as_label(metadata)
    if not stated:
        return (), problem
    names = {key.removeprefix(OPTION_PREFIX) for key in stated}
    found: list[tuple[str, str]] = []
    if unknown := min(names - KNOWN - OURS, default=""):
        found.append((unknown[: CHARACTERS.most], ""))
    characters = 0
    # Ours first: what we have promised is read whatever else there is.
    for name in (*sorted(names & OURS), *sorted(names & KNOWN)):
        field, value = f"metadata.annotations[{OPTION_PREFIX}{name}]", annotations[OPTION_PREFIX + name]
        if value is None:
            continue
        if not isinstance(value, str):
            problem = problem or MalformedError(field, f"{shown(value)} is not a string")
        elif characters + len(value) > OPTION_CHARACTERS.most:
            problem = problem or OverLimitError(field, OPTION_CHARACTERS, characters + len(value))
        else:
            characters += len(value)
            found.append((name, value))
    return tuple(sorted(found)), problem


def _stated_as_label(metadata: Mapping[str, object]) -> MalformedError | None:
    """Return what is wrong with the first label that has an option's name: it would be ignored in silence."""
    labels = mapping(metadata, "labels", "metadata.")
    names = (key for key in labels if isinstance(key, str) and key.startswith(OPTION_PREFIX) and key.removeprefix(OPTION_PREFIX) in KNOWN)
    name = min(names, default="")
    return MalformedError(f"metadata.labels[{name}]", "is read as an annotation only: write it there") if name else None
