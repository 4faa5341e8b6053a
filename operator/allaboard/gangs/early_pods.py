"""Apply pods that Kopf reports before the reflector's watch does: unknown pods of gangs that haven't started.

A new gang is then seen with the first of the two watches. All other changes are taken from the reflector alone, which can't lose them
and delivers them in order. If a change of a known pod came early, its gang could be placed before gangs of higher priority whose changes
are late. If a new member of a started gang came before the end of another member, the gang would be completed around members that are
gone.
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
    """Passes pods that are reported early to their ``reflector``; ``read`` makes a record of a raw pod."""

    def __init__(self, view: ClusterView, registry: GangRegistry, reflector: Reflector, read: Callable[[dict[str, Any]], Pod]) -> None:
        self._view, self._registry, self._reflector, self._read = view, registry, reflector, read

    def apply(self, raw: dict[str, Any]) -> None:
        """Apply a raw pod if it is unknown, newer than the reflector's news, and of a gang that hasn't started."""
        if self._view.pod(object_key(raw)) or not self._reflector.is_news(raw):
            return
        with suppress(MalformedError):
            pod = self._read(raw)
            if not self._registry.has_begun(pod) and not any(map(self._view.is_assumed, self._registry.fellows(pod))):
                self._reflector.apply_early(raw)

    def drop_if_begun(self, _old: Pod | None, new: Pod | None) -> None:
        """Drop the early pods of a gang that turns out to have started, unless they are assumed; the reflector delivers them in order."""
        if new is None or not self._reflector.ahead or not self._registry.has_begun(new):
            return
        key = self._registry.key_of(new)
        for each in [pod for name in self._reflector.ahead if (pod := self._view.pod(name)) is not None]:
            if self._registry.key_of(each) == key and not self._view.is_assumed(each):
                self._reflector.drop_early(each.key)
