"""Apply new pods that Kopf's watch reports before the reflector's watch does.

A new gang is then seen with the faster of the two watches. Only unknown pods of gangs that haven't started are applied early. All other
changes come from the reflector alone, which loses none and delivers them in order. This rule has two reasons:

- If a change of a known pod were applied early, its gang could be placed before gangs of higher priority whose changes are late.
- If a new member of a started gang were applied before the end of another member, the gang would be completed around members that are gone.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from allaboard.cluster.view import ClusterView
from allaboard.gangs.registry import GangRegistry
from allaboard.kube.reflector import Reflector, object_key
from allaboard.model.errors import MalformedError
from allaboard.model.pod import Pod


class EarlyPods:
    """Passes early pods, which Kopf's watch reports first, on to the ``reflector``. ``read`` makes a record of a raw pod."""

    def __init__(self, view: ClusterView, registry: GangRegistry, reflector: Reflector, read: Callable[[dict[str, Any]], Pod]) -> None:
        self._view, self._registry, self._reflector, self._read = view, registry, reflector, read

    def apply(self, raw: dict[str, Any]) -> None:
        """Apply a raw pod if the pod is unknown, is newer than all that the reflector has seen, and its gang hasn't started."""
        if self._view.pod(object_key(raw)) or not self._reflector.is_news(raw):
            return
        with suppress(MalformedError):
            pod = self._read(raw)
            if not self._registry.has_started(pod) and not any(map(self._view.is_assumed, self._registry.known_members(pod))):
                self._reflector.apply_early(raw)

    def drop_if_started(self, _old: Pod | None, new: Pod | None) -> None:
        """Drop the early pods of the gang of ``new`` if the gang has started; the reflector delivers these pods later, in order.

        Early pods that are assumed on a node are kept.
        """
        if new is None or not self._reflector.ahead or not self._registry.has_started(new):
            return
        key = self._registry.key_of(new)
        for each in [pod for name in self._reflector.ahead if (pod := self._view.pod(name)) is not None]:
            if self._registry.key_of(each) == key and not self._view.is_assumed(each):
                self._reflector.drop_early(each.key)
