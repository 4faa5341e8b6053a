"""What ``kubectl describe`` and ``kubectl get podgroups`` say of a gang, and for how long."""

from functools import partial

from allaboard.cli.stories import manifest
from allaboard_sandbox.faults import Fault
from tests.cluster import Cluster
from tests.stories import gang_pod, gpu_nodes, running, status_of

from .conftest import StartApp


def noted(cluster: Cluster, kind: str, name: str, text: str) -> bool:
    """Whether an event about the object says ``text``."""
    about = [
        event for event in cluster.list("events") if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
    ]
    return any(text in (event.get("message") or "") for event in about)


def reason_of(cluster: Cluster, pod: str) -> str:
    """The reason of the condition PodScheduled=False."""
    conditions = ((cluster.get("pods", pod) or {}).get("status") or {}).get("conditions") or ()
    return next((each["reason"] for each in conditions if (each["type"], each["status"]) == ("PodScheduled", "False")), "")


def is_told(names: str, text: str, reason: str, cluster: Cluster) -> bool:
    """Whether each pod has an event that says ``text``, and its condition ``reason``."""
    return all(noted(cluster, "Pod", name, text) and reason_of(cluster, name) == reason for name in names)


async def test_members_are_told_that_their_gang_waits_for_others_and_for_too_long(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    await start_app(schedule_timeout_seconds=4)
    for name in "ab":
        cluster.create(gang_pod(name))
    text = "waiting for members: 2 of 3 exist"
    await cluster.wait_for(partial(is_told, "ab", text, "WaitingForMembers"), message="each pod says what is awaited")
    await cluster.wait_for(lambda s: noted(s, "PodGroup", "gang", text), message="the PodGroup says so")
    await cluster.wait_for(lambda s: noted(s, "PodGroup", "gang", f"not scheduled within 4 s: podgroup default/gang: {text}"))
    cluster.create(gang_pod("c"))
    await cluster.wait_for(lambda s: running(s) == 3, message="the gang starts all the same")


async def test_each_member_of_a_gang_without_room_is_told_why_and_its_podgroup(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1", cpu="2")
    await start_app()
    for name in "abc":
        cluster.create(gang_pod(name))
    await cluster.wait_for(partial(is_told, "abc", "2 of 3 members placeable", "Unschedulable"))
    await cluster.wait_for(lambda s: noted(s, "PodGroup", "gang", "2 of 3 members placeable"))
    assert status_of(cluster, "gang")["phase"] == "Pending"


async def test_each_member_of_a_held_gang_is_told_what_to_mend(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    await start_app()
    for name in "abc":
        cluster.create(gang_pod(name, minimum="many"))
    await cluster.wait_for(partial(is_told, "abc", "'many' is not a whole number", "SchedulerError"))


async def test_a_job_whose_pods_are_deleted_when_it_succeeds_is_finished_also_for_the_next_operator(
    cluster: Cluster, start_app: StartApp
) -> None:
    gpu_nodes(cluster)
    app = await start_app()
    (job,) = manifest("tfjob-smoke-gpu.yaml")
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "All"}
    cluster.create(job)
    await cluster.wait_for(lambda s: running(s) == 5 and bool(status_of(s, "tf-smoke-gpu")), message="all run, and there is a PodGroup")
    cluster.finish_pod("tf-smoke-gpu-worker-0")
    await cluster.wait_for(lambda s: not s.list("pods"), message="the job operator deletes all pods")
    await cluster.wait_for(lambda s: status_of(s, "tf-smoke-gpu").get("phase") == "Finished")
    ended = {name: status_of(cluster, "tf-smoke-gpu")[name] for name in ("reason", "message")}
    assert ended == {"reason": "Ended", "message": "ended: 1 member succeeded, 0 failed"}
    await app.stop()
    await start_app()
    cluster.create(gang_pod("x", "later", 1))
    await cluster.wait_for(lambda s: running(s) == 1, message="the next operator schedules")
    assert status_of(cluster, "tf-smoke-gpu")["phase"] == "Finished"


async def test_a_job_that_is_suspended_waits_for_its_members(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    await start_app()
    pod = gang_pod("x", "sj", 2)
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": {**pod["spec"], "restartPolicy": "Never"}}
    spec = {"completions": 2, "parallelism": 2, "template": template}
    cluster.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sj", "namespace": "default"}, "spec": spec})
    await cluster.wait_for(lambda s: running(s) == 2 and bool(status_of(s, "sj")), message="all run, and there is a PodGroup")
    cluster.patch("jobs", "sj", {"spec": {"suspend": True}})
    await cluster.wait_for(lambda s: status_of(s, "sj").get("reason") == "WaitingForMembers", message="the PodGroup waits for members")
    assert status_of(cluster, "sj")["phase"] == "Pending"
    cluster.patch("jobs", "sj", {"spec": {"suspend": False}})
    await cluster.wait_for(lambda s: status_of(s, "sj").get("phase") == "Running")


async def test_a_webhooks_refusal_with_line_ends_is_one_line_wherever_it_is_told(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", times=10_000, status=403, dry_run=None, message="denied\nall is well"))
    await start_app()
    cluster.create(gang_pod("a", minimum=1))
    await cluster.wait_for(lambda s: "denied\\nall is well" in status_of(s, "gang").get("message", ""))
    await cluster.wait_for(lambda s: noted(s, "Pod", "a", "denied\\nall is well"))
