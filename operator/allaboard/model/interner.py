"""Makes equal values one object: 100,000 pods have only a few hundred different specs.

Tenants choose the values, so the interner bounds what it keeps. A record is kept only as long as another object refers to it. Texts are
kept only if they are short. They are also limited in number, so that all kept texts take some ten megabytes.
"""

from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from allaboard.model.limits import CHARACTERS, KNOWN_TEXTS

_Text = TypeVar("_Text", bound="str | tuple[str, str | int]")
_Record = TypeVar("_Record")


class Interner:
    """Returns one object for equal values. A call interns a text, or a pair that begins with a text; ``record`` interns a record.

    The interner may forget a value at any time, which costs only memory.
    """

    def __init__(self, most: int = KNOWN_TEXTS.most) -> None:
        self._most = most
        self._texts: dict[object, object] = {}
        self._records: WeakKeyDictionary[object, ref[object]] = WeakKeyDictionary()

    def __call__(self, value: _Text) -> _Text:
        """Return the kept text or pair that equals ``value``, else ``value`` itself."""
        known = self._texts.get(value)
        if known is not None:
            return known  # type: ignore[return-value]  # equal values of one type
        if len(value) <= CHARACTERS.most if isinstance(value, str) else len(value[0]) + len(str(value[1])) <= CHARACTERS.most:
            if len(self._texts) >= self._most:
                self._texts.clear()
            self._texts[value] = value
        return value

    def record(self, value: _Record) -> _Record:
        """Return the record that equals ``value`` and that other objects refer to, else ``value`` itself.

        Records must allow weak references.
        """
        known = self._records.get(value)
        found = known() if known is not None else None
        if found is not None:
            return found  # type: ignore[return-value]
        self._records[value] = ref(value)
        return value
