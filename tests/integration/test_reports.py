"""Events, pod conditions and PodGroup status of a gang, as kubectl shows them."""

from functools import partial

from allaboard.cli.stories import manifest
from allaboard_sandbox.faults import Fault
from tests.cluster import Cluster
from tests.stories import gang_pod, gpu_nodes, running, status_of

from .conftest import StartApp


def has_event(cluster: Cluster, kind: str, name: str, text: str) -> bool:
    """Return whether an event about the object contains ``text``."""
    events = [
        event for event in cluster.list("events") if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
    ]
    return any(text in (event.get("message") or "") for event in events)


def reason_of(cluster: Cluster, pod: str) -> str:
    """Return the reason of the condition PodScheduled=False; empty if there is none."""
    conditions = ((cluster.get("pods", pod) or {}).get("status") or {}).get("conditions") or ()
    return next((each["reason"] for each in conditions if (each["type"], each["status"]) == ("PodScheduled", "False")), "")


def are_refused(names: str, text: str, reason: str, cluster: Cluster) -> bool:
    """Return whether each pod of ``names`` (one letter each) has an event with ``text`` and the condition's reason ``reason``."""
    return all(has_event(cluster, "Pod", name, text) and reason_of(cluster, name) == reason for name in names)


async def test_gang_with_a_missing_member_reports_how_many_members_are_missing_and_its_timeout(
    cluster: Cluster, start_app: StartApp
) -> None:
    cluster.add_node("node-1")
    await start_app(schedule_timeout_seconds=4)
    for name in "ab":
        cluster.create(gang_pod(name))
    text = "waiting for members: 2 of 3 exist"
    await cluster.wait_for(partial(are_refused, "ab", text, "WaitingForMembers"), message="each pod reports the missing member")
    await cluster.wait_for(lambda s: has_event(s, "PodGroup", "gang", text), message="the PodGroup reports it too")
    await cluster.wait_for(lambda s: has_event(s, "PodGroup", "gang", f"not scheduled within 4 s: podgroup default/gang: {text}"))
    cluster.create(gang_pod("c"))
    await cluster.wait_for(lambda s: running(s) == 3, message="the gang starts all the same")


async def test_refusal_is_reported_on_each_member_and_on_the_pod_group(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1", cpu="2")
    await start_app()
    for name in "abc":
        cluster.create(gang_pod(name))
    await cluster.wait_for(partial(are_refused, "abc", "2 of 3 members placeable", "Unschedulable"))
    await cluster.wait_for(lambda s: has_event(s, "PodGroup", "gang", "2 of 3 members placeable"))
    assert status_of(cluster, "gang")["phase"] == "Pending"


async def test_invalid_label_is_reported_on_each_member_of_the_held_gang(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    await start_app()
    for name in "abc":
        cluster.create(gang_pod(name, minimum="many"))
    await cluster.wait_for(partial(are_refused, "abc", "'many' is not a whole number", "SchedulerError"))


async def test_job_whose_pods_are_deleted_on_success_stays_finished_after_an_operator_restart(
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
    await cluster.wait_for(lambda s: status_of(s, "tf-smoke-gpu").get("reason") == "Ended", message="the PodGroup shows the end")
    ended = {name: status_of(cluster, "tf-smoke-gpu")[name] for name in ("phase", "message")}
    assert ended == {"phase": "Finished", "message": "ended: 1 member succeeded, 0 failed"}
    await app.stop()
    await start_app()
    cluster.create(gang_pod("x", "later", 1))
    await cluster.wait_for(lambda s: running(s) == 1, message="the next operator schedules")
    assert status_of(cluster, "tf-smoke-gpu")["phase"] == "Finished"


async def test_pod_group_of_a_suspended_job_waits_for_members_until_it_is_resumed(cluster: Cluster, start_app: StartApp) -> None:
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


async def test_line_breaks_in_a_webhook_refusal_are_escaped_in_statuses_and_events(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", times=10_000, status=403, dry_run=None, message="denied\nall is well"))
    await start_app()
    cluster.create(gang_pod("a", minimum=1))
    await cluster.wait_for(lambda s: "denied\\nall is well" in status_of(s, "gang").get("message", ""))
    await cluster.wait_for(lambda s: has_event(s, "Pod", "a", "denied\\nall is well"))
