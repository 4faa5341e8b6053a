"""Labels the pod of the replica that leads, so that the Service of the API leads callers there: other replicas know no reasons."""

import asyncio
import logging

from allaboard.kube.client import STRATEGIC_PATCH, ApiServer
from allaboard.kube.errors import ApiError
from allaboard.kube.lists import listed
from allaboard.kube.paths import PODS
from allaboard.model.errors import MalformedError
from allaboard.model.raw_fields import mapping, text

logger = logging.getLogger(__name__)

LEADS = "allaboard.dev/leads"
"""The label of the leader's pod; its value is ``true``."""


async def keep_label(server: ApiServer, namespace: str, pod: str, leads: asyncio.Event, seconds: float) -> None:
    """Label the pod of this replica once it ``leads``, and again every so many seconds, until cancelled.

    A replica never leads again after it has lost the lease: its process ends. Outside of a cluster there is no such pod, and nothing is
    labelled.
    """
    await leads.wait()
    while True:
        try:
            await move_label(server, namespace, pod)
        except (ApiError, MalformedError) as error:
            logger.warning("the Service of the API may lead to another replica: pod %s/%s can't be labelled: %s", namespace, pod, error)
        await asyncio.sleep(seconds)


async def move_label(server: ApiServer, namespace: str, pod: str) -> None:
    """Label ``pod``, and remove the label of other pods. Raises ``ApiError``, and ``MalformedError`` for a pod that can't be read."""
    try:
        own = await server.get(PODS.named(namespace, pod))
    except ApiError as error:
        if error.status == 404:
            return
        raise
    for raw in await listed(server, PODS.within(namespace), {"labelSelector": f"{LEADS}=true"}):
        name = text(mapping(raw, "metadata"), "name", path="metadata.")
        if name != pod:
            await _write(server, namespace, name, None)
    if (mapping(mapping(own, "metadata"), "labels", "metadata.")).get(LEADS) != "true":
        await _write(server, namespace, pod, "true")


async def _write(server: ApiServer, namespace: str, pod: str, value: str | None) -> None:
    # By the status, to which the operator has the right: a write to the status can change labels, too.
    await server.write(PODS.named(namespace, pod, "status"), {"metadata": {"labels": {LEADS: value}}}, STRATEGIC_PATCH)
