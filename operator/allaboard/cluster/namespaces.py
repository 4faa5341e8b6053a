"""The labels of namespaces, by which terms of pod affinity and anti-affinity may select the namespaces of pods."""

from collections.abc import Mapping
from typing import Any

from allaboard.cluster.records import HeardRecords
from allaboard.model.limits import LABELS
from allaboard.model.raw_fields import labels, mapping

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label by which the API server repeats the name of each namespace."""


def namespace_labels_from(raw: dict[str, Any]) -> Mapping[str, str]:
    """Return the labels of a raw Namespace. Raises ``MalformedError``."""
    return labels(mapping(raw, "metadata"), "labels", "metadata.", LABELS)


class Namespaces(HeardRecords[Mapping[str, str]]):
    """The labels of all namespaces, as the store of a reflector."""

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace. One that isn't known has only the label with its name."""
        return self.get(namespace) or {NAME_LABEL: namespace}
