"""Whether a plan is good for a gang and the cluster as they are by now: the last look before seats are promised."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from allaboard.binding.answers import MembersChanged, Refused, Seat
from allaboard.cluster.view import ClusterView
from allaboard.model.gang import Gang
from allaboard.model.rules import rules_of
from allaboard.placement import verify
from allaboard.placement.rules.verify import chosen_devices


def checked(gang: Gang, assignments: Mapping[str, str], view: ClusterView) -> Sequence[Seat] | Refused:
    """The seats of a plan (node name by pod UID) of which nothing is promised yet, if it is good for the gang and the cluster as they are.

    ``gang`` must be as fresh as the view: members that have gone since the plan was made are left out, and the rest must make a quorum.
    """
    # 1. Who is still there to be seated?
    pods = {pod.uid: pod for pod in gang.candidates}
    seats = [Seat(pods[uid], node_name) for uid, node_name in assignments.items() if uid in pods]
    if not seats or gang.missing_once_bound({seat.pod.uid for seat in seats}):
        return Refused(MembersChanged(len(seats), gang.missing))
    # 2. Does everybody still fit? Plain integers against the view as it is now.
    seated = {seat.pod.uid: seat.node_name for seat in seats}
    snapshot = view.snapshot()
    violations = verify(seated, [seat.pod for seat in seats], snapshot, rules_of(gang))
    if violations:
        return Refused(violations[0])
    # 3. Which devices? Here, where nothing is promised in between.
    devices = chosen_devices(seated, [seat.pod for seat in seats], snapshot)
    return [replace(seat, devices=devices.get(seat.pod.uid, ())) for seat in seats] if devices else seats
