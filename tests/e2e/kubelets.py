"""Fake kubelets that check a node's capacity before they run a pod, as real kubelets do and kwok's don't."""

import asyncio
from collections import defaultdict
from contextlib import AbstractAsyncContextManager, suppress
from fractions import Fraction
from functools import partial

from allaboard_sandbox import ApiError
from allaboard_sandbox.quantities import parse
from tests.cluster import Body, Cluster
from tests.tasks import beside

from .workloads import requests_of

_POLL_SECONDS = 0.03


def admitting(cluster: Cluster) -> AbstractAsyncContextManager[None]:
    """Run the pods that fit, in the order in which they were bound, and reject the others, until the context ends.

    The cluster's own fake kubelets must not start pods.
    """
    return beside(partial(_admit, cluster))


async def _admit(cluster: Cluster) -> None:
    while True:
        found = [pod for pod in cluster.list("pods") if pod["spec"].get("nodeName")]
        left = _free_capacity(cluster, [pod for pod in found if pod["status"]["phase"] == "Running"])
        waiting = [pod for pod in found if pod["status"]["phase"] == "Pending" and not pod["metadata"].get("deletionTimestamp")]
        for pod in sorted(waiting, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            free, requested = left[pod["spec"]["nodeName"]], requests_of(pod)
            known = [
                resource for resource in requested if "/" not in resource or resource in free
            ]  # kubelets ignore extended resources that the node doesn't have
            lacking = [resource for resource in known if requested[resource] > free[resource]]
            status: Body = {"phase": "Failed", "reason": f"OutOf{lacking[0]}"} if lacking else {"phase": "Running"}
            # The pod may have been deleted meanwhile.
            with suppress(ApiError):
                await asyncio.to_thread(cluster.patch, "pods", pod["metadata"]["name"], {"status": status}, "default", "status")
                for resource in known if not lacking else ():
                    free[resource] -= requested[resource]
        await asyncio.sleep(_POLL_SECONDS)


def _free_capacity(cluster: Cluster, admitted: list[Body]) -> dict[str, dict[str, Fraction]]:
    left: dict[str, dict[str, Fraction]] = {
        node["metadata"]["name"]: defaultdict(Fraction, {name: parse(text) for name, text in node["status"]["allocatable"].items()})
        for node in cluster.list("nodes")
    }
    for pod in admitted:
        for resource, quantity in requests_of(pod).items():
            if "/" not in resource or resource in left[pod["spec"]["nodeName"]]:
                left[pod["spec"]["nodeName"]][resource] -= quantity
    return left
