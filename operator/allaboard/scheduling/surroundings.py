"""What a gang's members ask of nodes besides what their own specs say: where their volumes are, which pods keep them away, and where
those are that they must be together with.
"""

from dataclasses import replace

from allaboard.cluster.view import ClusterView
from allaboard.cluster.volumes import UnboundClaimError, VolumeView
from allaboard.model.constraints import NodeSelectorTerm, Requirement
from allaboard.model.gang import Gang, Hold
from allaboard.model.pod import Pod

Terms = tuple[NodeSelectorTerm, ...]


def in_surroundings(gang: Gang, volumes: VolumeView, view: ClusterView) -> Gang:
    """``gang`` with all that its candidates ask as of now; held when a volume of one can't be told yet."""
    members = []
    near = _near(gang, view)
    for pod in gang.members:
        try:
            members.append(_placed(pod, volumes, view, near.get(pod.uid, ())) if pod.is_candidate else pod)
        except UnboundClaimError as error:
            return replace(gang, hold=gang.hold or Hold("UnboundVolumes", f"pod {pod.name}: {error}", pod, "spec.volumes"))
    return replace(gang, members=tuple(members))


def _placed(pod: Pod, volumes: VolumeView, view: ClusterView, near: tuple[Terms, ...]) -> Pod:
    resolved = volumes.resolve(pod)
    avoided = view.avoided(pod)
    return replace(resolved, spec=replace(resolved.spec, avoided=avoided, near=near)) if avoided or near else resolved


def _near(gang: Gang, view: ClusterView) -> dict[str, tuple[Terms, ...]]:
    """Where candidates must go because members are there that they must be together with, by uid."""
    found: dict[str, tuple[Terms, ...]] = {}
    for (label, _), members in gang.together.items():
        nodes = (view.node(pod.node_name) for pod in members if pod.node_name)
        values = tuple(sorted({node.labels[label] for node in nodes if node is not None and label in node.labels}))
        if values:
            term = (NodeSelectorTerm(expressions=(Requirement(label, "In", values[:1]),)),)
            found.update({pod.uid: (*found.get(pod.uid, ()), term) for pod in members})
    return found
