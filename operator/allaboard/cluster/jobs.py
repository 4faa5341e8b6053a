"""What a batch Job makes of a lost pod: a failure, even of one that was evicted before it ran, unless its policy ignores disruptions."""

from allaboard.cluster.client import ApiError, ApiServer
from allaboard.model.errors import MalformedError
from allaboard.model.fields import items, mapping
from allaboard.model.pod import Pod
from allaboard.model.requests import RawObject


async def ignores_disruption(server: ApiServer, pod: Pod) -> bool:
    """Whether the batch Job of ``pod`` doesn't count an evicted pod as failed. Raises ``ApiError``."""
    if pod.owner is None:
        return False
    version = pod.owner.api_version
    try:
        job = await server.get(f"/apis/{version}/namespaces/{pod.namespace}/jobs/{pod.owner.name}")
    except ApiError as error:
        if error.status == 404:
            return True  # nobody is left to count
        if error.status == 403:
            return False
        raise
    return job["metadata"].get("uid") == pod.owner.uid and policy_ignores_disruption(job)


def policy_ignores_disruption(job: RawObject) -> bool:
    """Whether a rule about ``DisruptionTarget`` comes first that ignores it; a rule before it about the exit code can't match."""
    try:
        for path, rule in items(mapping(mapping(job, "spec"), "podFailurePolicy"), "rules"):
            for _, condition in items(rule, "onPodConditions", path):
                if condition.get("type") == "DisruptionTarget" and condition.get("status", "True") == "True":
                    return rule.get("action") == "Ignore"
    except MalformedError:
        return False
    return False
