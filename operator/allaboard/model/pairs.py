"""Reads options that map texts to texts, in each form in which users state such options.

A value of any other form is returned unchanged, and the caller handles it.
"""

from collections.abc import Mapping, Sequence

from allaboard.model.errors import shown


def pairs_in(value: object) -> object:
    """Return the mapping of a text such as ``a=1,b=2``; return any other value unchanged. Raises ``ValueError`` for a malformed text."""
    if not isinstance(value, str):
        return value
    pairs = [pair.strip() for pair in value.split(",") if pair.strip()]
    if not all("=" in pair for pair in pairs):
        raise ValueError(f"must be pairs like pool=train,zone=a or cpu=20%,memory=4Gi, not {shown(value)}")
    found = [(name.strip(), text.strip()) for name, _, text in (pair.partition("=") for pair in pairs)]
    return _once_each(found)


def pairs_by(value: object, key: str, of: str) -> object:
    """Return the mapping that ``value`` states: as a text ``a=1,b=2``, as a mapping, or as a list of pairs in kube-scheduler's form.

    ``key`` and ``of`` are the two fields of an item of such a list: the first holds ``a``, the second ``1``.

    A value of another form is returned unchanged. Raises ``ValueError`` for a malformed text or list.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not all(isinstance(item, Mapping) and item.keys() == {key, of} for item in value):
            raise ValueError(f"must be a list of {{{key}, {of}}}")
        return _once_each([(str(item[key]), str(item[of])) for item in value])
    if isinstance(value, Mapping):
        return {str(name): str(text) for name, text in value.items()}
    return pairs_in(value)


def _once_each(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("must not state a key twice")
    return found
