"""Reads this scheduler's options from the annotations of a pod or PodGroup.

If there are unknown options, only the name of the first is kept, without its value. The name is enough for an error message, and bounds the
memory.
"""

from collections.abc import Mapping

from allaboard.model.errors import MalformedError, shown
from allaboard.model.kueue import topology_asked_of_kueue
from allaboard.model.limits import CHARACTERS, OPTION_CHARACTERS, OverLimitError
from allaboard.model.raw_fields import mapping

OPTION_PREFIX = "allaboard.dev/"
"""The prefix of annotations that are options of this scheduler; other annotations are not kept."""

KNOWN = frozenset(
    {
        "gpu-memory-each",
        "gpu-memory-total",
        "gpu-model",
        "gpu-number",
        "last-checkpoint",
        "min-members",
        "objective",
        "on-member-lost",
        "recreate",
        "required-topology",
        "role",
        "strategy",
        "topology",
        "undo",
        "walltime",
    }
)
"""Options that users may set."""

OURS = frozenset({"transaction", "epoch"})
"""Options that this scheduler writes itself."""

Options = tuple[tuple[str, str], ...]


def options_in(metadata: Mapping[str, object]) -> tuple[Options, MalformedError | None]:
    """Return the options by name without the prefix, sorted, and the first error in an option, ``None`` without errors.

    An option with an error is left out. A topology that a pod asks of Kueue counts as the option ``topology``, if no topology is stated.
    """
    annotations = mapping(metadata, "annotations", "metadata.")
    stated = [key for key in annotations if isinstance(key, str) and key.startswith(OPTION_PREFIX)]
    problem, asked = _stated_as_label(metadata), ""
    try:
        asked = topology_asked_of_kueue(mapping(metadata, "labels", "metadata."), annotations)
    except MalformedError as error:
        problem = problem or error
    if not stated:
        return ((("topology", asked),) if asked else ()), problem
    names = {key.removeprefix(OPTION_PREFIX) for key in stated}
    found: list[tuple[str, str]] = []
    if unknown := min(names - KNOWN - OURS, default=""):
        found.append((unknown[: CHARACTERS.most], ""))
    characters = 0
    # Options that this scheduler writes come first: a stamp is read however long the other options are.
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
    if asked and not {"topology", "required-topology"} & names:
        found.append(("topology", asked))
    return tuple(sorted(found)), problem


def _stated_as_label(metadata: Mapping[str, object]) -> MalformedError | None:
    """Return an error for the first label that has an option's name, since labels aren't read; ``None`` without such a label."""
    labels = mapping(metadata, "labels", "metadata.")
    names = (key for key in labels if isinstance(key, str) and key.startswith(OPTION_PREFIX) and key.removeprefix(OPTION_PREFIX) in KNOWN)
    name = min(names, default="")
    return MalformedError(f"metadata.labels[{name}]", "is read as an annotation only: write it there") if name else None
