"""Count how many members of each gang have succeeded and failed, while their pods still exist.

Job operators delete the pods of an ended job (cleanPodPolicy), and suspending a Job deletes its pods, too. The remaining pods don't show
whether the job has ended or was suspended. So each end of a pod is counted when it happens. A new pod resets the counts: it continues the
run, or begins the next one.
"""

from dataclasses import dataclass

from allaboard.gangs.membership import membership_of
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import GangKey
from allaboard.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Ends:
    """The numbers of a gang's members that have succeeded and failed since the gang's last new pod."""

    succeeded: int = 0
    failed: int = 0


def ends_after(ends: Ends | None, old: Pod | None, new: Pod | None) -> Ends | None:
    """Return a gang's ends after one of its pods has changed from ``old`` to ``new``; None stands for a pod that doesn't exist.

    ``ends`` are the gang's ends before the change, None if no change was seen before.

    A pod that is deleted while it is alive counts neither as succeeded nor as failed: its job has ended or was suspended. Disrupted pods
    (evicted, preempted, lost with their node) count as failed. If a living pod of a batch Job is deleted, the successes are reset to zero:
    a Job deletes no pod of a run that goes well, so earlier successes don't mean that the Job is done.
    """
    if new is not None and old is None:
        return Ends() if new.is_alive and not new.node_name else ends
    pod = new or old
    if old is None or pod is None or not old.is_alive or (new is not None and new.is_alive):
        return ends
    known = ends or Ends()
    if pod.is_disrupted or (pod.phase == "Failed" and not pod.is_terminating):
        return Ends(known.succeeded, known.failed + 1)
    if pod.has_succeeded:
        return Ends(known.succeeded + 1, known.failed)
    return Ends(0, known.failed) if pod.is_of_job else ends


class Endings:
    """The ends of members that this process has seen, by gang. Used in the event loop's thread only."""

    def __init__(self, registry: GangRegistry) -> None:
        self._registry = registry
        self._ends: dict[GangKey, Ends] = {}
        registry.listen(self._forget_unknown)

    def find(self, key: GangKey) -> Ends | None:
        """Return the ends of a gang's members; None if this process has seen neither a new pod nor an end of the gang's pods."""
        return self._ends.get(key)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Count a pod that has ended by its change from ``old`` to ``new``; None stands for a pod that doesn't exist."""
        if old is not None and new is not None:
            if old.uid != new.uid:
                self.observe_pod(old, None)
                old = None
            elif old.is_alive == new.is_alive:
                return
        pod = new or old
        if pod is None or not self._registry.is_ours(pod):
            return
        key = membership_of(pod).key
        ends = ends_after(self._ends.get(key), old, new)
        if ends is not None and key.kind == "PodGroup" and self._registry.knows(key):
            self._ends[key] = ends

    def _forget_unknown(self, key: GangKey) -> None:
        if key in self._ends and not self._registry.knows(key):
            del self._ends[key]
