"""The labels of namespaces, by which terms of pod affinity and anti-affinity may select the namespaces of pods."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from allaboard.model.limits import LABELS
from allaboard.model.raw_fields import labels, mapping

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label by which the API server repeats the name of each namespace."""


def namespace_labels_from(raw: dict[str, Any]) -> Mapping[str, str]:
    """Return the labels of a raw Namespace. Raises ``MalformedError``."""
    return labels(mapping(raw, "metadata"), "labels", "metadata.", LABELS)


class Namespaces:
    """The labels of all namespaces, as the store of a reflector."""

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        """Called after each change, before the listener."""
        self._on_change: Callable[[], None] = lambda: None
        self._labels: dict[str, Mapping[str, str]] = {}

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change()`` whenever the labels of a namespace have changed."""
        self._on_change = on_change

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace. One that isn't known has only the label with its name."""
        return self._labels.get(namespace) or {NAME_LABEL: namespace}

    def upsert(self, key: str, record: Mapping[str, str]) -> None:
        """Add or replace the labels of a namespace."""
        if self._labels.get(key) != record:
            self._labels[key] = record
            self.changed()
            self._on_change()

    def remove(self, key: str) -> None:
        """Forget a namespace that is gone."""
        if self._labels.pop(key, None) is not None:
            self.changed()
            self._on_change()

    def known(self) -> Collection[str]:
        """Return the names of all namespaces."""
        return self._labels.keys()
