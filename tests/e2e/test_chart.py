"""The chart installs the same objects as config/ with every option, and a real API server accepts them."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from allaboard.reloading import AT_RUN_TIME
from allaboard.settings.options import Settings

from .controlplane.binaries import HELM, MONITORING_CRDS, PROMETHEUS_OPERATOR, ensure, module_file
from .controlplane.controlplane import ControlPlane
from .document import blocks_under
from .shipped import CONFIG, NAMESPACE, ROOT, Kubectl, api_server, installed, kubectl, manifests

__all__ = ["api_server", "installed", "kubectl", "manifests"]

CHART = ROOT / "charts" / "allaboard"
RELEASE_LABELS = ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")

OPTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "nothing": ((), ()),
    "service": (("service",), ("service.enabled=true",)),
    "service-monitor": (("service", "service-monitor"), ("serviceMonitor.enabled=true",)),
    "alerts": (("alerts",), ("alerts.enabled=true",)),
    "dashboard": (("dashboard",), ("dashboard.enabled=true",)),
    "disruption-budget": (("disruption-budget",), ("podDisruptionBudget.enabled=true",)),
    "network-policy": (("network-policy",), ("networkPolicy.enabled=true",)),
    "priority-class": (("priority-class",), ("priorityClass.create=true",)),
    "admission": (("admission",), ("admission.enabled=true",)),
    "pipelines": (("pipelines",), ("pipelines.enabled=true",)),
    "provisioning": (("provisioning",), ("provisioning.enabled=true",)),
    "api": (("api",), ("api.enabled=true",)),
    "ui": (("ui",), ("ui.enabled=true",)),
}
"""Options by name: components of config/, and the chart's values with the same effect."""

ALL_OF_IT = tuple(tuple(dict.fromkeys(each for chosen in column for each in chosen)) for column in zip(*OPTIONS.values(), strict=True))

Body = dict[str, Any]
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def helm() -> Helm:
    """Return a function that runs Helm."""
    program = ensure([HELM], Console(stderr=True))["helm"]

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)

    return call


@pytest.mark.parametrize("option", [*OPTIONS, "all of it"])
def test_chart_and_the_components_install_the_same_objects(option: str, helm: Helm, tmp_path: Path) -> None:
    components, values = OPTIONS.get(option) or ALL_OF_IT
    assert _by_name(_chart(helm, *values)) == _by_name(_components(tmp_path, *components))


def test_every_component_of_config_can_be_chosen_by_a_value_of_the_chart() -> None:
    found = {path.name for path in (CONFIG / "components").iterdir()}
    assert found == {component for components, _ in OPTIONS.values() for component in components}


@pytest.fixture(scope="module")
def monitored(kubectl: Kubectl) -> Iterator[None]:
    """Serve the kinds of prometheus-operator while the module's tests run."""
    crds = [str(module_file(PROMETHEUS_OPERATOR, path)) for path in MONITORING_CRDS]
    kubectl("apply", "--server-side", *(f"--filename={path}" for path in crds))
    kubectl("wait", "--for=condition=Established", *(f"--filename={path}" for path in crds))
    yield
    kubectl("delete", *(f"--filename={path}" for path in crds))


@pytest.mark.parametrize("option", [*OPTIONS, "all of it"])
def test_api_server_accepts_the_objects_that_the_chart_renders(
    option: str, helm: Helm, kubectl: Kubectl, installed: None, monitored: None, api_server: ControlPlane
) -> None:
    _, values = OPTIONS.get(option) or ALL_OF_IT
    objects = _chart(helm, *values, namespace="default", hooks=True)
    answer = kubectl("apply", "-f", "-", "--dry-run=server", "--warnings-as-errors", "--validate=strict", stdin=yaml.safe_dump_all(objects))
    assert len(answer.splitlines()) == len(objects)


@pytest.mark.parametrize("end", ["", "/"])
def test_alerts_of_the_chart_link_to_the_runbooks_at_the_stated_address(helm: Helm, end: str) -> None:
    rule = _only("PrometheusRule", _chart(helm, "alerts.enabled=true", f"alerts.runbooks=https://docs.example/runbooks{end}"))
    rules = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    links = {each["alert"]: each["annotations"]["runbook_url"] for each in rules}
    assert links
    assert links == {name: f"https://docs.example/runbooks/{name}.md" for name in links}


def test_second_helm_release_has_other_names_another_lease_and_other_pods_than_the_first(helm: Helm) -> None:
    objects = _chart(helm, "schedulerNames={second}", release="second")
    first = {(each["kind"], each["metadata"]["name"]) for each in _chart(helm)}
    assert not first & {(each["kind"], each["metadata"]["name"]) for each in objects}

    deployment = _only("Deployment", objects)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--scheduler-name=second" in container["args"]
    (lease,) = container["env"]
    role = _only("Role", objects)
    assert lease == {"name": "ALLABOARD_LEASE_NAME", "value": role["rules"][1]["resourceNames"][0]}
    assert lease["value"] == "second-allaboard"
    assert deployment["spec"]["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    lease_binding = _only("RoleBinding", objects)
    assert lease_binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {each["name"] for each in lease_binding["subjects"]} == {deployment["spec"]["template"]["spec"]["serviceAccountName"]}


def test_documented_second_installation_shares_no_object_with_the_first(tmp_path: Path) -> None:
    (shown,) = blocks_under("Two side by side", "yaml")
    overlay = yaml.safe_load(shown)
    assert overlay["resources"] == ["../config"]
    second = _kustomized(tmp_path, overlay | {"resources": [os.path.relpath(CONFIG, tmp_path.resolve())]})

    assert not _by_name(second).keys() & _by_name(_components(tmp_path)).keys()
    assert {each["metadata"].get("namespace", "second-system") for each in second} == {"second-system"}
    deployment = _only("Deployment", second)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "ALLABOARD_SCHEDULER_NAMES", "value": "second"}]


def test_selectors_match_no_object_of_another_installation_in_the_same_namespace(helm: Helm, tmp_path: Path) -> None:
    components, values = ALL_OF_IT
    second = _chart(helm, *(set(values) - {"admission.enabled=true"}), "schedulerNames={second}", release="second")
    first = _components(tmp_path, *components)
    for objects, others in ((first, second), (second, first)):
        foreign_labels = [labels for each in others for labels in _all_of("labels", each)]
        selectors = [
            one for each in objects for key in ("matchLabels", "selector") for one in _all_of(key, each) if "matchLabels" not in one
        ]
        assert len(selectors) >= 6  # of the Deployment, its topology spread, the Service, its ServiceMonitor, the budget and the policy
        assert [each for each in selectors for labels in foreign_labels if each.items() <= labels.items()] == []


def test_all_objects_of_a_helm_release_are_in_its_namespace(helm: Helm) -> None:
    _, values = ALL_OF_IT
    rendered = _chart(helm, *values, "settings.objective=binpack", namespace="elsewhere")
    assert NAMESPACE not in yaml.safe_dump_all(rendered)
    subjects = [subject for each in rendered for subject in each.get("subjects", ())]
    assert subjects
    assert {subject["namespace"] for subject in subjects} == {"elsewhere"}


def test_existing_service_account_that_the_chart_values_name_gets_the_operators_rights(helm: Helm) -> None:
    objects = _chart(helm, "serviceAccount.create=false", "serviceAccount.name=theirs", "pipelines.enabled=true", "admission.enabled=true")
    assert "ServiceAccount" not in {each["kind"] for each in objects}
    assert {subject["name"] for each in objects for subject in each.get("subjects", ())} == {"theirs"}
    deployment = _only("Deployment", objects)
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "theirs"


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ((), f"r/allaboard:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"),
        (("image.tag=v1",), "r/allaboard:v1"),
        (("image.tag=v1", f"image.digest=sha256:{'0' * 64}"), f"r/allaboard@sha256:{'0' * 64}"),
    ],
)
def test_image_is_the_charts_version_unless_a_tag_or_a_digest_is_stated(values: tuple[str, ...], image: str, helm: Helm) -> None:
    done = helm("template", "allaboard", str(CHART), "--no-hooks", "--set", ",".join(("image.repository=r/allaboard", *values)))
    deployment = _only("Deployment", filter(None, yaml.safe_load_all(done.stdout)))
    assert [container["image"] for container in deployment["spec"]["template"]["spec"]["containers"]] == [image]


@pytest.mark.parametrize(
    ("values", "path", "found"),
    [
        ("schedulerNames={one,allaboard}", "containers.0.args", ["--scheduler-name=one", "--scheduler-name=allaboard"]),
        ("verbose=true", "containers.0.args", ["--verbose"]),
        ("extraEnv[0].name=TZ,extraEnv[0].value=UTC", "containers.0.env", [{"name": "TZ", "value": "UTC"}]),
        (
            "pipelines.enabled=true,pipelines.namespaces={ml,more}",
            "containers.0.env",
            [{"name": "ALLABOARD_PIPELINE_NAMESPACES", "value": "ml,more"}],
        ),
        ("admission.enabled=true,admission.port=9999", "containers.0.env", [{"name": "ALLABOARD_ADMISSION_PORT", "value": "9999"}]),
        ("admission.enabled=true,admission.port=9999", "containers.0.ports", [{"name": "admission", "containerPort": 9999}]),
        ("tolerations[0].key=gpu", "tolerations", [{"key": "gpu"}]),
        ("affinity.nodeAffinity.is=taken", "affinity", {"nodeAffinity": {"is": "taken"}}),
        ("imagePullSecrets[0].name=theirs", "imagePullSecrets", [{"name": "theirs"}]),
    ],
)
def test_chart_values_for_the_operators_pods_appear_in_the_pod_template(values: str, path: str, found: Any, helm: Helm) -> None:
    deployment = _only("Deployment", _chart(helm, values))
    spec = deployment["spec"]["template"]["spec"]
    for step in path.split("."):
        spec = spec[int(step) if step.isdigit() else step]
    if isinstance(found, list):
        assert [each for each in found if each not in spec] == []
    else:
        assert spec == found


def test_chart_values_can_add_labels_to_the_operators_pods(helm: Helm) -> None:
    deployment = _only("Deployment", _chart(helm, "podLabels.team=a"))
    assert deployment["spec"]["template"]["metadata"]["labels"]["team"] == "a"
    assert "team" not in deployment["spec"]["selector"]["matchLabels"]


def test_network_policy_allows_webhook_calls_at_the_stated_port(helm: Helm) -> None:
    objects = _chart(helm, "admission.enabled=true,admission.port=9999,networkPolicy.enabled=true")
    policy = _only("NetworkPolicy", objects)
    assert {"port": 9999} in policy["spec"]["ingress"][0]["ports"]


def test_helm_test_of_the_chart_is_a_gang_of_two_pods_of_its_scheduler(helm: Helm) -> None:
    job = _only("Job", _chart(helm, "schedulerNames={second}", release="second", hooks=True))
    template = job["spec"]["template"]
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 2
    assert template["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"] == "2"
    assert template["spec"]["schedulerName"] == "second"


@pytest.mark.parametrize("release", ["123", "true", "1e3", "r" * 53, "my.rel", f"{'r' * 48}--s"])
def test_helm_release_and_its_namespace_may_have_any_name_that_helm_accepts(release: str, helm: Helm) -> None:
    _, values = ALL_OF_IT
    chosen = (*(set(values) - {"admission.enabled=true"}), "schedulerNames={second}", "settings.objective=binpack")
    objects = _chart(helm, *chosen, release=release, namespace=release.replace(".", "-"), hooks=True)
    assert [name for each in objects if not _IS_LABEL.fullmatch(name := each["metadata"]["name"])] == []
    assert {each["metadata"].get("namespace") for each in objects} == {None, release.replace(".", "-")}
    for each in objects:
        assert all(isinstance(value, str) for labels in _all_of("labels", each) for value in labels.values())


_IS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def test_chart_values_that_look_like_yaml_are_quoted(helm: Helm) -> None:
    hostile = 'x\n      hostNetwork: true\n      # "'
    objects = _chart(helm, "priorityClass.name=no", f"podAnnotations.disk={hostile}", "serviceAccount.name=no")
    template = _only("Deployment", objects)["spec"]["template"]
    pod = template["spec"]
    assert pod["priorityClassName"] == pod["serviceAccountName"] == "no"  # without quotes `no` is false
    assert template["metadata"]["annotations"]["disk"] == hostile
    assert "hostNetwork" not in pod


def test_chart_values_can_leave_user_ids_to_the_cluster(helm: Helm) -> None:
    unset = (f"podSecurityContext.{name}=null" for name in ("runAsUser", "runAsGroup", "fsGroup"))
    deployment = _only("Deployment", _chart(helm, *unset))
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_settings_in_the_chart_values_become_a_configuration_file(helm: Helm) -> None:
    objects = _chart(helm, "settings.objective=binpack", "settings.search.generations=7")
    config = _only("ConfigMap", objects)
    assert yaml.safe_load(config["data"]["allaboard.yaml"]) == {"objective": "binpack", "search": {"generations": 7}}
    deployment = _only("Deployment", objects)
    pod = deployment["spec"]["template"]["spec"]
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "settings")
    assert f"--config={mount['mountPath']}/allaboard.yaml" in pod["containers"][0]["args"]
    assert {"name": "settings", "configMap": {"name": config["metadata"]["name"]}} in pod["volumes"]


def test_pods_are_replaced_only_for_settings_that_a_running_scheduler_does_not_reload(helm: Helm) -> None:
    def digest(*values: str) -> str | None:
        template = _only("Deployment", _chart(helm, *values))["spec"]["template"]
        found: str | None = template["metadata"]["annotations"].get("allaboard.dev/settings")
        return found

    stated = {
        "objective": "objective=spread",
        "topology": "topology=rack",
        "packing": "packing.resources.cpu=1",
        "gpu": "gpu.charged_by_label=false",
        "schedule_timeout_seconds": "scheduleTimeoutSeconds=9",
    }
    assert stated.keys() == AT_RUN_TIME
    assert digest() is None
    assert {digest(f"settings.{each}") for each in stated.values()} == {None}
    one, other = digest("settings.namespaces={ml}"), digest("settings.namespaces={ml,default}")
    assert len({None, one, other}) == 3
    assert digest("settings.namespaces={ml}", "settings.objective=spread") == one


def test_pods_are_replaced_for_every_setting_that_is_not_reloaded(helm: Helm) -> None:
    without_digest = []
    for name, value in Settings().model_dump(mode="json").items():
        done = helm("template", "allaboard", str(CHART), "--no-hooks", "--set-json", f"settings.{name}={json.dumps(value)}")
        if done.returncode:
            assert f"settings.{name}: " in done.stderr  # the chart has a value of its own for the setting
        elif "allaboard.dev/settings: " not in done.stdout:
            without_digest.append(name)
    assert set(without_digest) == AT_RUN_TIME


@pytest.mark.parametrize(("namespaces", "is_tested"), [("{ml}", False), ("ml", False), (f"{{ml,{NAMESPACE}}}", True), ("", True)])
def test_chart_has_a_helm_test_only_if_its_namespace_is_scheduled(namespaces: str, is_tested: bool, helm: Helm) -> None:
    objects = _chart(helm, f"settings.namespaces={namespaces}", hooks=True)
    assert ("Job" in {each["kind"] for each in objects}) is is_tested


@pytest.mark.parametrize("spelling", ["apiVersion", "ApiVersion", "apiversion"])
def test_settings_in_the_chart_values_may_be_a_kube_scheduler_configuration(spelling: str, helm: Helm, tmp_path: Path) -> None:
    shipped = next(yaml.safe_load_all((ROOT / "examples" / "configuration" / "scheduler.yaml").read_text()))
    shipped[spelling] = shipped.pop("apiVersion")
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"settings": shipped}))
    done = helm("template", "allaboard", str(CHART), "--values", str(values))
    assert done.returncode == 0, done.stderr
    config = _only("ConfigMap", filter(None, yaml.safe_load_all(done.stdout)))
    assert yaml.safe_load(config["data"]["allaboard.yaml"]) == shipped


@pytest.mark.parametrize(("version", "is_taken"), [("1.29.9", False), ("1.30.0", True), ("1.30.1-gke.1", True), ("1.37.0", True)])
def test_kubernetes_that_is_too_old_is_refused(version: str, is_taken: bool, helm: Helm) -> None:
    done = helm("template", "allaboard", str(CHART), "--kube-version", version)
    assert (done.returncode == 0) is is_taken
    assert ("kubeVersion: >=1.30.0-0" in done.stderr) is not is_taken


def test_chart_values_can_mount_a_secret_into_the_operators_pods(helm: Helm) -> None:
    objects = _chart(
        helm,
        "extraVolumes[0].name=prometheus,extraVolumes[0].secret.secretName=prometheus-token",
        "extraVolumeMounts[0].name=prometheus,extraVolumeMounts[0].mountPath=/etc/prometheus-token",
    )
    deployment = _only("Deployment", objects)
    pod = deployment["spec"]["template"]["spec"]
    assert {"name": "prometheus", "secret": {"secretName": "prometheus-token"}} in pod["volumes"]
    assert {"name": "prometheus", "mountPath": "/etc/prometheus-token"} in pod["containers"][0]["volumeMounts"]


def test_helm_lint_finds_no_problem(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


_SECOND = "fullnameOverride=other,schedulerNames={other}"
_FOREIGN = "settings.apiVersion=kubescheduler.config.k8s.io/v1,settings.kind=KubeSchedulerConfiguration"
_OLD = "settings.apiVersion=kubescheduler.config.k8s.io/v1alpha1,settings.kind=KubeSchedulerConfiguration"


@pytest.mark.parametrize(
    "value",
    [
        "podLabels=null",
        "settings=null",
        "extraEnv=null",
        "priorityClass.name=",
        "enabled=true",
        f"{_FOREIGN},settings.leaderElection.resourceLock=leases",
        f"{_FOREIGN},settings.profiles=x",
        "settings.namespaces=5",
        "serviceMonitor.enabled=true,serviceMonitor.interval=1m30s",
        "resources.limits.memory=1.5Gi,resources.requests.cpu=0.5",
    ],
)
def test_empty_and_unusual_chart_values_are_accepted_if_they_are_valid(value: str, helm: Helm) -> None:
    assert _chart(helm, value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("replicas=many", "replicas"),
        ("sevrice.enabled=true", "sevrice"),
        ("image.digest=latest", "digest"),
        ("schedulerNames={}", "schedulerNames"),
        ("fullnameOverride=other", "schedulerNames"),
        ("fullnameOverride=other,schedulerNames={other,allaboard}", "schedulerNames"),
        ("fullnameOverride=other,schedulerNames={other},admission.enabled=true", "set fullnameOverride"),
        ("serviceAccount.create=false", "serviceAccount.name is needed"),
        ("settings.scheduler_names={x}", "settings.scheduler_names: the chart's own value schedulerNames says it"),
        ("settings.leaderElect=false", "settings.leaderElect: the chart's own value replicas says it"),
        *(
            (f"settings.{port}=9090", f"settings.{port}: probes and Services")
            for port in ("metrics_port", "metricsPort", "health_port", "healthPort")
        ),
        *((f"settings.{each}=x", f"settings.{each}: the Lease is where") for each in ("lease_namespace", "leaseNamespace")),
        *(
            (f"settings.{each}=json", f"settings.{each}: the chart's own value")
            for each in ("lease_name", "leaseName", "log_format", "logFormat")
        ),
        *((f"settings.{each}=1", f"settings.{each}: the chart's own value admission.port") for each in ("admission_port", "admissionPort")),
        (f"{_FOREIGN},settings.leaderElection.resourceName=kube-scheduler", "settings.leaderElection.resourceName: the Lease"),
        (f"{_OLD},settings.LeaderElection.LockObjectName=x", "settings.LeaderElection.LockObjectName: the Lease"),
        (f"{_OLD},settings.leaderelection.lockobjectnamespace=x", "settings.leaderelection.lockobjectnamespace: the Lease"),
        (f"{_SECOND},{_OLD},settings.SchedulerName=allaboard", "settings.profiles: an installation that is named other"),
        (f"{_SECOND},{_OLD},settings.Profiles[0].SchedulerName=allaboard", "settings.profiles: an installation that is named other"),
        ("extraEnv[0].name=Allaboard_lease_name,extraEnv[0].value=x", "extraEnv: Allaboard_lease_name would win"),
        ("extraEnv[0].name=A,extraEnv[1].name=A", "extraEnv: A is there already"),
        ("extraEnv[0].name=A,extraEnv[0].value=5", "/extraEnv/0/value"),
        ("extraVolumes[0].name=tmp", "extraVolumes: tmp is there already"),
        ("extraVolumeMounts[0].name=a,extraVolumeMounts[0].mountPath=/tmp/", "extraVolumeMounts: /tmp/ is there already"),
        ("imagePullSecrets[0].name=a,imagePullSecrets[1].name=a", "imagePullSecrets: a is there already"),
        ("podAnnotations.kubectl\\.kubernetes\\.io/default-container=x", "podAnnotations: kubectl.kubernetes.io/default-container"),
        ("podLabels.a b=c", "podLabels': additional properties 'a b'"),
        ("nodeSelector.a=b c", "nodeSelector"),
        ("resources.request.cpu=1", "request"),
        ("resources.requests.cpu=x", "/resources/requests/cpu"),
        ("tolerations[0].operater=Exists", "operater"),
        ("affinity.nonsense.a=b", "nonsense"),
        ("podSecurityContext.runAsUser=me", "/podSecurityContext/runAsUser"),
        (f"{_SECOND},{_FOREIGN},settings.profiles[0].schedulerName=allaboard", "settings.profiles: an installation that is named other"),
        (f"{_SECOND},{_FOREIGN},settings.schedulerName=allaboard", "settings.profiles: an installation that is named other"),
        ("settings.apiVersion=1,settings.foo=2", "foo"),
        ("admission.enabled=true,admission.port=8081", "admission.port: 8080 and 8081 are those of metrics and health"),
        ("pipelines.enabled=true,pipelines.namespaces={a.b}", "namespaces"),
        (f"image.tag={'1' * 129}", "tag"),
        ("settings.objektive=spread", "objektive"),
        ("settings.search.generation=9", "generation"),
        ("settings.objective=sprede", "/settings/objective': value must be one of 'binpack', 'spread'"),
        ("settings.bind_concurrency=0", "/settings/bind_concurrency': minimum"),
        ("settings.openfaas=maybe", "/settings/openfaas'"),
        ("image.tag=a b", "tag"),
        ("image.repository=r/allaboard:v1", "repository"),
        ("image.repository=https://r/allaboard", "repository"),
        ("settings.ui=true", "the chart's own value ui.enabled says it"),
        ("settings.apiServicePort=8083", "the chart's own value api.enabled says it"),
        ("settings.pipelines=true", "the chart's own value pipelines.enabled says it"),
        ("settings.provisioningClass=check-capacity.autoscaling.x-k8s.io", "the chart's own value provisioning.class says it"),
        ("priorityClass.name=High", "name"),
        ("alerts.runbooks=docs/runbooks", "runbooks"),
        *(
            (f"podLabels.app\\.kubernetes\\.io/{each}=other", f"podLabels: app.kubernetes.io/{each} is the chart's own")
            for each in ("name", "instance", "part-of")
        ),
        *(
            (f"{each}.labels.app\\.kubernetes\\.io/version=one", f"{each}.labels: app.kubernetes.io/version is the chart's own")
            for each in ("serviceMonitor", "alerts", "dashboard")
        ),
        ("podAnnotations.allaboard\\.dev/settings=one", "podAnnotations: allaboard.dev/settings is the chart's own"),
        ("pipelines.namespaces={ml}", "pipelines.enabled is false"),
        ("priorityClass.create=true,priorityClass.name=high", "priorityClass.name: the one that priorityClass.create makes"),
        *((f"{each}=No Name", each.split(".")[-1]) for each in ("nameOverride", "fullnameOverride", "serviceAccount.name")),
        ("imagePullSecrets[0].name=No Name", "imagePullSecrets"),
        ("imagePullSecrets[0].nam=x", "imagePullSecrets"),
    ],
)
def test_error_names_an_invalid_chart_value(value: str, message: str, helm: Helm) -> None:
    done = helm("template", "allaboard", str(CHART), "--set", value)
    assert done.returncode != 0
    assert message in done.stderr


def test_chart_that_lacks_one_value_is_rendered_or_the_error_names_the_value(helm: Helm) -> None:
    for path in _paths(yaml.safe_load((CHART / "values.yaml").read_text())):
        done = helm("template", "allaboard", str(CHART), "--set", f"{','.join(ALL_OF_IT[1])},{path}=null")
        if done.returncode:
            assert f"missing property '{path.split('.')[-1]}'" in done.stderr, (path, done.stderr)
        else:
            assert not re.search(r"nil|null|%!|no value", done.stdout), path


def test_chart_has_the_crds_of_the_project_and_they_stay_when_a_helm_release_is_removed(helm: Helm) -> None:
    shown = [each for each in yaml.safe_load_all(helm("show", "crds", str(CHART)).stdout) if each]
    assert sorted(each["metadata"]["name"] for each in shown) == ["mlflows.kopf.dev", "podgroups.scheduling.x-k8s.io"]
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in shown} == {"keep"}
    assert "CustomResourceDefinition" not in {each["kind"] for each in _chart(helm)}


def _paths(values: Body, prefix: str = "") -> Iterator[str]:
    """Yield the path of every value in the form that ``--set`` takes."""
    for key, value in values.items():
        path = prefix + key.replace(".", r"\.")
        yield path
        if isinstance(value, dict):
            yield from _paths(value, f"{path}.")


def _only(kind: str, objects: Iterable[Body]) -> Body:
    """Return the only object of a kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def _chart(helm: Helm, *values: str, release: str = "allaboard", namespace: str = NAMESPACE, hooks: bool = False) -> list[Body]:
    words = ("--namespace", namespace, *(() if hooks else ("--no-hooks",)), "--set", ",".join(("image.tag=dev", *values)))
    done = helm("template", release, str(CHART), *words)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def _components(folder: Path, *components: str) -> list[Body]:
    base = os.path.relpath(CONFIG, folder.resolve())
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [base],
        "components": [f"{base}/components/{component}" for component in components],
    }
    return _kustomized(folder, overlay)


def _kustomized(folder: Path, overlay: Body) -> list[Body]:
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def _by_name(objects: list[Body]) -> dict[tuple[str, str], Body]:
    """Return the objects by kind and name, in a comparable form: without the labels of a release, and with sorted lists."""
    plain = {(each["kind"], each["metadata"]["name"]): _without_release(each) for each in objects}
    assert len(plain) == len(objects)
    return plain


def _without_release(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_release(each) for key, each in value.items() if key not in RELEASE_LABELS}
    if isinstance(value, list):
        items = [_without_release(each) for each in value]
        return (
            sorted(items, key=lambda each: str(each["name"])) if all(isinstance(each, dict) and "name" in each for each in items) else items
        )
    return value


def _all_of(key: str, value: Any) -> Iterator[Body]:
    """Yield the mappings stored under a key, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get(key), dict):
            yield value[key]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _all_of(key, each)
