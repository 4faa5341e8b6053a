"""What a gang's members ask of nodes besides what their own specs say: where their volumes are, and which pods keep them away."""

from dataclasses import replace

from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import UnboundClaimError, VolumeView
from allaboard.model.gang import Gang, Hold
from allaboard.model.pod import Pod


def in_surroundings(gang: Gang, volumes: VolumeView, view: ClusterView) -> Gang:
    """``gang`` with all that its candidates ask as of now; held when a volume of one can't be told yet."""
    members = []
    for pod in gang.members:
        try:
            members.append(_placed(pod, volumes, view) if pod.is_candidate else pod)
        except UnboundClaimError as error:
            return replace(gang, hold=gang.hold or Hold("UnboundVolumes", f"pod {pod.name}: {error}", pod, "spec.volumes"))
    return replace(gang, members=tuple(members))


def _placed(pod: Pod, volumes: VolumeView, view: ClusterView) -> Pod:
    resolved = volumes.resolve(pod)
    avoided = view.avoided(pod)
    return replace(resolved, spec=replace(resolved.spec, avoided=avoided)) if avoided else resolved
