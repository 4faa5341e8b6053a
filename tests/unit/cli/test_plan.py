"""Tests of ``allaboard plan``: the answer on stdout, notes and errors on stderr, and the exit codes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from allaboard.cli.main import cli
from allaboard.kube.client import ApiError, CredentialsError
from allaboard.model.gang import Gang
from allaboard.model.limits import MEMBERS
from allaboard.model.pod import PLAIN, Reading
from allaboard.planning.planner import Planner
from allaboard.records.advice import Advised
from allaboard.whatif.snapshots import Cluster, read_cluster
from allaboard_sandbox import local_volume, waiting_class
from tests.unit.cli.plan_command import PAIR, Plan, gpu_node, member, node, nodes_of, pod

Body = dict[str, Any]

# The answer


def test_plan_names_the_node_of_every_pod_of_a_gang_that_fits(plan: Plan) -> None:
    result = plan.cluster(gpu_node("n1"), gpu_node("n2")).example("tfjob-smoke-gpu").run("-o", "json")

    assert result.exit_code == 0
    assert result.stderr == ""
    answer = json.loads(result.stdout)
    assert set(answer) == {"gangs", "elapsedSeconds"}
    [gang] = answer["gangs"]
    assert gang.pop("search").keys() == {"seedScore", "score", "generations", "stoppedBy", "foundBy", "steps"}
    pods = ["ps-0", "worker-0", "worker-1", "worker-2", "worker-3"]
    assert gang == {
        "namespace": "default",
        "name": "tf-smoke-gpu",
        "minMember": 5,
        "feasible": True,
        "reason": "",
        "assignments": [
            {"pod": f"tf-smoke-gpu-{pod}", "node": "n1", **({"gpus": 1.0} if pod.startswith("worker") else {})} for pod in pods
        ],
        "unplaced": [],
        "message": "5 of 5 pods placed",
    }


def test_option_of_plan_chooses_the_objective(plan: Plan) -> None:
    [gang] = plan.cluster(gpu_node("n1"), gpu_node("n2")).example("tfjob-smoke-gpu").gangs("--objective", "spread")
    assert set(nodes_of(gang)) == {"n1", "n2"}


def test_plan_uses_the_settings_of_the_given_file(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_CONFIG", "")  # monkeypatch restores the variable that the command sets
    (tmp_path / "settings.yaml").write_text("objective: spread\n", encoding="utf-8")
    planned = plan.cluster(gpu_node("n1"), gpu_node("n2")).example("tfjob-smoke-gpu")
    [gang] = planned.gangs("--config", str(tmp_path / "settings.yaml"))
    assert set(nodes_of(gang)) == {"n1", "n2"}


def test_gang_that_can_not_fit_has_no_pod_placed_and_a_reason(plan: Plan) -> None:
    [gang] = plan.cluster(gpu_node("n1"), gpu_node("n2")).example("impossible-gang").gangs(exit_code=1)
    assert (gang["feasible"], gang["assignments"], len(gang["unplaced"]), gang["search"]["stoppedBy"]) == (False, [], 3, "bound")
    assert "2 Insufficient nvidia.com/gpu" in gang["message"]
    assert gang["reason"] == "NeverFits"
    assert "a member asks for 64 nvidia.com/gpu; no node it may use has more than 4" in gang["message"]


def test_pod_larger_than_every_node_never_fits(plan: Plan) -> None:
    [gang] = plan.cluster(node("n1", cpu="8")).manifest(pod("a", cpu="20")).gangs(exit_code=1)
    assert gang["reason"] == "NeverFits"
    expected = "0/1 nodes are available: 1 Insufficient cpu. It never fits: it asks for 20 cpu; no node it may use has more than 8."
    assert gang["message"].startswith(expected)


def test_held_pod_is_shown_as_held_and_not_as_having_no_placement(plan: Plan) -> None:
    labels = {"runai/queue": "q", "kai.scheduler/queue": "q"}
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a", metadata={"labels": labels})).run()
    assert result.stdout.splitlines()[1].split()[4:6] == ["unknown", "Held"]


def test_message_of_a_gang_that_does_not_fit_names_remedies(plan: Plan) -> None:
    bound = [member(f"b{index}", gang="b", cpu="3", nodeName=f"n{index}") for index in range(2)]
    plan.cluster(node("n0", cpu="4"), node("n1", cpu="4"), *bound)
    [gang] = plan.manifest(member("a0", cpu="2"), member("a1", cpu="2")).gangs(exit_code=1)
    assert gang["message"].endswith("Would fit with 2 more cpu (1 on n0, 1 on n1), or if gang b (priority 0) left.")


def test_message_of_a_gang_that_must_share_a_rack_names_the_rack_that_lacks_least(plan: Plan) -> None:
    def worker(name: str) -> dict[str, Any]:
        return member(name, cpu="4", metadata={"annotations": {"allaboard.dev/role": "w", "allaboard.dev/required-topology": "rack"}})

    nodes = [node(f"n{index}", cpu="8") for index in range(4)]
    for index, raw in enumerate(nodes):
        raw["metadata"]["labels"] = {"rack": "ab"[index // 2]}
    there = [member(f"t{index}", gang=f"t{index}", minimum="1", cpu=cpu, nodeName=f"n{index}") for index, cpu in enumerate("8786")]
    [gang] = plan.cluster(*nodes, *there).manifest(worker("a"), worker("b")).gangs(exit_code=1)
    assert gang["message"].endswith(
        "Would fit with 6 more cpu on nodes matching rack=b (4 on n2, 2 on n3), or if gang t0 (priority 0) left."
    )


def test_remedies_name_gangs_that_the_plan_has_placed(plan: Plan) -> None:
    plan.cluster(node("n0", cpu="2")).manifest(*(member(f"{gang}{index}", gang=gang) for gang in "ab" for index in range(2)))
    [_, second] = plan.gangs(exit_code=1)
    assert "if gang a (priority 0) left" in second["message"]


def test_gang_can_not_use_capacity_of_gangs_placed_before_it(plan: Plan) -> None:
    first, second = plan.cluster(gpu_node("n1")).example("two-jobs").gangs(exit_code=1)
    assert (first["name"], first["feasible"], len(first["assignments"])) == ("tf-first", True, 5)
    assert (second["name"], second["feasible"], second["assignments"]) == ("tf-second", False, [])


def test_gangs_that_contend_are_placed_together_as_the_scheduler_would(plan: Plan) -> None:
    older = [member(name, gang="old") for name in ("old-a", "old-b")]
    plan.cluster(node("n1", cpu="8")).manifest(*older, member("young-a", minimum="1", gang="young", cpu="8"))
    old, young = plan.gangs(exit_code=1)
    assert (old["name"], old["feasible"], old["assignments"]) == ("old", False, [])
    assert (young["name"], young["feasible"], nodes_of(young)) == ("young", True, ["n1"])
    assert old["message"].endswith("or if gang young (priority 0) left.")


def test_nodes_outside_of_the_node_selector_are_not_used(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_NODE_SELECTOR", "pool=train")
    [gang] = plan.cluster(node("n1", cpu="8")).manifest(pod("a")).gangs(exit_code=1)
    assert gang["message"] == "no nodes available to schedule pods"


def test_a_gang_of_higher_priority_goes_first(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="1")).manifest(pod("low", priority=1), pod("high", priority=2))
    assert [(gang["name"], gang["feasible"]) for gang in plan.gangs(exit_code=1)] == [("high", True), ("low", False)]


@pytest.mark.parametrize(("minimum", "placed", "exit_code"), [(3, 3, 0), (4, 0, 1)])
def test_pods_beyond_the_minimum_need_not_fit(plan: Plan, minimum: int, placed: int, exit_code: int) -> None:
    plan.cluster(*(node(f"n{index}", cpu="4", memory="8Gi") for index in range(3))).example(f"nginx-min-{minimum}")
    [gang] = plan.gangs(exit_code=exit_code)
    assert (len(gang["assignments"]), len(gang["unplaced"])) == (placed, 6 - placed)
    assert "3 Insufficient cpu" in gang["message"]


def test_bound_pods_of_the_cluster_use_capacity_and_pending_and_finished_pods_do_not(plan: Plan) -> None:
    bound = pod("a", cpu="3", nodeName="n1", schedulerName="default-scheduler")
    finished = pod("b", cpu="4", nodeName="n1") | {"status": {"phase": "Succeeded"}}
    pending = pod("c", cpu="4")
    plan.cluster(node("n1", cpu="4"), bound, finished, pending)
    assert plan.manifest(pod("new", cpu="1")).gangs()[0]["feasible"] is True
    assert plan.manifest(pod("new", cpu="2")).gangs(exit_code=1)[0]["feasible"] is False


def test_a_pod_that_is_bound_in_the_cluster_stays_where_it_is(plan: Plan) -> None:
    there = member("a", nodeName="n2", metadata={"uid": "u1", "namespace": "default"})
    plan.cluster(node("n1", cpu="4"), node("n2", cpu="1"), there).manifest(member("a"), member("b"))
    [gang] = plan.gangs()
    assert gang["assignments"] == [{"pod": "a", "node": "n2"}, {"pod": "b", "node": "n1"}]
    assert "note: pod default/a is in the cluster already, on node n2" in plan.run().stderr


def test_bound_members_decide_the_required_domain_and_count_for_role_minimums(plan: Plan) -> None:
    def worker(name: str, **more: Any) -> dict[str, Any]:
        options = {"allaboard.dev/role": "worker", "allaboard.dev/min-members": "worker=2", "allaboard.dev/required-topology": "rack"}
        return member(name, metadata={"uid": name, "namespace": "default", "annotations": options}, **more)

    nodes = [node("n1", cpu="8"), node("n2", cpu="2"), node("n3", cpu="2")]
    for raw, rack in zip(nodes, "xyy", strict=True):
        raw["metadata"]["labels"] = {"rack": rack}
    plan.cluster(*nodes, worker("a", cpu="2", nodeName="n2")).manifest(worker("a", cpu="2"), worker("b", cpu="2"))
    [gang] = plan.gangs()
    assert gang["assignments"] == [{"pod": "a", "node": "n2"}, {"pod": "b", "node": "n3"}]
    [gang] = plan.manifest(worker("a", cpu="2"), worker("b", cpu="4")).gangs(exit_code=1)
    assert "1 node(s) weren't in the domain of the members that are bound" in gang["message"]


def test_a_pod_whose_manifest_names_its_node_is_planned_there_or_not_at_all(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="4"), node("n2", cpu="8"))
    [gang] = plan.manifest(pod("a", cpu="3", nodeName="n1")).gangs()
    assert gang["assignments"] == [{"pod": "a", "node": "n1"}]
    assert plan.manifest(pod("a", cpu="5", nodeName="n1")).gangs(exit_code=1)[0]["feasible"] is False
    assert plan.manifest(pod("a", nodeName="missing")).gangs(exit_code=1)[0]["feasible"] is False


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"limits": {"nvidia.com/gpu": "0.5"}}, "spec.containers[0].resources.limits[nvidia.com/gpu]"),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "spec.containers[0].resources.requests[cpu]"),
        ({"requests": {"cpu": "1 "}}, "spec.containers[0].resources.requests[cpu]"),
    ],
)
def test_resources_that_the_api_server_refuses_are_bad_input(plan: Plan, resources: dict[str, Any], field: str) -> None:
    broken = pod("a")
    broken["spec"]["containers"][0]["resources"] = resources
    result = plan.cluster(node("n1", cpu="4")).manifest(broken).run()
    assert result.exit_code == 2
    assert field in result.stderr


def test_a_snapshot_without_nodes_is_bad_input(plan: Plan) -> None:
    result = plan.cluster(pod("b")).manifest(pod("a")).run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Error: {plan.folder / 'cluster.json'}: holds no nodes; a snapshot is the output of `kubectl get")


def test_no_gang_fits_on_a_cluster_without_nodes(plan: Plan) -> None:
    result = plan.cluster(is_whole=False).manifest(pod("a")).run()
    assert result.exit_code == 1
    assert "no nodes available to schedule pods" in result.stdout
    assert result.stderr == f"note: no nodes in {plan.folder / 'cluster.json'}: on a cluster without nodes nothing fits\n"


def test_a_gang_with_too_few_pods_waits_for_more_pods(plan: Plan) -> None:
    [gang] = plan.cluster(node("n1", cpu="8")).manifest(member("a", "3"), member("b", "3")).gangs(exit_code=1)
    assert (gang["feasible"], gang["reason"], gang["unplaced"]) == (False, "WaitingForMembers", ["a", "b"])
    assert gang["message"] == "podgroup default/g: waiting for members: 2 of 3 exist"


def test_pods_of_a_pod_group_are_its_gang(plan: Plan) -> None:
    [gang] = plan.cluster(node("n1", cpu="8", memory="16Gi")).example("podgroup").gangs()
    assert (gang["name"], gang["minMember"], len(gang["assignments"])) == ("trio", 3, 3)


def test_pod_group_of_the_planned_pods_may_exist_in_the_cluster_only(plan: Plan) -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 2}}
    other = group | {"metadata": {"name": "other-group"}}
    labelled = [pod(name, labels={"scheduling.x-k8s.io/pod-group": "g"}) for name in "ab"]
    [gang] = plan.cluster(node("n1", cpu="8"), group, other).manifest(*labelled).gangs()
    assert (gang["name"], gang["minMember"]) == ("g", 2)


def test_missing_pod_group_holds_its_pods(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(pod("a", labels={"scheduling.x-k8s.io/pod-group": "g"}))
    [gang] = plan.gangs(exit_code=1)
    assert (gang["feasible"], gang["reason"]) == (False, "Held")
    assert "PodGroup not found" in gang["message"]
    assert gang["search"] == {"seedScore": None, "score": None, "generations": 0, "stoppedBy": "", "foundBy": "", "steps": []}


def test_feasibility_of_a_pod_with_an_unknown_resource_claim_is_unknown(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(pod("a", resourceClaims=[{"name": "gpu"}]))
    [gang] = plan.gangs(exit_code=1)
    assert (gang["feasible"], gang["reason"]) == (None, "Held")
    assert gang["message"] == "pod a: a plan can't know which nodes ResourceClaim default/gpu allows"


def test_feasibility_of_a_pod_with_an_unknown_volume_claim_is_unknown(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(pod("a", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]))
    [gang] = plan.gangs(exit_code=1)
    assert (gang["feasible"], gang["assignments"]) == (None, [])
    assert gang["message"] == "pod a: a plan can't know which nodes PersistentVolumeClaim default/data allows"


def test_pods_of_another_scheduler_are_planned_with_a_note(plan: Plan) -> None:
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a", schedulerName=None)).run("-o", "json")
    assert json.loads(result.stdout)["gangs"][0]["feasible"] is True
    assert result.stderr.startswith("note: some pods say schedulerName 'default-scheduler'")


@pytest.mark.parametrize(
    ("name", "hint"), [("allabord", "; did you mean allaboard?"), ("Allaboard", "; did you mean allaboard?"), ("volcano", ";")]
)
def test_note_suggests_the_name_of_a_misspelt_scheduler(plan: Plan, name: str, hint: str) -> None:
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a", schedulerName=name)).run()
    assert f"note: some pods say schedulerName {name!r}{hint} they are planned anyway" in result.stderr


def test_equal_input_gives_equal_plans(plan: Plan) -> None:
    plan.cluster(*(node(f"n{index}", cpu="8", memory="16Gi") for index in range(3))).example("demo-twenty-pods")
    assert plan.gangs() == plan.gangs()


def test_a_gang_that_greedy_rules_can_not_place_is_placed_with_proof(plan: Plan) -> None:
    shapes = (("memory", "16", "96Gi"), ("cpu", "32", "64Gi"), ("even", "24", "64Gi"))
    plan.cluster(*(node(f"{kind}-{index}", cpu=cpu, memory=memory) for kind, cpu, memory in shapes for index in range(3)))
    [gang] = plan.example("tight-gang").gangs()
    assert (gang["feasible"], gang["search"]["foundBy"], len(gang["assignments"])) == (True, "exact", 48)


# Options and output formats


def test_manifests_may_come_from_standard_input_and_in_a_list(plan: Plan) -> None:
    several = json.dumps({"apiVersion": "v1", "kind": "List", "items": [member("a"), member("b")]})
    [gang] = plan.cluster(node("n1", cpu="8")).gangs(files=("-",), stdin=several)
    assert [assignment["pod"] for assignment in gang["assignments"]] == ["a", "b"]


def test_option_for_manifests_takes_several_files(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"))
    for name in ("a", "b", "c"):
        (plan.folder / f"{name}.yaml").write_text(yaml.safe_dump(pod(name)))
    assert [gang["name"] for gang in plan.gangs("-f", str(plan.folder / "c.yaml"), files=("a.yaml", "b.yaml"))] == ["a", "b", "c"]


def test_option_namespace_applies_to_objects_without_a_namespace(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8")).manifest(pod("a"), pod("b", metadata={"namespace": "prod"}))
    assert [(gang["namespace"], gang["name"]) for gang in plan.gangs("-n", "ml")] == [("ml", "a"), ("prod", "b")]


def test_yaml_and_json_output_of_plan_agree(plan: Plan) -> None:
    plan.cluster(gpu_node("n1")).example("tfjob-smoke-gpu")
    assert yaml.safe_load(plan.run("-o", "yaml").stdout)["gangs"] == plan.gangs()


def test_yaml_and_tables_show_refused_gangs_with_any_names_of_resources(plan: Plan) -> None:
    plan.cluster(gpu_node("n1")).manifest(pod("a"), pod("much-too-large", cpu="99"))
    assert yaml.safe_load(plan.run("-o", "yaml").stdout)["gangs"] == json.loads(plan.run("-o", "json").stdout)["gangs"]
    resources = {"limits": {"x.y/\ud800": "1"}, "requests": {"x.y/\ud800": "1"}}
    plan.manifest(pod("odd", containers=[{"name": "main", "image": "i", "resources": resources}]))
    assert r"x.y/\ud800" in plan.run("-o", "wide").stdout


def test_a_table_has_one_line_for_each_gang(plan: Plan) -> None:
    result = plan.cluster(gpu_node("n1")).example("two-jobs").run()
    assert result.exit_code == 1
    header, first, second = (line.split() for line in result.stdout.splitlines())
    assert header == ["NAMESPACE", "NAME", "MIN", "PODS", "FITS", "REASON", "NODES", "MESSAGE"]
    assert first[:8] == ["default", "tf-first", "5", "5/5", "yes", "<none>", "n1", "(5)"]
    assert second[:7] == ["default", "tf-second", "5", "0/5", "no", "Insufficient", "<none>"]


def test_messages_are_printed_below_their_gangs_if_lines_are_too_short(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.cli.tables.line_width", lambda: 80)
    lines = plan.cluster(gpu_node("n1")).example("two-jobs").run().stdout.splitlines()
    assert lines[0].split() == ["NAMESPACE", "NAME", "MIN", "PODS", "FITS", "REASON"]
    assert lines[1].split() == ["default", "tf-first", "5", "5/5", "yes", "<none>"]
    assert lines[2:4] == ["  5 of 5 pods placed", "  on n1 (5)"]
    assert lines[4].split()[:5] == ["default", "tf-second", "5", "0/5", "no"]
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) > 6


def test_long_names_are_cut_where_lines_are_short(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.cli.tables.line_width", lambda: 60)
    lines = plan.cluster(node("n1", cpu="8")).manifest(pod("a" * 70)).run().stdout.splitlines()
    assert len(lines) == 4
    assert all(len(line) <= 60 for line in lines)


def test_lines_of_a_table_have_no_trailing_spaces(plan: Plan) -> None:
    plan.cluster(gpu_node("n")).manifest(pod("a"), pod("much-too-large", cpu="99"))
    lines = plan.run("-o", "wide").stdout.splitlines()
    assert len(lines) == 7
    assert [line.rstrip() for line in lines] == lines


def test_a_wide_table_shows_the_search_and_every_pod(plan: Plan) -> None:
    result = plan.cluster(gpu_node("n1")).example("two-jobs").run("-o", "wide")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert {"FOUND-BY", "SEED", "SCORE", "GENERATIONS", "STOPPED-BY"} <= set(lines[0])
    assert ["default", "tf-first-worker-3", "tf-first", "n1"] in lines
    assert ["default", "tf-second-ps-0", "tf-second", "<none>"] in lines


def test_manifests_without_pods_are_no_failure(plan: Plan) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    result = plan.cluster(node("n1", cpu="8")).manifest(service).run("-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["gangs"]) == (0, [])
    assert result.stderr == "note: skipped Service default/s: objects of this kind are not expanded into pods\nnote: no pods to place\n"


# Bad input


@pytest.mark.parametrize(
    ("objects", "field", "problem"),
    [
        ([member("a", "0")], f"metadata.labels[{PAIR}/min-available]", "'0' is not a whole number of at least 1"),
        ([member("a", "five")], f"metadata.labels[{PAIR}/min-available]", "'five' is not a whole number of at least 1"),
        ([member("a", 2)], f"metadata.labels[{PAIR}/min-available]", "2 is not a string"),
        ([pod("a", labels={f"{PAIR}/name": "g"})], f"metadata.labels[{PAIR}/min-available]", "min-available is missing"),
        ([pod("a", labels={"scheduling.x-k8s.io/pod-group": ""})], "metadata.labels[scheduling.x-k8s.io/pod-group]", "is empty"),
        ([pod("a", schedulingGroup={"podGroupName": "g"})], "spec.schedulingGroup.podGroupName", "is not supported yet"),
        ([member("a", "1"), member("b", "2")], f"metadata.labels[{PAIR}/min-available]", "PodGroupMinAvailables do not match"),
        ([member("a"), member("b", priority=5)], "spec.priority", "Priorities do not match"),
        (
            [pod("a", metadata={"annotations": {"allaboard.dev/objective": "fast"}})],
            "metadata.annotations[allaboard.dev/objective]",
            "'fast' is not one of binpack, spread",
        ),
        ([pod("a", cpu="much")], "spec.containers[0].resources.limits[cpu]", "'much' is not a quantity"),
        ([pod("a") | {"kind": ""}], "kind", "is missing"),
    ],
)
def test_error_names_the_bad_field_of_a_pod_and_its_file(plan: Plan, objects: list[Any], field: str, problem: str) -> None:
    result = plan.cluster(node("n1", cpu="8")).manifest(*objects).run()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: {plan.folder}/gangs.yaml: document {len(objects)}: {field}: ")
    assert problem in result.stderr


@pytest.mark.parametrize(
    ("spec", "annotations", "field"),
    [
        ({"minMember": -1}, None, "spec.minMember"),
        ({"minMember": "3"}, None, "spec.minMember"),
        ({"minMember": 1, "scheduleTimeoutSeconds": -5}, None, "spec.scheduleTimeoutSeconds"),
        ({"minMember": 1}, {"allaboard.dev/objective": "fast"}, "metadata.annotations[allaboard.dev/objective]"),
        ([], None, "spec"),
    ],
)
def test_error_names_the_bad_field_of_a_pod_group_and_its_file(plan: Plan, spec: Any, annotations: Any, field: str) -> None:
    metadata = {"name": "g", "annotations": annotations}
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a", labels={"scheduling.x-k8s.io/pod-group": "g"}), group).run()
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {plan.folder}/gangs.yaml: document 2: {field}: ")


def test_error_names_the_path_of_a_bad_label_in_a_workloads_template(plan: Plan) -> None:
    plan.cluster(gpu_node("n1")).example("tfjob-smoke-gpu")
    text = (plan.folder / "gangs.yaml").read_text().replace('min-available: "5"', 'min-available: "0"')
    (plan.folder / "gangs.yaml").write_text(text)
    result = plan.run("-o", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"document 1: spec.tfReplicaSpecs.PS.template.metadata.labels[{PAIR}/min-available]: " in result.stderr


def test_error_names_a_gang_that_exceeds_a_limit(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.gangs.registry.MEMBERS", replace(MEMBERS, most=5))
    result = plan.cluster(gpu_node("n1")).example("nginx-min-3").run()
    assert (result.exit_code, result.stdout) == (2, "")
    problem = "podgroup default/nginx: 6 living members are more than the 5 that are supported"
    assert f"document 1: spec.template.spec: {problem}" in result.stderr


def test_equal_pods_get_equal_refusals_from_one_search(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    advise, advised = Planner.advice, []

    async def advice(self: Planner, gang: Gang, gangs: Sequence[Gang]) -> Advised:
        advised.append(gang.key.name)
        return await advise(self, gang, gangs)

    monkeypatch.setattr(Planner, "advice", advice)
    alike = [pod(f"a{index}", cpu="2") for index in range(4)]
    gangs = plan.cluster(node("n1", cpu="5")).manifest(*alike, pod("b", cpu="4")).gangs(exit_code=1)
    assert [gang["feasible"] for gang in gangs] == [True, True, False, False, False]
    third, fourth, other = (gang["message"] for gang in gangs[2:])
    assert third == fourth == "0/1 nodes are available: 1 Insufficient cpu. Would fit with 1 more cpu (1 on n1)."
    assert other != third
    assert advised == ["a2", "b"]


def test_error_names_the_bad_cluster_file_and_its_field(plan: Plan) -> None:
    result = plan.cluster(node("n1", cpu="8"), node("n2", cpu="eight")).manifest(pod("a")).run()
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {plan.folder}/cluster.json: document 1: items[1].status.allocatable[cpu]: 'eight'")


def test_error_names_the_missing_file(plan: Plan) -> None:
    result = plan.cluster().run(files=("nowhere.yaml",))
    assert result.exit_code == 2
    assert "nowhere.yaml: can't be read: No such file or directory" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["-f", "x.yaml", "-o", "xml"], ["-f", "x.yaml", "--objective", "fast"]])
def test_a_wrong_command_line_is_bad_input(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["plan", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_wrong_setting_is_bad_input(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_SEARCH__GENERATIONS", "many")
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a")).run()
    assert result.exit_code == 2
    assert "search.generations" in result.stderr


def test_requests_of_functions_are_charged_in_a_plan_if_the_setting_openfaas_is_on(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    annotations = {"com.openfaas.function.spec": '{"requests": {"cpu": "3"}}'}
    there, new = pod("there", nodeName="n1"), pod("new")
    for each in (there, new):
        each["metadata"]["annotations"] = annotations
        each["spec"]["containers"][0].pop("resources", None)
    plan.cluster(node("n1", cpu="4"), there).manifest(new)
    assert plan.gangs()[0]["feasible"]
    monkeypatch.setenv("ALLABOARD_OPENFAAS", "true")
    assert "1 Insufficient cpu" in plan.gangs(exit_code=1)[0]["message"]


def test_the_stages_of_a_pipeline_are_planned_as_gangs(plan: Plan) -> None:
    gangs = plan.cluster(node("n1")).example("lstm-pipeline").gangs()
    assert [(gang["namespace"], gang["name"], gang["minMember"], gang["feasible"]) for gang in gangs] == [
        ("openfaas-fn", "ml-faas.lstm-pipeline.stage1", 2, True),
        ("openfaas-fn", "ml-faas.lstm-pipeline.stage2", 3, True),
        ("openfaas-fn", "ml-faas.lstm-pipeline.stage3", 1, True),
    ]


def test_invalid_pipeline_is_bad_input(plan: Plan) -> None:
    spec = {"pipeline": {"stage1": {"step": [{"name": "No Name", "mlfun": "x"}]}}}
    plan.cluster(node("n1")).manifest({"apiVersion": "kopf.dev/v1", "kind": "MLFlow", "metadata": {"name": "p"}, "spec": spec})
    result = plan.run()
    assert result.exit_code == 2
    assert "spec.pipeline.stage1.step[0].name: 'No Name' must be" in result.stderr


@pytest.mark.parametrize(
    ("there", "note"),
    [
        ([], "cluster.json: its nodes count as empty\n"),
        ([pod("a", nodeName="n1")], "except those of namespace default; kubectl's -A writes the pods of all namespaces\n"),
        ([pod("a", nodeName="n1"), pod("b", metadata={"namespace": "other"})], ""),
    ],
)
def test_note_says_that_a_snapshot_may_lack_pods(there: list[Any], note: str, plan: Plan) -> None:
    said = plan.cluster(node("n1", cpu="8"), *there, is_whole=False).manifest(pod("c")).run()
    assert said.exit_code == 0
    assert note in said.stderr
    assert said.stderr.count("no pods in") == bool(note)


# The live cluster


def test_without_a_snapshot_the_live_cluster_is_read(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(notes: list[str], reading: Reading) -> Cluster:
        notes.append("left out a pod of the cluster")
        assert reading == Reading({"mine"}, openfaas=True, charged_by_label=False)
        return Cluster(reading)

    monkeypatch.setattr("allaboard.whatif.live.read_live_cluster", read)
    for name, value in (("SCHEDULER_NAMES", "mine"), ("OPENFAAS", "true"), ("GPU__CHARGED_BY_LABEL", "false")):
        monkeypatch.setenv(f"ALLABOARD_{name}", value)
    plan.manifest(pod("a", schedulerName="mine"))
    result = CliRunner().invoke(cli, ["plan", "-f", str(plan.folder / "gangs.yaml")])
    assert result.exit_code == 1
    assert "no nodes available to schedule pods" in result.stdout
    assert result.stderr == "note: left out a pod of the cluster\n"


@pytest.mark.parametrize(
    ("error", "which"),
    [
        (CredentialsError("no cluster to connect to"), ""),
        (ApiError(403, "Forbidden", "nodes is forbidden"), " of kubeconfig {kubeconfig} (context 'here')"),
    ],
)
def test_unreadable_cluster_is_an_error_without_an_answer(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, error: Exception, which: str
) -> None:
    async def read(notes: list[str], _: Reading) -> Cluster:
        raise error

    monkeypatch.setattr("allaboard.whatif.live.read_live_cluster", read)
    kubeconfig = plan.folder / "kubeconfig"
    kubeconfig.write_text(
        "clusters: [{name: here, cluster: {server: http://127.0.0.1:9}}]\nusers: [{name: me, user: {}}]\n"
        "current-context: here\ncontexts: [{name: here, context: {cluster: here, user: me}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    plan.manifest(pod("a"))
    result = CliRunner().invoke(cli, ["plan", "-f", str(plan.folder / "gangs.yaml")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"Error: the cluster{which.format(kubeconfig=kubeconfig)} can't be read: {error}\n"


def test_gpu_requests_of_labels_and_annotations_are_honoured(plan: Plan) -> None:
    cluster = [gpu_node("n1"), gpu_node("n2")]
    cluster[0]["metadata"]["labels"] = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"}
    cluster[1]["metadata"]["labels"] = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960"}
    by_label = pod("a", labels={"genius/gpu-number": "3", "genius/gpu-model": "A100"})
    by_annotation = pod("b", metadata={"annotations": {"allaboard.dev/gpu-memory-each": "20Gi", "allaboard.dev/gpu-number": "2"}})
    gangs = {gang["name"]: gang for gang in plan.cluster(*cluster).manifest(by_label, by_annotation).gangs(exit_code=1)}
    assert nodes_of(gangs["a"]) == ["n2"]
    assert "1 Insufficient nvidia.com/gpu" in gangs["b"]["message"]
    assert "1 node(s) didn't match gpu-memory-each" in gangs["b"]["message"]
    assert "gpu-number asks for 2 nvidia.com/gpu" not in gangs["b"]["message"]  # two exist, on a node that doesn't fit for another reason


def test_message_names_nodes_with_gpus_of_unknown_model_or_memory(plan: Plan) -> None:
    labelled = gpu_node("n2")
    labelled["metadata"]["labels"] = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"}
    asked = {"gpu-model": "A100", "gpu-memory-each": "20Gi", "gpu-memory-total": "30Gi", "gpu-number": "2"}
    annotations = {f"allaboard.dev/{key}": value for key, value in asked.items()}
    [gang] = plan.cluster(gpu_node("n1"), labelled).manifest(pod("a", metadata={"annotations": annotations})).gangs(exit_code=1)
    for words in ("didn't match gpu-memory-each", "didn't match gpu-model", "had GPUs of unknown memory", "had GPUs of unknown model"):
        assert f"1 node(s) {words}" in gang["message"]


def test_gpus_that_a_label_asks_for_are_charged_in_a_plan_unless_the_setting_charged_by_label_is_off(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers = [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    there = pod("there", labels={"genius/gpu-number": "2"}, nodeName="n1", containers=containers)
    plan.cluster(gpu_node("n1", 2), there).manifest(pod("new", containers=containers))
    assert "1 Insufficient nvidia.com/gpu" in plan.gangs(exit_code=1)[0]["message"]
    monkeypatch.setenv("ALLABOARD_GPU__CHARGED_BY_LABEL", "false")
    assert plan.gangs()[0]["feasible"]


def test_pods_of_other_schedulers_are_charged_as_by_the_operator(plan: Plan) -> None:
    there = pod("there", labels={"genius/gpu-number": "2"}, schedulerName="default-scheduler", nodeName="n1")
    many = pod("many", schedulerName="default-scheduler", nodeName="n1", containers=[{"name": f"c{each}"} for each in range(70)])
    new = pod("new", containers=[{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}])
    assert plan.cluster(gpu_node("n1", 2), there, many).manifest(new).gangs()[0]["feasible"]


def test_invalid_gpu_label_is_bad_input(plan: Plan) -> None:
    result = plan.cluster(gpu_node("n1")).manifest(pod("a", labels={"genius/gpu-number": "many"})).run()
    assert result.exit_code == 2
    assert "genius/gpu-number" in result.stderr


def test_invalid_pod_of_the_snapshot_is_held_and_does_not_stop_the_plan(tmp_path: Path) -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team", "labels": {"genius/gpu-number": "many", **labels}},
            "spec": {"schedulerName": "allaboard", "nodeName": node, "containers": [{"name": "main"}]},
        }
        for name, node, labels in (("waits", "", {}), ("runs", "n1", {"genius/gpu-model": "("}))
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *pods]}))
    found = read_cluster([str(path)], PLAIN)
    assert [(pod.name, bool(pod.malformed)) for pod in found.pods] == [("waits", True), ("runs", True)]


def test_min_resources_of_a_pod_group_are_checked(plan: Plan) -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "spark"}, "spec": {"minMember": 1}}
    driver = pod("driver", metadata={"labels": {"scheduling.x-k8s.io/pod-group": "spark"}})
    plan.cluster(node("n1", cpu="3"))
    (gang,) = plan.manifest(group | {"spec": {"minMember": 1, "minResources": {"cpu": "4"}}}, driver).gangs(exit_code=1)
    assert (gang["reason"], gang["feasible"]) == ("NeverFits", False)
    assert "minResources asks for 4 cpu; the nodes have 3 in all" in gang["message"]
    (gang,) = plan.manifest(group | {"spec": {"minMember": 1, "minResources": {"cpu": "3"}}}, driver).gangs()
    assert gang["feasible"]


def test_plan_holds_a_pod_with_an_annotation_for_koordinator_and_names_the_annotation(plan: Plan) -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "prefill", "pod-group.scheduling.sigs.k8s.io/min-available": "1"}
    groups = {"gang.scheduling.koordinator.sh/groups": '["default/prefill", "default/decode"]'}
    manifest = pod("p", metadata={"labels": labels, "annotations": groups})
    (gang,) = plan.cluster(node("n1", cpu="3")).manifest(manifest).gangs(exit_code=1)
    assert (gang["reason"], gang["assignments"]) == ("Held", [])
    assert "annotation gang.scheduling.koordinator.sh/groups asks Koordinator" in gang["message"]


def storage_class(name: str, *, is_default: bool = False) -> Body:
    body = waiting_class(name)
    if is_default:
        body["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    return body


def free_volume(name: str, node_name: str) -> Body:
    return {**local_volume(name, "local", node_name), "status": {"phase": "Available"}}


def host(name: str) -> Body:
    found = node(name, cpu="8")
    return {**found, "metadata": {**found["metadata"], "labels": {"kubernetes.io/hostname": name}}}


def stateful_set(replicas: int) -> Body:
    labels = {"app": "db", "pod-group.scheduling.sigs.k8s.io/name": "db", "pod-group.scheduling.sigs.k8s.io/min-available": str(replicas)}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "podManagementPolicy": "Parallel",
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "db"}},
            "template": template,
            "volumeClaimTemplates": [claim],
        },
    }


def test_plan_places_pods_where_the_claims_of_their_stateful_set_get_volumes(plan: Plan) -> None:
    nodes = [host(name) for name in ("n1", "n2", "n3")]
    plan.cluster(*nodes, storage_class("local", is_default=True), free_volume("a", "n1"), free_volume("b", "n3"))
    [gang] = plan.manifest(stateful_set(2)).gangs()
    assert sorted(each["node"] for each in gang["assignments"]) == ["n1", "n3"]


def test_plan_says_how_many_nodes_have_no_free_volume(plan: Plan) -> None:
    nodes = [host(name) for name in ("n1", "n2")]
    plan.cluster(*nodes, storage_class("local", is_default=True), free_volume("a", "n1"))
    [gang] = plan.manifest(stateful_set(2)).gangs(exit_code=1)
    assert "2 node(s) didn't find available persistent volumes to bind" in gang["message"]


def test_claim_that_is_not_in_a_snapshot_with_claims_does_not_exist(plan: Plan) -> None:
    plan.cluster(node("n1", cpu="8"), storage_class("local"))
    [gang] = plan.manifest(pod("a", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])).gangs(exit_code=1)
    assert gang["feasible"] is None
    assert 'persistentvolumeclaim "data" not found' in gang["message"]


def test_plan_knows_the_claims_of_generic_ephemeral_volumes(plan: Plan) -> None:
    plan.cluster(host("n1"), host("n2"), storage_class("local", is_default=True), free_volume("a", "n2"))
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    [gang] = plan.manifest(pod("a", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])).gangs()
    assert nodes_of(gang) == ["n2"]


def test_a_preference_for_a_level_that_no_node_has_is_noted(plan: Plan) -> None:
    members = [member(f"m{number}", metadata={"annotations": {"allaboard.dev/topology": "preferred=rakc"}}) for number in range(2)]
    for each in members:
        each["metadata"]["labels"] = member("x")["metadata"]["labels"]
    result = plan.cluster(node("n1", cpu="8")).manifest(*members).run()
    assert "note: default/g: no node has a label for topology rakc, so this preference has no effect" in result.stderr


def test_a_selector_of_namespaces_is_noted_if_no_namespaces_can_be_read(plan: Plan) -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a", affinity=affinity)).run()
    assert "note: the cluster has no Namespaces to read, so terms with a namespaceSelector by labels select no namespace" in result.stderr
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "a"}}}
    assert "has no Namespaces" not in plan.cluster(node("n1", cpu="8"), namespace).run().stderr


_SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"topologySpreadConstraints": [_SPREAD, _SPREAD]}, "[1].topologyKey: 'zone' has another constraint with DoNotSchedule already"),
        ({"topologySpreadConstraints": [{**_SPREAD, "topologyKey": ""}]}, "[0].topologyKey: is missing"),
        (
            {"topologySpreadConstraints": [{**_SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}]},
            "[0].minDomains: may be stated",
        ),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}}},
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: is missing",
        ),
    ],
)
def test_terms_about_other_pods_that_the_api_server_refuses_are_bad_input(plan: Plan, spec: dict[str, Any], message: str) -> None:
    result = plan.cluster(node("n1", cpu="8")).manifest(pod("a", **spec)).run()
    assert result.exit_code == 2
    assert message in result.stderr
