"""The ProvisioningRequests that this scheduler has made, by gang; the store of a reflector."""

from collections.abc import Callable, Collection, Iterator

from allaboard.model.gang import GangKey
from allaboard.model.provisioning import Stage
from allaboard.model.provisioning_request import ProvisioningRequest


class ProvisioningRequests:
    """The requests for which ``is_ours`` is true. Requests of others, such as Kueue, aren't kept.

    ``on_change(gang)`` is called when an autoscaler has answered a request of the gang, and when the request is gone.
    """

    def __init__(self, is_ours: Callable[[ProvisioningRequest], bool] = lambda request: True) -> None:
        self._is_ours = is_ours
        self._requests: dict[str, ProvisioningRequest] = {}
        self._of_gang: dict[GangKey, set[str]] = {}
        self.on_change: Callable[[GangKey], None] = lambda gang: None

    def __iter__(self) -> Iterator[ProvisioningRequest]:
        return iter(list(self._requests.values()))

    def upsert(self, key: str, record: ProvisioningRequest | None) -> None:
        """Apply the newest state of a request; None for a request of others. A state that is older than the known state is ignored."""
        old = self._requests.get(key)
        if record is None or not self._is_ours(record):
            self.remove(key)
            return
        if old is not None and record.version < old.version:
            return
        if old is not None and old.owner != record.owner:
            self.remove(key)
        self._requests[key] = record
        self._of_gang.setdefault(record.owner, set()).add(key)
        before = (old.stage, old.note) if old is not None else (Stage.PENDING, "")
        if before != (record.stage, record.note):
            self.on_change(record.owner)

    def remove(self, key: str) -> None:
        """Remove a request; unknown keys are ignored."""
        if (old := self._requests.pop(key, None)) is None:
            return
        keys = self._of_gang[old.owner]
        keys.discard(key)
        if not keys:
            del self._of_gang[old.owner]
        self.on_change(old.owner)

    def known(self) -> Collection[str]:
        """Return the keys of all requests."""
        return self._requests.keys()

    def of(self, gang: GangKey) -> list[ProvisioningRequest]:
        """Return the requests of a gang that aren't being deleted."""
        found = (self._requests[key] for key in sorted(self._of_gang.get(gang, ())))
        return [request for request in found if not request.is_terminating]
