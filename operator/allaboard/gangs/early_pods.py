"""What is heard of pods beside the reflector's watch, and how far it is believed: a pod that nobody knows, of a gang that hasn't begun.

Whichever watch tells first brings a gang its first look. Of what becomes of a pod that is known the reflector tells, which can't lose it:
with one gang's news before another's, a gang would go before those of higher priority. So it does of whoever comes to a gang that has
begun: with this one's coming known before another's end, the gang would be completed around members that are gone.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from allaboard.cluster.view import ClusterView
from allaboard.gangs.registry import GangRegistry
from allaboard.kube.reflector import Reflector, object_key
from allaboard.model.errors import MalformedError
from allaboard.model.pod import Pod


class Hearsay:
    """Hands what is heard of pods to their ``reflector``, or doesn't; ``read`` makes a record of a raw pod."""

    def __init__(self, view: ClusterView, registry: GangRegistry, reflector: Reflector, read: Callable[[dict[str, Any]], Pod]) -> None:
        self._view, self._registry, self._reflector, self._read = view, registry, reflector, read

    def hear(self, raw: dict[str, Any]) -> None:
        """Take a pending pod if it is news."""
        if self._view.pod(object_key(raw)) or not self._reflector.is_news(raw):
            return
        with suppress(MalformedError):
            pod = self._read(raw)
            if not self._registry.has_begun(pod) and not any(map(self._view.is_assumed, self._registry.fellows(pod))):
                self._reflector.overhear(raw)

    def doubt(self, _old: Pod | None, new: Pod | None) -> None:
        """Of a gang that turns out to have begun, forget who was only heard of and has no seat yet: of them it is to be told in turn."""
        if new is None or not self._reflector.ahead or not self._registry.has_begun(new):
            return
        key = self._registry.key_of(new)
        for each in [pod for name in self._reflector.ahead if (pod := self._view.pod(name)) is not None]:
            if self._registry.key_of(each) == key and not self._view.is_assumed(each):
                self._reflector.unhear(each.key)
