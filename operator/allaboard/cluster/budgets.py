"""The disruption budgets of the cluster: how many pods each allows to evict now."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allaboard.model.errors import MalformedError
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, expressions_in
from allaboard.model.raw_fields import integer, mapping, text


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: it protects the pods of its namespace that meet all ``expressions``, and allows to evict ``allowed`` now."""

    namespace: str
    name: str
    expressions: tuple[LabelExpression, ...]
    allowed: int

    def protects(self, labels: Mapping[str, str]) -> bool:
        """Return whether the budget protects a pod of its namespace with ``labels``."""
        return all(expression.matches(labels) for expression in self.expressions)


def budget_from(raw: dict[str, Any]) -> Budget | None:
    """Return the record of a raw PodDisruptionBudget; None for a budget without a selector, which protects no pod.

    A budget that can't be read allows no eviction in its namespace. Raises ``MalformedError`` if its name can't be read.
    """
    metadata = mapping(raw, "metadata")
    namespace, name = text(metadata, "namespace", path="metadata."), text(metadata, "name", path="metadata.")
    try:
        spec = mapping(raw, "spec")
        if spec.get("selector") is None:
            return None
        expressions = expressions_in(mapping(spec, "selector", "spec."), "spec.selector.")
        return Budget(namespace, name, expressions, max(0, integer(mapping(raw, "status"), "disruptionsAllowed", path="status.")))
    except MalformedError:
        return Budget(namespace, name, (), 0)


class Budgets:
    """The disruption budgets by namespace; the store of a reflector."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, Budget | None]] = {}

    def upsert(self, key: str, record: Budget | None) -> None:
        """Apply the newest state of a budget."""
        self._budgets.setdefault(key.partition("/")[0], {})[key] = record

    def remove(self, key: str) -> None:
        """Remove a budget; unknown keys are ignored."""
        namespace = key.partition("/")[0]
        if (of_namespace := self._budgets.get(namespace)) is not None:
            of_namespace.pop(key, None)
            if not of_namespace:
                del self._budgets[namespace]

    def known(self) -> Collection[str]:
        """Return the keys of all budgets."""
        return [key for of_namespace in self._budgets.values() for key in of_namespace]

    def of(self, pod: Pod) -> Sequence[Budget]:
        """Return the budgets that protect a pod."""
        of_namespace = self._budgets.get(pod.namespace)
        if not of_namespace:
            return ()
        labels = dict(pod.labels)
        return [budget for budget in of_namespace.values() if budget is not None and budget.protects(labels)]
