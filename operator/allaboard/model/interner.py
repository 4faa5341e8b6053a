"""Makes equal values one object: 100,000 pods have a few hundred different specs between them.

Tenants choose the values, so nothing is kept for its own sake: a record as long as somebody has it, a text if it is short, and of those
so many that they come to some ten megabytes.
"""

from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from allaboard.model.limits import CHARACTERS, KNOWN_TEXTS

_Text = TypeVar("_Text", bound="str | tuple[str, str | int]")
_Record = TypeVar("_Record")


class Interner:
    """Called with a text or a pair of texts; ``record`` takes what can be referred to weakly. Forgetting a value costs memory only."""

    def __init__(self, most: int = KNOWN_TEXTS.most) -> None:
        self._most = most
        self._texts: dict[object, object] = {}
        self._records: WeakKeyDictionary[object, ref[object]] = WeakKeyDictionary()

    def __call__(self, value: _Text) -> _Text:
        """The first text, or pair, that was equal to this."""
        known = self._texts.get(value)
        if known is not None:
            return known  # type: ignore[return-value]  # equal values of one type
        if len(value) <= CHARACTERS.most if isinstance(value, str) else len(value[0]) + len(str(value[1])) <= CHARACTERS.most:
            if len(self._texts) >= self._most:
                self._texts.clear()
            self._texts[value] = value
        return value

    def record(self, value: _Record) -> _Record:
        """The first of the records that are equal to this and that somebody still has."""
        known = self._records.get(value)
        found = known() if known is not None else None
        if found is not None:
            return found  # type: ignore[return-value]
        self._records[value] = ref(value)
        return value
