"""Delays the next bind of a controller's pods if its earlier pods were lost again and again, soon after their bind.

A node may reject each pod that is bound to it, while the controller recreates each pod at once. After the first such loss the
replacement is bound without delay. After the second in a row it is bound one second after the last bind, then after two seconds, four, … up
to the longest backoff. The count of losses returns to zero once members have stayed for a minute, or for twice the last backoff if that is
longer.

Losses are counted for each controller and revision. So a member that a rolling update replaces doesn't count as lost, and a run that starts
beside other runs has no losses.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.records.backoff import Backoff
from allaboard.records.record import GangRecords, LastBind

_STAYED_SECONDS = 60.0
"""Members that stay for at least this long after their bind don't count as lost soon after the bind."""
_MOST_CONTROLLERS = 16
"""The most controllers of one gang whose last binds are remembered."""


@dataclass(slots=True)
class Losses:
    """A counter of the members that each gang loses soon after their bind.

    ``root_of`` returns the UID of a pod's root object. ``backoff`` is the delay after a number of losses in a row.
    """

    records: GangRecords
    root_of: Callable[[Pod], str]
    backoff: Backoff
    clock: Callable[[], float] = time.monotonic

    def observe_bind(self, gang: Gang, bound: Collection[Pod], waiting_since: float) -> None:
        """Record that the pods ``bound`` were bound, and count the losses of their controllers since the last bind.

        ``gang`` is the gang as it was before this bind. ``waiting_since`` is when the gang began to lack members. A surplus member counts
        as lost only if it has failed: a deleted one may have been removed on purpose.
        """
        now, last_binds = self.clock(), self.records.of(gang.key).last_binds
        living, succeeded, failed = Counter[str](), Counter[str](), Counter[str]()
        for pod in gang.all_pods:
            if pod.node_name:
                name = self._controller_of(pod)
                living[name] += pod.is_alive
                succeeded[name] += pod.has_succeeded
                failed[name] += pod.phase == "Failed"
        for name, number in Counter(map(self._controller_of, bound)).items():
            last, losses = last_binds.pop(name, None), 0
            if last is not None:
                lost = last.living - living[name] - (succeeded[name] - last.succeeded)
                lost = lost if gang.missing else min(lost, failed[name] - last.failed)
                stayed = (waiting_since if gang.missing else now) - last.at
                has_stayed = stayed >= max(_STAYED_SECONDS, 2 * self.backoff.after(last.losses))
                losses = 0 if has_stayed else last.losses + (lost > 0)
            last_binds[name] = LastBind(now, living[name] + number, succeeded[name], failed[name], losses)
        while len(last_binds) > _MOST_CONTROLLERS:
            del last_binds[next(iter(last_binds))]

    def back_off(self, gang: Gang) -> tuple[float, int]:
        """Return until when, on the clock, the bind of waiting members is delayed, and the losses in a row that cause that.

        Both are zero without a delay.
        """
        record = self.records.find(gang.key)
        last_binds = {name: last for name, last in record.last_binds.items() if last.losses} if record else {}
        if not last_binds:
            return 0.0, 0
        names = set(map(self._controller_of, gang.candidates)) & last_binds.keys()
        return max(
            ((last_binds[name].at + self.backoff.after(last_binds[name].losses), last_binds[name].losses) for name in names),
            default=(0.0, 0),
        )

    def _controller_of(self, pod: Pod) -> str:
        """Return the UID of the pod's root object, and the pod's revision if its controller has several; empty for a bare pod."""
        if pod.owner is None:
            return ""
        revision = pod.label("controller-revision-hash") if pod.owner.kind in ("StatefulSet", "DaemonSet") else None
        return f"{self.root_of(pod)}/{revision or ''}"
