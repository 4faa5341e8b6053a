"""The stand-in Deployment controller rolls out, rolls back and scales pods as the real controller does."""

from collections.abc import Callable
from typing import Any

import pytest

from allaboard_sandbox import ApiError, Sandbox
from allaboard_sandbox.api import WriteOptions
from allaboard_sandbox.binding import bind
from allaboard_sandbox.controllers.deployment import Size, margins, rolled_sizes

Body = dict[str, Any]
REVISION = "deployment.kubernetes.io/revision"


def template(version: int) -> Body:
    container = {"name": "main", "image": f"busybox:{version}"}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def deployment(replicas: int = 4, **spec: Any) -> Body:
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(1), **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": body}


def pods(sandbox: Sandbox, version: int) -> list[Body]:
    return [pod for pod in sandbox.list("pods") if pod["spec"]["containers"][0]["image"] == f"busybox:{version}"]


def counts(*wanted: int) -> Callable[[Sandbox], bool]:
    """Return a predicate: whether each version has the wanted number of pods."""
    return lambda sandbox: [len(pods(sandbox, version)) for version in range(1, len(wanted) + 1)] == list(wanted)


def is_settled(sandbox: Sandbox) -> bool:
    """Return whether the Deployment's status counts all pods as available."""
    found = sandbox.get("deployments", "web") or {}
    return found["status"].get("availableReplicas") == len(sandbox.list("pods"))


async def run_all(sandbox: Sandbox, version: int) -> None:
    """Bind all pods of a version and wait until they run."""
    for pod in pods(sandbox, version):
        if not pod["spec"].get("nodeName"):
            name = pod["metadata"]["name"]
            bind(sandbox.api, "default", name, {"metadata": {"name": name}, "target": {"name": "node-1"}}, WriteOptions())
    await sandbox.wait_for(lambda cluster: all(pod["status"]["phase"] == "Running" for pod in pods(cluster, version)))


async def started(sandbox: Sandbox, body: Body) -> None:
    """Create a Deployment and let its pods run."""
    sandbox.add_node("node-1")
    sandbox.create(body)
    await sandbox.wait_for(counts(body["spec"]["replicas"]))
    await run_all(sandbox, 1)
    await sandbox.wait_for(is_settled)


async def test_a_rollout_surges_by_a_quarter_and_keeps_three_quarters_available(sandbox: Sandbox) -> None:
    await started(sandbox, deployment(4))
    sandbox.patch("deployments", "web", {"spec": {"template": template(2)}})
    await sandbox.wait_for(counts(3, 2))
    await run_all(sandbox, 2)
    await sandbox.wait_for(counts(1, 4))
    await run_all(sandbox, 2)
    await sandbox.wait_for(counts(0, 4))
    await sandbox.wait_for(lambda cluster: (cluster.get("deployments", "web") or {})["status"].get("updatedReplicas") == 4)


async def test_a_rollout_whose_new_pods_do_not_start_keeps_the_old_pods(sandbox: Sandbox) -> None:
    await started(sandbox, deployment(4, strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}))
    sandbox.patch("deployments", "web", {"spec": {"template": template(2)}})
    await sandbox.wait_for(counts(4, 1))
    sandbox.patch("deployments", "web", {"metadata": {"labels": {"looked": "again"}}})
    await sandbox.wait_for(lambda cluster: (cluster.get("deployments", "web") or {})["status"].get("replicas") == 5)
    assert counts(4, 1)(sandbox)


async def test_old_pods_that_are_unavailable_are_deleted_first(sandbox: Sandbox) -> None:
    await started(sandbox, deployment(2))
    sandbox.patch("deployments", "web", {"spec": {"template": template(2)}})
    await sandbox.wait_for(counts(2, 1))
    sandbox.patch("deployments", "web", {"spec": {"template": template(3)}})
    await sandbox.wait_for(counts(2, 0, 1))


async def test_a_deployment_with_strategy_recreate_waits_until_its_old_pods_are_gone(sandbox: Sandbox) -> None:
    await started(sandbox, deployment(2, strategy={"type": "Recreate"}))
    held = pods(sandbox, 1)[0]["metadata"]["name"]
    sandbox.patch("pods", held, {"metadata": {"finalizers": ["example.com/held"]}})
    sandbox.patch("deployments", "web", {"spec": {"template": template(2)}})
    await sandbox.wait_for(counts(1, 0))
    sandbox.patch("pods", held, {"metadata": {"finalizers": None}})
    await sandbox.wait_for(counts(0, 2))


async def test_a_rollback_reuses_the_replica_set_of_its_template(sandbox: Sandbox) -> None:
    await started(sandbox, deployment(1))
    sandbox.patch("deployments", "web", {"spec": {"template": template(2)}})
    await sandbox.wait_for(counts(1, 1))
    sandbox.patch("deployments", "web", {"spec": {"template": template(1)}})
    await sandbox.wait_for(counts(1, 0))
    sets = {each["spec"]["template"]["spec"]["containers"][0]["image"]: each["metadata"] for each in sandbox.list("replicasets")}
    assert {image: each["annotations"][REVISION] for image, each in sets.items()} == {"busybox:1": "3", "busybox:2": "2"}
    assert all(each["name"] == f"web-{each['labels']['pod-template-hash']}" for each in sets.values())
    assert (sandbox.get("deployments", "web") or {})["metadata"]["annotations"][REVISION] == "3"


async def test_a_paused_deployment_is_scaled_but_not_rolled_out(sandbox: Sandbox) -> None:
    await started(sandbox, deployment(2))
    sandbox.patch("deployments", "web", {"spec": {"template": template(2), "paused": True, "replicas": 3}})
    await sandbox.wait_for(counts(3, 0))
    sandbox.patch("deployments", "web", {"spec": {"paused": False}})
    await sandbox.wait_for(lambda cluster: bool(pods(cluster, 2)))


async def test_old_replica_sets_beyond_the_history_limit_are_deleted(sandbox: Sandbox) -> None:
    await started(sandbox, deployment(1, revisionHistoryLimit=0))
    sandbox.patch("deployments", "web", {"spec": {"template": template(2)}})
    await sandbox.wait_for(counts(1, 1))
    await run_all(sandbox, 2)
    await sandbox.wait_for(lambda cluster: len(cluster.list("replicasets")) == 1)


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        pytest.param(4, "25%", "25%", (1, 1), id="even"),
        pytest.param(5, "25%", "25%", (2, 1), id="surge-up-and-unavailable-down"),
        pytest.param(1, "25%", "25%", (1, 0), id="one-replica"),
        pytest.param(3, 0, "10%", (0, 1), id="both-round-to-nothing"),
        pytest.param(2, 0, 5, (0, 2), id="more-than-there-are"),
    ],
)
def test_percentages_are_rounded_as_by_the_real_controller(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    assert margins({"replicas": replicas, "strategy": strategy}) == expected


@pytest.mark.parametrize("replicas", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize(("surge", "unavailable"), [("25%", "25%"), (1, 0), (0, 1), ("100%", 0), (3, "50%")])
def test_a_rollout_ends_and_never_has_too_many_or_too_few_pods(replicas: int, surge: int | str, unavailable: int | str) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    spec = {"replicas": replicas, "strategy": strategy}
    most, least = replicas + margins(spec)[0], replicas - margins(spec)[1]
    new, old = Size(0), Size(replicas, replicas)
    for _ in range(10 * replicas):
        sizes = rolled_sizes(spec, "new", new, {"old": old})
        # All new pods become available before the next step.
        new, old = Size(sizes.get("new", new.replicas), sizes.get("new", new.replicas)), Size(*[sizes.get("old", old.replicas)] * 2)
        assert new.replicas + old.replicas <= most
        assert new.available + old.available >= least
        if (new.replicas, old.replicas) == (replicas, 0):
            return
    pytest.fail(f"{new} new and {old} old pods are left")


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"type": "OnDelete"}, 'spec.strategy.type: Unsupported value: "OnDelete": supported values: "Recreate", "RollingUpdate"'),
        ({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}, "may not be specified when strategy `type` is 'Recreate'"),
        ({"rollingUpdate": {"maxSurge": "many"}}, "a valid percent string must be"),
    ],
)
def test_an_invalid_strategy_is_refused(sandbox: Sandbox, strategy: Body, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        sandbox.create(deployment(1, strategy=strategy))
