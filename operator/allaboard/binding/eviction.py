"""Evict a pod as far as disruption budgets allow that, or only dry-run the eviction."""

from collections.abc import Mapping

from allaboard.kube.client import ApiServer
from allaboard.kube.paths import PODS
from allaboard.model.pod import Pod


async def evict(server: ApiServer, pod: Pod, preconditions: Mapping[str, str] | None = None, *, dry_run: bool = False) -> None:
    """Evict ``pod``, or only dry-run that. Raises ``ApiError``: 429 if a disruption budget forbids it, 404 if the pod is gone."""
    eviction: dict[str, object] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
    }
    if preconditions:
        eviction["deleteOptions"] = {"preconditions": dict(preconditions)}
    await server.post(PODS.named(pod.namespace, pod.name, "eviction"), eviction, {"dryRun": "All"} if dry_run else None)
