"""``allaboard plan`` refuses exactly the manifests that a real API server refuses."""

from pathlib import Path
from typing import Any

import pytest

from allaboard_sandbox import ApiError
from tests.unit.cli.plan_command import Plan, node

Object = dict[str, Any]

CONTAINER = {"name": "m", "image": "i"}
SELECTOR = {"matchLabels": {"app": "x"}}


def pod(**spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER], **spec}}


def requesting(of_the_pod: Object | None = None, **resources: Object) -> Object:
    return pod(containers=[{**CONTAINER, "resources": resources}], **({"resources": of_the_pod} if of_the_pod else {}))


def template(**spec: Any) -> Object:
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [CONTAINER], **spec}}


def workload(kind: str, api_version: str, **spec: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def deployment(**spec: Any) -> Object:
    return workload("Deployment", "apps/v1", **{"selector": SELECTOR, "template": template(), **spec})


def job(*, restart: str | None = "Never", **spec: Any) -> Object:
    return workload("Job", "batch/v1", **{"template": template(restartPolicy=restart), **spec})


def cron_job(schedule: str | None = "@daily", *, restart: str | None = "Never", **spec: Any) -> Object:
    job_template = {"spec": {"template": template(restartPolicy=restart)}}
    return workload("CronJob", "batch/v1", schedule=schedule, jobTemplate=job_template, **spec)


def service(**spec: Any) -> Object:
    return workload("Service", "v1", **{"ports": [{"port": 80}], **spec})


LABELS: list[Object] = [
    {"a": ""},
    {"a": None},
    {"a.b/C_d.e": "F_g.h"},
    {"a b": "c"},
    {"A.b/c": "d"},
    {"a/b/c": "d"},
    {"-a": "b"},
    {"a" * 64: "b"},
    {"a": "b c"},
    {"a": "-b"},
    {"a": "b" * 63},
    {"a": "b" * 64},
]

MANIFESTS: list[Object] = [
    *(pod(restartPolicy=policy) for policy in (None, "Always", "OnFailure", "Never", "never")),
    *(job(restart=policy) for policy in (None, "", "Always", "OnFailure", "Never")),
    *(cron_job(restart=policy) for policy in (None, "Always", "OnFailure")),
    *(deployment(template=template(restartPolicy=policy)) for policy in (None, "Always", "OnFailure")),
    job(suspend=True, restart=None),
    job(completions=1_000_000),
    job(completionMode="indexed"),
    pod(containers=[{"name": "m"}]),
    pod(containers=[{"image": "i"}]),
    pod(containers=[{"name": "A_b", "image": "i"}]),
    pod(containers=[{"name": "m", "image": " i"}]),
    pod(containers=[{"name": "m", "image": "a b"}]),
    pod(initContainers=[{"name": "i"}]),
    pod(initContainers=[CONTAINER]),
    deployment(template=template(containers=[{"name": "m"}])),
    deployment(replicas=0, template=template(containers=[{"name": "m"}])),
    deployment(selector=None),
    deployment(selector={}),
    deployment(selector={"matchLabels": {"app": "y"}}),
    deployment(template={**template(), "kind": "Pod"}),
    workload("StatefulSet", "apps/v1", selector=SELECTOR, template=template()),
    workload("StatefulSet", "apps/v1", selector=SELECTOR, template=template(), podManagementPolicy="parallel"),
    workload("ReplicationController", "v1", selector={"app": "x"}, template=template()),
    *(cron_job(each) for each in (None, "", "* * * * *", "* * * *", "@every 5m", "@reboot", "TZ=UTC * * * * *", "*/5 0-12 ? jan mon-fri")),
    *(cron_job(f"{each} * * * *") for each in ("60", "+5", "1,,2", "5-1", "*/0", "*-x", "1/2/3")),
    cron_job(concurrencyPolicy="forbid"),
    requesting(requests={"cpu": "2"}, limits={"cpu": "1"}),
    requesting(requests={"cpu": None}, limits={"cpu": "1"}),
    requesting(limits={"gpu": "1"}),
    requesting(requests={"nvidia.com/gpu": "1"}),
    requesting(requests={"cpu": "-1"}),
    requesting(limits={"hugepages-2Mi": "2Mi"}),
    requesting({"limits": {"cpu": "3"}}, requests={"cpu": "2"}),
    requesting({"limits": {"cpu": "1"}}, requests={"cpu": "2"}),
    requesting({"requests": {"cpu": "1"}}, requests={"cpu": "2"}),
    requesting({"limits": {"cpu": "3"}}, requests={"cpu": "2"}, limits={"cpu": "4"}),
    requesting({"limits": {"ephemeral-storage": "1"}}),
    *(pod(tolerations=[{"key": "a", "operator": each}]) for each in (None, "Equal", "Exists", "exists")),
    *(pod(tolerations=[{"key": "a", "effect": each}]) for each in (None, "", "NoExecute", "no")),
    pod(tolerations=[{"key": "a", "operator": "Exists", "value": "x"}]),
    *({**pod(), "metadata": {"name": "p", "labels": each}} for each in LABELS),
    *({**job(), "metadata": {"name": "a" * length}} for length in (63, 64)),
    *({**cron_job(), "metadata": {"name": "a" * length}} for length in (52, 53)),
    *({**deployment(), "metadata": {"name": "a" * length}} for length in (64, 254)),
    service(),
    service(selctor={"app": "x"}),
    service(ports=[{"port": 80, "tragetPort": 80}]),
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "dta": {}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labls": {}}},
]


@pytest.mark.needs_kubernetes("1.37", "a plan refuses what that version does")
def test_plan_refuses_the_same_manifests_as_the_api_server(control_plane: Any, tmp_path: Path) -> None:
    plan = Plan(tmp_path).cluster(node("n1", cpu="8"))
    wrong = []
    for manifest in MANIFESTS:
        path = control_plane.api.resource(manifest["kind"], manifest["apiVersion"]).path("default")
        try:
            control_plane.api.request("POST", path, manifest, {"dryRun": "All", "fieldValidation": "Strict"})
            problem = ""
        except ApiError as error:
            problem = str(error)
        planned = plan.manifest(manifest).run()
        if (planned.exit_code == 2) != bool(problem):
            wrong.append((manifest, problem, planned.output))
    assert wrong == []
