"""Tests that settings come from flags, the environment and a file, and that messages name mistakes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from allaboard.model.gang import Objective
from allaboard.model.options import KNOWN, OPTION_PREFIX
from allaboard.model.packing import Packing
from allaboard.model.variables import OF_COMMANDS
from allaboard.settings.options import Settings, SettingsError, load_settings
from tests.plugged import install

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "gangs.md"


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("objective: spread\nworkers: 3\nbind_concurrency: 7\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    monkeypatch.setenv("ALLABOARD_WORKERS", "4")
    monkeypatch.setenv("ALLABOARD_BIND_CONCURRENCY", "8")
    settings = load_settings({"bind_concurrency": 9})
    assert (settings.objective, settings.workers, settings.bind_concurrency) == (Objective.SPREAD, 4, 9)


def test_lists_are_separated_by_commas_in_the_environment_and_are_lists_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLABOARD_SCHEDULER_NAMES", "allaboard, scheduler-plugins-scheduler")
    assert load_settings().scheduler_names == ("allaboard", "scheduler-plugins-scheduler")
    path = tmp_path / "settings.yaml"
    path.write_text("namespaces: [a, b]\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    assert load_settings().namespaces == ("a", "b")


def test_variable_of_a_nested_option_has_two_underscores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_SEARCH__GENERATIONS", "99")
    assert load_settings().search.generations == 99


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ALLABOARD_OBJECTIVE", "tetris", "objective"),
        ("ALLABOARD_WORKERS", "0", "workers"),
        ("ALLABOARD_WORKERS", "many", "workers"),
        ("ALLABOARD_METRICS_PORT", "70000", "metrics_port"),
        ("ALLABOARD_SEARCH__MUTATION_RATE", "1.5", "search.mutation_rate"),
        ("ALLABOARD_PACKING__SHAPE", "0=11", "^packing: score must be a whole number from 0 to 10"),
        ("ALLABOARD_PACKING__RESOURCES", "cpu", "packing.resources: .*must be pairs"),
        ("ALLABOARD_SCHEDULER_NAMES", "", "^scheduler_names: must name at least one"),
        ("ALLABOARD_OBJEKTIVE", "spread", r"ALLABOARD_OBJEKTIVE: no such option; did you mean ALLABOARD_OBJECTIVE\?"),
        ("ALLABOARD_SEARCH", "abc", "^ALLABOARD_SEARCH: must be a mapping of preset, generations, .* in JSON, not 'abc'$"),
        ("ALLABOARD_PACKING", "{", "^ALLABOARD_PACKING: must be a mapping of shape, resources in JSON, not '{'$"),
        ("ALLABOARD_TOPOLOGIES", "rack=a/b", "^ALLABOARD_TOPOLOGIES: must be a mapping in JSON, not 'rack=a/b'$"),
        ("ALLABOARD_GPU__MODELS", "X9=memory=3", "^ALLABOARD_GPU__MODELS: must be a mapping in JSON, not 'X9=memory=3'$"),
        ("ALLABOARD_GPU__MODELS", '{"X9":{"memry":3}}', r"^gpu.models.X9.memry: no such option; did you mean memory\?$"),
        ("ALLABOARD_GPU__MODELS__X9", "abc", "^gpu.models.x9: must be a mapping of memory, .*, not 'abc'$"),
        ("ALLABOARD_SEARCH", "[1]", r"^search: must be a mapping of preset, generations, .*, not \[1\]$"),
        ("ALLABOARD_TOPOLOGY", "!!", "^topology: must be the key of a label such as topology.kubernetes.io/zone, not '!!'$"),
        (
            "ALLABOARD_LEASE_DURATION_SECONDS",
            "9",
            "^lease_retry_seconds must be less than lease_renew_deadline_seconds, .* not 2, 10 and 9$",
        ),
        ("ALLABOARD_LEASE_RENEW_DEADLINE_SECONDS", "2", "not 2, 2 and 15"),
        ("ALLABOARD_LEASE_RETRY_SECONDS", "0", "lease_retry_seconds"),
        ("ALLABOARD_LEASE_DURATION_SECONDS", "3601", "lease_duration_seconds"),
        ("ALLABOARD_LEASE_NAME", "No Name", "lease_name"),
        ("ALLABOARD_ADMISSION_HOSTS", "127.0.0.1,https://x", "admission_hosts.*must be the name or address of a host, in lower case"),
        ("ALLABOARD_ADMISSION_PORT", "-1", "admission_port"),
        ("ALLABOARD_STRATEGY", "tabu", "^strategy: no strategy 'tabu' is installed; known are genetic, exact, bestfit, firstfit, random$"),
        ("ALLABOARD_STRATEGIES", "genetic,tabu", "^strategies: no strategy 'tabu' is installed; known are genetic, "),
        ("ALLABOARD_STRATEGIES", "A b", "^strategies.0: must be the name of a strategy, of lower-case letters, digits and '-', not 'A b'$"),
        ("ALLABOARD_STRATEGY_OPTIONS__BESTFIT__MOST_USED", "7", "^strategy_options.bestfit.most_used: must be true or false, not '7'$"),
        ("ALLABOARD_STRATEGY_OPTIONS__RANDOM__SEED", "-1", "^strategy_options.random.seed: must be 0 or more, not '-1'$"),
        ("ALLABOARD_STRATEGY_OPTIONS__BESTFIT__MOST", "1", r"strategy_options.bestfit.most: no such option; did you mean most_used\?"),
        ("ALLABOARD_STRATEGY_OPTIONS__TABU__LENGTH", "7", "^strategy_options: no strategy 'tabu' is installed"),
    ],
)
def test_message_names_the_variable_that_has_a_mistake(name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=words):
        load_settings()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"objektive: spread", r"objektive: no such option; did you mean objective\?"),
        (b"nope: 1", "nope: no such option; known are .*backoff_initial_seconds, "),
        (b"search: {generation: 3}", "search.generation: no such option; did you mean generations or "),
        (b"search: {minGenerations: 3, min_generations: 4}", "search.min_generations: is stated twice, in different spellings"),
        (b"search: {preset: [seed]}", r"search.preset: must be '' or 'seed', not \['seed'\]$"),
        (b"search: 5", "search: must be a mapping of preset, generations, .*, not 5$"),
        (b"scheduler_names: []", r"scheduler_names: must name at least one, not \[\]$"),
        (b"node_selector: {zone: 1}", "node_selector.zone: must be text in quotes, not 1$"),
        (b"headroom: {cpu: -2}", "headroom: cpu: '-2' is neither a percentage up to 100% nor a quantity$"),
        (b"workers: 65", "workers: must be 64 or less, not 65$"),
        (b"lease_duration_seconds: 9", "lease_retry_seconds must be less than .* not 2, 10 and 9$"),
        (b"workers: 1\nworkers: 2", "line 2: says 'workers' twice$"),
        (b"- a", r"must hold a mapping of options, not \['a'\]$"),
        (b"a: [\n", "line 1: is not YAML: .*"),
        (b"a: \0", "is not YAML: control characters are not allowed"),
        (b"\xff\xfe", "is not UTF-8 text: invalid start byte at byte 0$"),
        (b"[" * 3000, "is nested too deeply$"),
        (None, "can't be read"),
    ],
)
def test_message_about_a_mistake_in_the_file_is_one_line_that_names_the_file(
    content: bytes | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.yaml"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    with pytest.raises(SettingsError, match=f"^{re.escape(str(path))}: {words}") as caught:
        load_settings()
    assert "\n" not in str(caught.value)


def test_message_about_a_mistake_in_a_variable_does_not_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("workers: 2\nsearch: {patience: 0}\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    monkeypatch.setenv("ALLABOARD_WORKERS", "0")
    monkeypatch.setenv("ALLABOARD_SEARCH__GENERATIONS", "0")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert sorted(str(caught.value).split("; ")) == [
        f"{path}: search.patience: must be 1 or more, not 0",
        "search.generations: must be 1 or more, not '0'",
        "workers: must be 1 or more, not '0'",
    ]


def test_an_empty_file_sets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    assert load_settings() == load_settings()


@pytest.mark.parametrize(("stated", "meant"), [("", {}), ("pool=train", {"pool": "train"}), (" a=b , c= ", {"a": "b", "c": ""})])
def test_node_selector_is_stated_as_labels(stated: str, meant: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_NODE_SELECTOR", stated)
    assert load_settings().node_selector == meant


def test_invalid_node_selector_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_NODE_SELECTOR", "pool")
    with pytest.raises(SettingsError, match=r"node_selector: .*pool=train"):
        load_settings()


def test_preset_sets_only_options_that_are_not_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("search: {preset: seed, populationSize: 64}\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    search = load_settings().search
    assert (search.generations, search.population_size, search.mutation_rate, search.crossover_rate) == (1000, 64, 0.2, 0.8)
    assert search.patience == 1000


@pytest.mark.parametrize(("value", "words"), [("cpu=much", "headroom.*'much' is neither"), ("cpu", "pairs like"), ("cpu=120%", "120%")])
def test_invalid_headroom_is_refused(value: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_HEADROOM", value)
    with pytest.raises(SettingsError, match=words):
        load_settings()


def test_headroom_may_be_stated_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("headroom: {cpu: 2, memory: 1.5, nvidia.com/gpu: '1'}\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    assert load_settings().headroom == {"cpu": "2", "memory": "1.5", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    "stated",
    [
        "{shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}], resources: [{name: cpu, weight: 2}]}",
        "{shape: {0: 10, 100: 0}, resources: {cpu: 2}}",
        "{shape: '0=10, 100=0', resources: 'cpu=2'}",
    ],
)
def test_packing_may_be_stated_in_kube_schedulers_form_or_a_shorter_one(
    stated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"packing: {stated}\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(file))
    assert load_settings().packing.parsed == Packing(((0, 10), (100, 0)), (("cpu", 2),))


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [
        ("{shape: [1]}", "must be a list of {utilization, score}"),
        ("{shape: [{utilization: 0, score: 1}, {utilization: 0, score: 2}]}", "must not state a key twice"),
        ("{shape: [{utilization: 0, score: 0}, {utilization: '0', score: 5}]}", "must not state a key twice"),
        ("{shape: '0=0,0=5'}", "must not state a key twice"),
        ("{shape: [{utilization: [1], score: 1}]}", "utilization must be a whole number"),
        ("{resources: [{name: cpu}]}", "must be a list of {name, weight}"),
        ("{resources: '=5'}", "'' is not the name of a resource"),
        ("{resources: cqu=5}", "'cqu' is not the name of a resource"),
        ("{shape: 5}", "packing.shape"),
        ("{form: 5}", "packing.form: no such option"),
    ],
)
def test_invalid_packing_is_refused(stated: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"packing: {stated}\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(file))
    with pytest.raises(SettingsError, match=wrong):
        load_settings()


def test_settings_name_the_default_strategy_the_allowed_strategies_and_their_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "raise RuntimeError('only looked up, not imported')", learned="Learned")
    file = tmp_path / "settings.yaml"
    file.write_text("strategies: [bestfit]\nstrategy_options: {bestfit: {most_used: true}, learned: {weights: w.json, depth: 3}}\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(file))
    found = load_settings({"strategy": "learned"})
    assert (found.strategy, found.strategies) == ("learned", ("bestfit",))
    assert found.strategy_options.by_name == {
        "bestfit": {"most_used": True},
        "random": {"seed": 0},
        "learned": {"weights": "w.json", "depth": 3},
    }
    monkeypatch.setenv("ALLABOARD_STRATEGIES", "")
    assert load_settings().strategies == ()


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [
        ("{learned: 5}", "strategy_options.learned: must be a mapping, not 5"),
        ("{learned: {layers: [1, 2]}}", "strategy_options.learned.layers"),
        ("[1]", "strategy_options: must be a mapping of bestfit, random, not"),
    ],
)
def test_invalid_strategy_options_are_refused(stated: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "", learned="Learned")
    file = tmp_path / "settings.yaml"
    file.write_text(f"strategy_options: {stated}\n")
    monkeypatch.setenv("ALLABOARD_CONFIG", str(file))
    with pytest.raises(SettingsError, match=re.escape(wrong)):
        load_settings()


def test_documentation_lists_exactly_the_options_of_a_gang() -> None:
    documented = re.findall(rf"^\| `{re.escape(OPTION_PREFIX)}([a-z-]+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(documented) == sorted(KNOWN)


SCHEDULERS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 3
leaderElection: {leaderElect: true, retryPeriod: 4s}
profiles:
- schedulerName: pack
  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
- schedulerName: spread
"""


def test_configuration_file_of_a_kube_scheduler_sets_scheduler_names_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(SCHEDULERS)
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    monkeypatch.setenv("ALLABOARD_LEASE_RETRY_SECONDS", "5")
    settings = load_settings()
    assert settings.scheduler_names == ("allaboard", "pack", "spread")
    assert {name: profile.objective for name, profile in settings.profiles.items()} == {
        "pack": Objective.BINPACK,
        "spread": Objective.SPREAD,
    }
    assert (settings.leader_elect, settings.backoff_initial_seconds, settings.lease_retry_seconds) == (True, 3.0, 5.0)
    assert any("NodeResourcesBalancedAllocation" in warning for warning in settings.warnings)


def test_options_in_the_configuration_file_of_a_kube_scheduler_are_checked_like_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(SCHEDULERS.replace("4s", "40s"))
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    with pytest.raises(SettingsError, match=r"scheduler.yaml: lease_retry_seconds must be less than"):
        load_settings()
    path.write_text(SCHEDULERS.replace("leaderElect: true", "leaderElect: 1"))
    with pytest.raises(SettingsError, match=r"scheduler.yaml: leaderElection.leaderElect: must be true or false, not 1$"):
        load_settings()


def test_gpu_options_are_stated_in_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "gpu: {unknownMemory: open, aliases: {big: H.00}, models: {X9: {memory: 1024}}, weight: 3, powerWeight: 0}\n"
        "topologies: {row: [example.com/row]}\n"
    )
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    monkeypatch.setenv("ALLABOARD_GPU__APPLICATION_ERRORS", "13, 31")
    settings = load_settings()
    policy = settings.gpu.policy
    assert (policy.unknown_fits, policy.excludes_unhealthy, policy.application_errors, policy.aliases) == (
        True,
        True,
        (13, 31),
        {"big": "H.00"},
    )
    assert (policy.models["X9"].memory, policy.weight, policy.weights.power, policy.weights.memory) == (1024, 3, 0, 2)
    assert (settings.levels["row"], settings.levels["zone"]) == (("example.com/row",), ("topology.kubernetes.io/zone",))


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [
        ("gpu: {aliases: {big: '('}}", "settings.yaml: gpu.aliases.big: '(' is no regular expression"),
        ("gpu: {models: {'(': {}}}", "settings.yaml: gpu.models: '(' is no regular expression"),
        ("gpu: {application_errors: 13}", "gpu.application_errors: must be a list of numbers, not 13"),
        ("gpu: {weight: .nan}", "gpu.weight: must be a number, not nan"),
        ("gpu: {weight: 2000000}", "gpu.weight: must be 1000000 or less, not 2000000"),
        ("gpu: {models: {X: {memory: -1}}}", "gpu.models.X.memory: "),
        ("gpu: {models: {X: {memroy: 1}}}", "gpu.models.X.memroy: no such option; did you mean memory?"),
        ("gpu: {models: {X: 3}}", "gpu.models.X: must be a mapping of memory, multiprocessors, decoders, encoders, bandwidth, not 3"),
        ("gpu: {models: {X: {memory: {}}}}", "gpu.models.X.memory: must be a number, not {}"),
        ("gpu: {models: 3}", "gpu.models: must be a mapping, not 3"),
        ("gpu: {unknown_memory: maybe}", "gpu.unknown_memory: "),
        ("topologies: {row: []}", "topologies.row: "),
        ("topologies: {row: ['a b']}", "must be the key of a label"),
    ],
)
def test_message_names_invalid_gpu_options(stated: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(stated)
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    with pytest.raises(SettingsError, match=re.escape(wrong)):
        load_settings()


def test_chart_accepts_exactly_the_options_of_a_configuration_file() -> None:
    schema = json.loads((ROOT / "charts" / "allaboard" / "values.schema.json").read_text())
    assert schema["properties"]["settings"] == {
        "type": "object",
        # The program checks a kube-scheduler's configuration. In its versions of 2020, keys may be in upper and lower case.
        "if": {
            "not": {"propertyNames": {"not": {"pattern": _API_VERSION}}},
            "patternProperties": {_API_VERSION: {"type": "string", "pattern": "^kubescheduler[.]config[.]k8s[.]io/"}},
        },
        "else": _names(Settings, apiVersion={}, kind={}),
    }


@pytest.mark.parametrize("stated", ["backfill: off", "gpu_metrics: {source: off}"])
def test_word_off_needs_no_quotes_in_a_configuration_file(stated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(stated)
    monkeypatch.setenv("ALLABOARD_CONFIG", str(path))
    settings = load_settings()
    assert "off" in (settings.backfill, settings.gpu_metrics.source)


_API_VERSION = "^[aA][pP][iI][vV][eE][rR][sS][iI][oO][nN]$"


_NUMBERS = ("minimum", "exclusiveMinimum", "maximum")
_TRUTHS = ("true", "t", "yes", "y", "on", "1", "false", "f", "no", "n", "off", "0")


def _names(options: type[BaseModel], **more: object) -> dict[str, Any]:
    """Return the JSON schema that accepts the options of the model in both spellings, and no other names."""
    known: dict[str, Any] = dict(more)
    schema = options.model_json_schema(by_alias=False)
    for name, field in options.model_fields.items():
        kind, second = field.annotation, to_camel(name) if options is Settings else field.alias or name
        is_group = isinstance(kind, type) and issubclass(kind, BaseModel)
        stated = schema["properties"][name]
        known[name] = known[second] = _names(kind) if is_group else _values(schema["$defs"][kind.__name__] if "$ref" in stated else stated)
    return {"type": "object", "properties": known, "additionalProperties": options.model_config["extra"] == "allow"}


def _values(stated: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an option's value: bounds of numbers, spellings of booleans, enumerated words. The program checks all else."""
    match stated.get("type"):
        case "integer" | "number" as kind:
            whole = {"multipleOf": 1} if kind == "integer" else {}
            return {key: stated[key] for key in _NUMBERS if key in stated} | whole | {"pattern": "[0-9]"}
        case "boolean":
            words = ("".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in word) for word in _TRUTHS)
            return {"minimum": 0, "maximum": 1, "pattern": f"^({'|'.join(words)})$"}
        case _:
            words = stated.get("enum", ())
            return {"enum": [*words, *([False] if "off" in words else [])]} if words else {}  # YAML reads the word off as false


@pytest.mark.parametrize("name", OF_COMMANDS)
def test_variables_of_commands_are_no_settings_and_no_mistakes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell in which the address of an operator was exported can start another operator."""
    monkeypatch.setenv(name, "x")
    assert load_settings({}) is not None
    monkeypatch.setenv(f"{name}S", "x")
    with pytest.raises(SettingsError, match=f"{name}S: no such option"):
        load_settings({})
