"""Tests that a kube-scheduler's configuration means the same as to the kube-scheduler of its version."""

import re
from pathlib import Path
from typing import Any

import pytest

from allaboard.model.fit import Era, FitScoring, Strategy
from allaboard.model.gang import Objective
from allaboard.settings.files import MOST_BYTES, parse_configuration
from allaboard.settings.kubescheduler import kubescheduler_from
from allaboard.settings.profiles import ConfigurationError, KubeSchedulerSettings, in_force

HERE = Path(__file__).parent


def config(version: str = "v1", **fields: object) -> dict[str, object]:
    return {"apiVersion": f"kubescheduler.config.k8s.io/{version}", "kind": "KubeSchedulerConfiguration", **fields}


def profile(
    name: str = "batch", args: dict[str, object] | None = None, plugin: str = "NodeResourcesFit", **fields: object
) -> dict[str, object]:
    return {"schedulerName": name, **fields, **({"pluginConfig": [{"name": plugin, "args": args}]} if args is not None else {})}


def strategy(kind: str, **fields: object) -> dict[str, object]:
    return {"scoringStrategy": {"type": kind, **fields}}


def scoring(raw: dict[str, object]) -> FitScoring:
    return kubescheduler_from(raw).profiles[0].scoring


def refused(raw: dict[str, object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        kubescheduler_from(raw)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_placeholder_for_the_kubeconfig_in_the_configuration_file_of_2020_must_be_replaced_by_a_path() -> None:
    content = (HERE / "scheduler-2020.yaml").read_bytes()
    words = "is a placeholder: replace it by a kubeconfig's path, or remove the line"
    assert parse_configuration(content).kubescheduler.unusable == {
        "kubeconfig": f"clientConnection.kubeconfig: 'REPLACE_ME_WITH_KUBE_CONFIG_PATH' {words}"
    }
    assert "kubeconfig" not in parse_configuration(content).options

    stated = parse_configuration(content.replace(b"REPLACE_ME_WITH_KUBE_CONFIG_PATH", b"/etc/kubernetes/scheduler.conf"))

    assert stated.options == {"kubeconfig": "/etc/kubernetes/scheduler.conf", "leader_elect": False}
    (only,) = stated.kubescheduler.profiles
    assert (only.scheduler_name, only.objective) == ("", Objective.BINPACK)
    resources = (("cpu", 1), ("nvidia.com/gpu", 1))
    assert only.scoring == FitScoring(
        Strategy.RATIO, Era.V1ALPHA, resources, ((0, 0), (100, 100)), weight=100, affinity=1, taints=1, images=1, pods=1, spread=0
    )
    assert any("LeastRequestedPriority: is the name of no plugin" in warning for warning in stated.kubescheduler.warnings)
    assert any("NodeResourcesLeastAllocated (weight 1) isn't scored beside" in warning for warning in stated.kubescheduler.warnings)


def test_file_of_genius_sets_the_weight_of_the_gpu_score() -> None:
    stated = parse_configuration((HERE / "genius.yaml").read_bytes())
    (only,) = stated.kubescheduler.profiles
    assert (only.scheduler_name, only.scoring.strategy, only.scoring.era) == ("genius-scheduler", Strategy.LEAST, Era.V1BETA1)
    assert stated.options == {
        "leader_elect": True,
        "lease_duration_seconds": 15,
        "lease_renew_deadline_seconds": 10,
        "lease_name": "genius-scheduler",
        "lease_namespace": "kube-system",
    }
    assert only.scoring.gpus == 300
    assert not [warning for warning in stated.kubescheduler.warnings if "genius" in warning]


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3", "v1"])
def test_scoring_strategy_is_an_argument_of_node_resources_fit_since_v1beta2(version: str) -> None:
    shape = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    args = strategy("RequestedToCapacityRatio", resources=[{"name": "nvidia.com/gpu", "weight": 5}, {"name": "cpu"}])
    args["scoringStrategy"]["requestedToCapacityRatio"] = {"shape": shape}  # type: ignore[index]
    found = kubescheduler_from(config(version, profiles=[profile(args=args)])).profiles[0]
    assert found.scoring.resources == (("nvidia.com/gpu", 5), ("cpu", 1))
    assert (found.scoring.era, found.scoring.shape) == (Era.TODAY, ((0, 10), (100, 0)))
    assert found.objective is Objective.SPREAD


@pytest.mark.parametrize(
    ("version", "plugin", "args", "found"),
    [
        ("v1beta1", "NodeResourcesMostAllocated", {"resources": [{"name": "cpu", "weight": 3}]}, (Strategy.MOST, (("cpu", 3),))),
        ("v1beta1", "NodeResourcesLeastAllocated", {}, (Strategy.LEAST, (("cpu", 1), ("memory", 1)))),
        ("v1beta1", "RequestedToCapacityRatio", {"shape": [{"utilization": 9, "score": 9}]}, (Strategy.RATIO, (("cpu", 1), ("memory", 1)))),
        (
            "v1alpha2",
            "RequestedToCapacityRatio",
            {"FUNCTIONSHAPE": [{"Utilization": 1, "SCORE": 7}], "ResourceToWeightMap": {"cpu": 0}},
            (Strategy.RATIO, (("cpu", 0),)),
        ),
    ],
)
def test_scoring_strategies_are_separate_plugins_before_v1beta2(version: str, plugin: str, args: dict[str, object], found: tuple) -> None:
    plugins = {"score": {"enabled": [{"name": plugin, "weight": 4}], "disabled": [{"name": "*"}]}}
    read = scoring(config(version, profiles=[profile(args=args, plugin=plugin, plugins=plugins)]))
    assert (read.strategy, read.resources) == found
    assert (read.weight, read.affinity, read.taints, read.images, read.pods, read.spread) == (4, 0, 0, 0, 0, 0)


def test_profile_without_plugins_scores_as_kube_scheduler_does_by_default() -> None:
    assert scoring(config(profiles=[profile()])) == FitScoring(affinity=2, taints=3, images=1, pods=2, spread=2)
    assert scoring(config("v1beta2", profiles=[profile()])) == FitScoring(affinity=1, taints=1, images=1, pods=1, spread=2)


def test_plugins_at_score_win_over_those_at_multi_point() -> None:
    plugins = {
        "multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 3}, {"name": "NodeAffinity", "weight": 9}]},
        "score": {"enabled": [{"name": "NodeAffinity", "weight": 4}], "disabled": [{"name": "ImageLocality"}]},
    }
    found = scoring(config(profiles=[profile(plugins=plugins)]))
    assert (found.weight, found.affinity, found.taints, found.images) == (3, 4, 3, 0)


def test_each_profile_of_the_file_adds_a_scheduler_name() -> None:
    found = kubescheduler_from(config(profiles=[profile("pack", strategy("MostAllocated")), profile("spread", strategy("LeastAllocated"))]))
    assert {each.scheduler_name: each.objective for each in found.profiles} == {"pack": Objective.BINPACK, "spread": Objective.SPREAD}


def test_warnings_name_known_fields_that_are_not_honoured() -> None:
    raw = config(
        parallelism=16,
        extenders=[{"urlPrefix": "http://e"}],
        clientConnection={"contentType": "application/vnd.kubernetes.protobuf", "qps": 50, "burst": 100},
        leaderElection={"resourceLock": "endpoints"},
        podMaxBackoffSeconds=20,
        profiles=[
            profile(
                args={"ignoredResources": ["example.com/foo"]},
                percentageOfNodesToScore=50,
                plugins={"permit": {"enabled": [{"name": "Coscheduling"}]}, "filter": {"disabled": [{"name": "NodePorts"}]}},
            )
        ],
    )
    found = kubescheduler_from(raw)
    fields = {warning.partition(": ")[0] for warning in found.warnings}
    assert fields == {
        "parallelism",
        "extenders",
        "clientConnection.contentType",
        "leaderElection.resourceLock",
        "profiles[0].percentageOfNodesToScore",
        "profiles[0].plugins.permit.enabled",
        "profiles[0].plugins.filter.disabled",
        "profiles[0].plugins.score",
        "profiles[0].pluginConfig[0].args.ignoredResources",
    }
    assert found.options == {"client_qps": 50.0, "client_burst": 100, "backoff_max_seconds": 20.0}


def test_warnings_name_plugins_that_allaboard_does_not_have() -> None:
    names = ["NodeResourcesFitPlus", "LoadAware", "TargetLoadPacking"]
    raw = config(
        profiles=[profile(plugins={"score": {"enabled": [{"name": name} for name in names]}}, pluginConfig=[{"name": "LoadAware"}])]
    )
    warnings = kubescheduler_from(raw).warnings
    for name in names:
        assert any(warning.startswith(f"profiles[0].plugins.score.enabled: {name}: ") for warning in warnings)
    assert "profiles[0].pluginConfig[0].args: LoadAware: isn't honoured" in warnings


SHAPED: Any = strategy("RequestedToCapacityRatio")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (config("v2"), "apiVersion: must be kubescheduler.config.k8s.io/ and one of v1alpha1, .*, not 'kubescheduler.config.k8s.io/v2'"),
        (config() | {"kind": "Policy"}, "kind: must be KubeSchedulerConfiguration, not 'Policy'"),
        (config(profils=[]), r"profils: no such field; did you mean profiles\?"),
        (config(Profiles=[]), r"Profiles: no such field; did you mean profiles\?"),
        (config(profiles={}), r"profiles: must be a list, not \{\}"),
        (config(profiles=[5]), r"profiles\[0\]: must be a mapping, not 5"),
        (config(profiles=[profile("a"), profile("a")]), r"profiles\[1\].schedulerName: 'a' is that of profiles\[0\], too; give each"),
        (config(profiles=[{}, {}]), r"profiles\[1\].schedulerName: is missing again; give each profile a name"),
        (config(profiles=[profile(str(number)) for number in range(65)]), "profiles: must have 64 entries at most"),
        (config(profiles=[profile("a" * 300)]), r"profiles\[0\].schedulerName: must be 253 characters at most, not 300"),
        (config(plugins={}), r"plugins: v1 has it in profiles; move it to profiles\[0\].plugins"),
        (config("v1alpha1", profiles=[{}]), "profiles: v1alpha1 has none"),
        (config(profiles=[profile(plugins={"scores": {}})]), r"profiles\[0\].plugins.scores: no such field; did you mean score"),
        (config(profiles=[profile(plugins={"score": {"enabled": [{"weight": 1}]}})]), r"score.enabled\[0\].name: must be stated$"),
        (
            config(profiles=[profile(args=strategy("Balanced"))]),
            r"Strategy.type: must be one of RequestedTo.*'Balanced'",
        ),
        (config(profiles=[profile(args=SHAPED)]), "requestedToCapacityRatio.shape: must have at least one point"),
        (
            config(profiles=[profile(args=strategy("MostAllocated", resources=[{"name": "cpu", "weight": 101}]))]),
            r"profiles\[0\].pluginConfig\[0\].args.scoringStrategy.resources\[0\].weight: must be 1 to 100, not 101",
        ),
        (
            config(profiles=[profile(args=strategy("MostAllocated", resources=[{"name": "cpu"}, {"name": "cpu"}]))]),
            r"resources\[1\].name: 'cpu' has a weight already",
        ),
        (
            config(profiles=[profile(args=strategy("MostAllocated", resources=[{"name": 5}]))]),
            "name: must be text in quotes, not 5",
        ),
        (config(profiles=[profile(pluginConfig=[{"name": "X"}, {"name": "X"}])]), r"pluginConfig\[1\].name: 'X' has arguments already"),
        (config("v1alpha1", leaderElection={"LeaderElect": True, "leaderelect": False}), "leaderElection: must not state a field twice"),
        (config(clientConnection={"burst": 2**70}), "clientConnection.burst: must be 100000 or less, not 1180591620717411303424"),
        (
            config(profiles=[profile(args={}, plugin="NodeResourceFit")]),
            r"profiles\[0\].pluginConfig\[0\].name: no such plugin as 'NodeResourceFit'; did you mean NodeResourcesFit\?",
        ),
        (
            config(profiles=[profile(plugins={"score": {"disabled": [{"name": "*"}, {"name": "imageLocality"}]}})]),
            r"profiles\[0\].plugins.score.disabled\[1\].name: no such plugin as 'imageLocality'; did you mean ImageLocality\?",
        ),
        (
            config(profiles=[profile(plugins={"permit": {"enabled": [{"name": "Cosheduling"}]}})]),
            r"plugins.permit.enabled\[0\].name: no such plugin as 'Cosheduling'; did you mean Coscheduling\?",
        ),
        (
            config(profiles=[profile(plugins={"score": {"enabled": [{"name": f"p{number}"} for number in range(257)]}})]),
            "plugins.score.enabled: must have 256 entries at most",
        ),
        (
            config("v1beta1", profiles=[profile(args=strategy("MostAllocated"))]),
            r"profiles\[0\].pluginConfig\[0\].args.scoringStrategy: v1beta1 has none; v1beta2 and later do",
        ),
        ({"kind": "KubeSchedulerConfiguration"}, r"^apiVersion: is missing; one of kubescheduler.config.k8s.io/v1alpha1, "),
        (config(podInitialBackoffSeconds=10**400), "^podInitialBackoffSeconds: must be 100000 or less, not 1000"),
        (config(podMaxBackoffSeconds=10**400), "^podMaxBackoffSeconds: must be 100000 or less, not 1000"),
        (config(clientConnection={"qps": "many"}), "clientConnection.qps: must be a number, not 'many'"),
        (
            config(leaderElection={"leaseDuration": "1.5s"}),
            "leaderElection.leaseDuration: must be whole seconds such as 15s",
        ),
        (config(leaderElection={"leaderElect": "yes"}), "leaderElection.leaderElect: must be true or false, not 'yes'"),
    ],
)
def test_message_about_a_mistake_is_one_line(raw: dict[str, object], words: str) -> None:
    assert re.search(words, refused(raw))


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([{"utilization": 0, "score": 11}], r"shape\[0\].score: must be 0 to 10, not 11"),
        ([{"utilization": 101, "score": 1}], r"shape\[0\].utilization: must be 0 to 100, not 101"),
        (
            [{"utilization": 5, "score": 1}, {"utilization": 5, "score": 2}],
            r"shape\[1\].utilization: must be more than",
        ),
    ],
)
def test_a_shape_of_utilization_scores_is_checked_since_v1beta1(points: list[object], words: str) -> None:
    plugins = {"score": {"enabled": [{"name": "RequestedToCapacityRatio"}]}}
    old = config("v1beta1", profiles=[profile(args={"shape": points}, plugin="RequestedToCapacityRatio", plugins=plugins)])
    assert re.search(words, refused(old))
    args = {"functionShape": points, "resourceToWeightMap": {"cpu": 1}}
    older = config("v1alpha1", plugins=plugins, pluginConfig=[{"name": "RequestedToCapacityRatio", "args": args}])
    assert len(scoring(older).shape) == len(points)


def test_pods_of_the_default_scheduler_are_scheduled_only_if_scheduler_names_lists_it() -> None:
    kubescheduler = kubescheduler_from(config(profiles=[profile("default-scheduler"), profile("pack", strategy("MostAllocated"))]))
    left = in_force(kubescheduler, ["allaboard"])
    assert (left.names, set(left.profiles)) == (("allaboard", "pack"), {"pack"})
    assert any("list default-scheduler in scheduler_names to take its pods over" in warning for warning in left.warnings)
    taken = in_force(kubescheduler, ["default-scheduler"])
    assert (taken.names, set(taken.profiles)) == (("default-scheduler", "pack"), {"default-scheduler", "pack"})
    assert any("kube-scheduler takes pods of default-scheduler, too" in warning for warning in taken.warnings)
    assert not any("kube-scheduler takes pods" in warning for warning in left.warnings)


def test_profile_without_a_name_is_for_the_configured_scheduler_names() -> None:
    found = in_force(kubescheduler_from(config(profiles=[profile("b"), {"plugins": {}}])), ["a", "b"])
    assert (found.names, {name: each.place for name, each in found.profiles.items()}) == (
        ("a", "b"),
        {"a": "profiles[1]", "b": "profiles[0]"},
    )
    assert any("is in force for a" in warning for warning in found.warnings)


KUBESCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodMaxBackoffSeconds: 20\n"
OWN = "apiVersion: allaboard.dev/v1alpha1\nkind: AllaboardConfiguration\nbackoffMaxSeconds: 30\nworkers: 2\n"


def test_file_may_contain_options_of_kube_scheduler_and_of_allaboard_and_the_latter_win() -> None:
    for text in (f"{KUBESCHEDULER}---\n{OWN}", f"---\n{OWN}---\n{KUBESCHEDULER}---\n"):
        assert parse_configuration(text.encode()).options == {"backoff_max_seconds": 30, "workers": 2}


def test_a_file_of_options_alone_needs_no_kind() -> None:
    assert (
        parse_configuration(b"backoff_max_seconds: 30\n").options == parse_configuration(OWN.replace("workers: 2\n", "").encode()).options
    )
    assert (parse_configuration(b"").own, parse_configuration(b"").kubescheduler) == ({}, KubeSchedulerSettings())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{KUBESCHEDULER}---\nworkers: 2\n", "^document 2: apiVersion: is missing; one of allaboard.dev/v1alpha1, kubescheduler"),
        ("profiles: [{schedulerName: a}]\n", "^looks like a KubeSchedulerConfiguration: add apiVersion and kind, such as kubescheduler"),
        (
            "kind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: a}]\n",
            r"^apiVersion: is missing; one of kubescheduler.config.k8s.io/v1alpha1, .*, kubescheduler.config.k8s.io/v1$",
        ),
        ("kind: AllaboardConfiguration\nworkers: 2\n", "^apiVersion: is missing; one of allaboard.dev/v1alpha1$"),
        ("kind: [a]\n", "^apiVersion: is missing; one of allaboard.dev/v1alpha1, kubescheduler"),
        ("apiVersion: allaboard.dev/v1alpha1\nworkers: 2\n", "^kind: is missing; must be AllaboardConfiguration$"),
        (f"{KUBESCHEDULER}---\n{KUBESCHEDULER}", "^document 2: there can be one KubeSchedulerConfiguration only$"),
        (f"{OWN}---\n{OWN}", "^document 2: there can be one AllaboardConfiguration only$"),
        ("apiVersion: v1\nkind: ConfigMap\n", "not of 'v1' 'ConfigMap'$"),
        ("apiVersion: kubesche\n", "not of 'kubesche'$"),
        ("workers: 1\nWorkers: 2\n", "^Workers: is stated twice, in different spellings$"),
        ("workers: 1\nworkers: 2\n", "^line 2: says 'workers' twice$"),
        (f"{KUBESCHEDULER}kind: x\n", "^line 4: says 'kind' twice$"),
        ("[1, 2]", r"^must hold a mapping of options, not \[1, 2\]$"),
        ("a: [", "^line 1: is not YAML"),
        ("x" * (MOST_BYTES + 1), "^is larger than 1 MiB"),
        ("\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 1}]" for n in range(9)), "^holds more than 100000 values$"),
    ],
)
def test_invalid_configuration_file_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_configuration(text.encode())


def test_example_file_has_the_profiles_and_options_that_it_describes() -> None:
    stated = parse_configuration((HERE.parents[2] / "examples" / "configuration" / "scheduler.yaml").read_bytes())
    assert [(each.scheduler_name, each.objective) for each in stated.kubescheduler.profiles] == [
        ("pack", Objective.BINPACK),
        ("spread", Objective.SPREAD),
    ]
    assert set(stated.options) == {"client_qps", "client_burst", "objective", "headroom", "search"}


def test_durations_may_have_hours_and_minutes_and_a_negative_qps_sets_no_option() -> None:
    elections = {"leaseDuration": "1m30s", "renewDeadline": "1h", "lockObjectName": "theirs"}
    found = kubescheduler_from(config(leaderElection=elections, clientConnection={"qps": -1}))
    assert found.options == {"lease_duration_seconds": 90, "lease_renew_deadline_seconds": 3600, "lease_name": "theirs"}
