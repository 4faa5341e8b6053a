"""Delays the next bind of members that are lost again and again, soon after they were bound.

A node may reject each pod that it gets, and the controller recreates each at once. The first loss is replaced at once. The second in a row
is replaced a second after the last bind, then two seconds, four, … up to the longest backoff. The count returns to zero once members have
stayed for a minute, or for twice as long as the last backoff.

Members are counted by controller and revision. So a member that a rolling update replaces on purpose isn't lost, and a run that starts
beside others has lost no member.
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
"""Members that have stayed for so long weren't lost soon."""
_MOST_CONTROLLERS = 16
"""The most controllers of one gang whose last bind is remembered."""


@dataclass(slots=True)
class Losses:
    """Counts the members that each gang lost soon after their bind. ``backoff`` is the one after so many losses in a row."""

    records: GangRecords
    root_of: Callable[[Pod], str]
    backoff: Backoff
    clock: Callable[[], float] = time.monotonic

    def observe_bind(self, gang: Gang, bound: Collection[Pod], waiting_since: float) -> None:
        """Record that ``bound`` were bound for ``gang``, the gang before that. Count what their controllers lost since the last bind.

        ``waiting_since`` is when the gang began to lack members. Members beyond the minimum are lost only if they have failed: others may
        have been removed on purpose.
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
        """Return when the gang's candidates may be bound, on the clock, and after how many losses in a row; zeros without a delay."""
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
        """Return the pod's controller and template: its UID, and the revision where a controller has several; empty for bare pods."""
        if pod.owner is None:
            return ""
        revision = pod.label("controller-revision-hash") if pod.owner.kind in ("StatefulSet", "DaemonSet") else None
        return f"{self.root_of(pod)}/{revision or ''}"
