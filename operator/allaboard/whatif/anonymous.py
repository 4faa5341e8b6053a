"""Replaces the names in a snapshot, so that it can be shown to others: the same name by the same word everywhere.

Only fields that commands read are kept (``shown_fields``). In these fields every text is replaced, except amounts and times, and the words
that Kubernetes, Allaboard and other schedulers define (``public_words``). So selectors still match, gangs keep their members, and a plan
has the same answer.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allaboard.gangs.membership import object_name
from allaboard.model.pod import STAMP as STAMPED
from allaboard.whatif.public_words import (
    AMOUNT,
    GANG_NAMES,
    GPU_WORD,
    HANDSHAKES,
    INDEXES,
    KEY_BEGINNINGS,
    KEYS,
    NAMED_BY,
    PRODUCTS,
    RESOURCE,
    RESOURCES,
    STAMP,
    WORDS,
    ZONES,
)
from allaboard.whatif.shown_fields import FIELDS, Holds

_KINDS = ("namespace", "node", "gang", "job", "pod", "scheduler", "resource", "object", "kind", "uid", "value", "key")
"""Words that replace names. A name that stands in several places is replaced by the first of its words."""

_NAMED = {"Namespace": "namespace", "Node": "node", "PodGroup": "gang", "Job": "job", "Pod": "pod"}
_KIND_OF_FIELD = {
    "namespace": "namespace",
    "namespaces": "namespace",
    "nodeName": "node",
    "nominatedNodeName": "node",
    "schedulerName": "scheduler",
    "name": "object",
    "apiVersion": "kind",
    "kind": "kind",
    "uid": "uid",
}
_PARTS = re.compile(r"[^\s,=@:;\[\]]+")
_HIDDEN = "left out"


def anonymized(objects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return ``objects`` with other names. Names of one kind keep their order, which decides between equal gangs and nodes."""
    return _Names().replaced_in([_with_claims_of_pods(raw) for raw in objects])


class _Names:
    """The names in the objects of one snapshot, and the words that replace them."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._compared: set[str] = set()  # keys of labels whose values are compared as numbers

    def replaced_in(self, objects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return ``objects`` with a word in place of each name."""
        for raw in objects:
            self._compared.update(_compared_in(raw))
            if isinstance(name := (raw.get("metadata") or {}).get("name"), str):
                self._word(name, _NAMED.get(str(raw.get("kind")), "object"))
        for raw in objects:  # all names are collected before the first is replaced, since their order counts
            self._fields(raw)
        for kind in _KINDS:
            self._words |= _words_for(kind, sorted(text for text, of in self._kinds.items() if of == kind))
        return [self._fields(raw) for raw in objects]

    def _word(self, text: str, kind: str) -> str:
        if text in WORDS:
            return text
        self._kinds[text] = min(self._kinds.get(text, kind), kind, key=_KINDS.index)
        return self._words.get(text, "")

    def _fields(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        found = {field: self._value(value, field) for field, value in raw.items() if field in FIELDS}
        if isinstance(key := raw.get("key"), str):  # an expression, a taint or a toleration
            if isinstance(value := raw.get("value"), str):
                found["value"] = self._label(key, value)
            if isinstance(values := raw.get("values"), list):
                found["values"] = [self._label(key, each) if isinstance(each, str) else each for each in values]
        return found

    def _value(self, value: Any, field: str) -> Any:
        holds = FIELDS[field]
        if holds is Holds.MARK:
            return value and _HIDDEN
        if isinstance(value, Mapping):
            return self._mapping(value, holds)
        if isinstance(value, list):
            return [self._fields(each) if isinstance(each, Mapping) else self._value(each, field) for each in value]
        if not isinstance(value, str):
            return value
        if holds is Holds.KEY:
            return self._key(value)
        if holds in (Holds.AMOUNT, Holds.AMOUNTS) and (AMOUNT.fullmatch(value) or INDEXES.fullmatch(value)):
            return value
        return self._word(value, _KIND_OF_FIELD.get(field, "value"))

    def _mapping(self, raw: Mapping[str, Any], holds: Holds) -> dict[str, Any]:
        if holds is Holds.AMOUNTS:
            return {self._resource(name): self._value(amount, "limits") for name, amount in raw.items()}
        if holds is Holds.ANNOTATIONS:
            return {self._key(key): self._annotation(key, value) for key, value in raw.items() if _is_read(key) and isinstance(value, str)}
        if holds is Holds.LABELS and not isinstance(raw.get("nodeSelectorTerms"), list):  # the field ``nodeSelector`` may hold terms, too
            return {self._key(key): self._label(key, value) for key, value in raw.items() if isinstance(value, str)}
        return self._fields(raw)

    def _key(self, text: str) -> str:
        if text in KEYS:
            return text
        beginning = next((each for each in KEY_BEGINNINGS if text.startswith(each)), "")
        return beginning + self._word(text.removeprefix(beginning), "key")

    def _resource(self, text: str) -> str:
        for beginning in ("requests.", "limits."):
            if text.startswith(beginning):
                return beginning + self._resource(text.removeprefix(beginning))
        return text if text in RESOURCES or RESOURCE.fullmatch(text) else self._word(text, "resource")

    def _label(self, key: str, value: str) -> str:
        if key in GANG_NAMES:
            return value and self._word(object_name(value), "gang")
        if key in PRODUCTS:
            return self._product(value)
        if key in ZONES:
            return "__".join(self._word(each, "value") for each in value.split("__"))
        is_number = (key in self._compared or _is_read(key)) and key not in NAMED_BY and AMOUNT.fullmatch(value)
        return value if is_number else self._word(value, "value")

    def _annotation(self, key: str, value: str) -> str:
        if key in HANDSHAKES:
            return "Deleted" if value.startswith("Deleted") else ""
        if key in GANG_NAMES | PRODUCTS | NAMED_BY:
            return self._label(key, value)
        if AMOUNT.fullmatch(value) or (key == STAMPED and STAMP.fullmatch(value)):
            return value
        if value.lstrip().startswith(("{", "[")):
            return self._json(value)
        return _PARTS.sub(lambda part: part[0] if AMOUNT.fullmatch(part[0]) else self._key(part[0]), value)

    def _json(self, text: str) -> str:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return "{"  # stays malformed
        return json.dumps(self._fields({"spec": found})["spec"])

    def _product(self, text: str) -> str:
        """Return the name of a GPU, or an expression for names, word by word: letter case doesn't matter in expressions."""
        printable = re.sub(r"[^ -~]", "?", text)

        def replaced(part: re.Match[str]) -> str:
            return part[0] if GPU_WORD.fullmatch(part[0]) else self._word(part[0].lower(), "value")

        return re.sub(r"\\[A-Za-z]|[A-Za-z0-9]+", replaced, printable)


def _is_read(key: str) -> bool:
    return key in KEYS or key.startswith(KEY_BEGINNINGS)


def _words_for(kind: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a word for each of the sorted ``names``. The words have the same order."""
    width = len(str(len(names)))
    ranks = {number: rank for rank, number in enumerate(sorted({_first_number(name) for name in names} - {-1}))}
    for number, name in enumerate(names, 1):
        word = f"{kind}-{number:0{width}}"
        if kind == "pod":  # the first number in a pod's name is its rank, so only letters may come before it
            rank = ranks.get(_first_number(name))
            word = f"pod-{_letters(number, width)}" + ("" if rank is None else f"-{rank}")
        yield name, f"example.com/{word}" if kind == "resource" and "/" in name else word


def _first_number(name: str) -> int:
    """Return the first number in a pod's name, which is its rank in the gang (``model.ranks``); -1 without one."""
    digits = re.search("[0-9]+", name)
    return int(digits[0]) if digits and len(digits[0]) < 10 else -1


def _letters(number: int, width: int) -> str:
    """Return ``number`` in letters, in the same order."""
    return f"{number:0{width}}".translate(str.maketrans("0123456789", "abcdefghij"))


def _with_claims_of_pods(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pod in which each ephemeral volume names its claim, whose name would else be made from other names."""
    spec = raw.get("spec")
    if raw.get("kind") != "Pod" or not isinstance(spec, Mapping) or not isinstance(volumes := spec.get("volumes"), list):
        return raw
    pod = (raw.get("metadata") or {}).get("name")
    named = [
        {"name": each.get("name"), "persistentVolumeClaim": {"claimName": f"{pod}-{each.get('name')}"}}
        if isinstance(each, Mapping) and each.get("ephemeral")
        else each
        for each in volumes
    ]
    return {**raw, "spec": {**spec, "volumes": named}}


def _compared_in(value: Any) -> Iterator[str]:
    """Yield the keys of labels that expressions compare as numbers."""
    if isinstance(value, Mapping):
        if value.get("operator") in ("Gt", "Lt") and isinstance(value.get("key"), str):
            yield value["key"]
        for each in value.values():
            yield from _compared_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _compared_in(each)
