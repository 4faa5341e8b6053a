"""Kubelets that look whether there is room for a pod before they run it, as real ones do and kwok's don't."""

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
        left = _room_left(cluster, [pod for pod in found if pod["status"]["phase"] == "Running"])
        waiting = [pod for pod in found if pod["status"]["phase"] == "Pending" and not pod["metadata"].get("deletionTimestamp")]
        for pod in sorted(waiting, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            room, asked = left[pod["spec"]["nodeName"]], requests_of(pod)
            known = [resource for resource in asked if "/" not in resource or resource in room]  # as kubelets have it
            lacking = [resource for resource in known if asked[resource] > room[resource]]
            status: Body = {"phase": "Failed", "reason": f"OutOf{lacking[0]}"} if lacking else {"phase": "Running"}
            # It may have been deleted in the meantime.
            with suppress(ApiError):
                await asyncio.to_thread(cluster.patch, "pods", pod["metadata"]["name"], {"status": status}, "default", "status")
                for resource in known if not lacking else ():
                    room[resource] -= asked[resource]
        await asyncio.sleep(_POLL_SECONDS)


def _room_left(cluster: Cluster, admitted: list[Body]) -> dict[str, dict[str, Fraction]]:
    left: dict[str, dict[str, Fraction]] = {
        node["metadata"]["name"]: defaultdict(Fraction, {name: parse(text) for name, text in node["status"]["allocatable"].items()})
        for node in cluster.list("nodes")
    }
    for pod in admitted:
        for resource, quantity in requests_of(pod).items():
            if "/" not in resource or resource in left[pod["spec"]["nodeName"]]:
                left[pod["spec"]["nodeName"]][resource] -= quantity
    return left
