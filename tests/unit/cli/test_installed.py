"""Tests that commands on a live cluster use the settings of the operator that runs there."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allaboard.cli.installed import settings_in_force
from allaboard.settings.options import Settings
from allaboard_sandbox import Sandbox

Object = dict[str, Any]

FILE = "scheduler_names: [batch]\ngpu:\n  charged_by_label: false\n"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "allaboard-system"}}
MOUNT = {"volumes": [{"name": "settings", "configMap": {"name": "allaboard"}}]}


def operator(*args: str, kind: str = "Deployment", **spec: Any) -> Object:
    """Return the operator's Deployment as ``config/`` and the chart install it."""
    labels = {"app.kubernetes.io/name": "allaboard", "app.kubernetes.io/instance": "allaboard"}
    container: Object = {"name": "operator", "image": "allaboard:dev", "args": ["--log-format=json", "--leader-elect", *args]}
    container["volumeMounts"] = [{"name": "settings", "mountPath": "/etc/allaboard"}]
    container |= spec.pop("container", {})
    metadata = {"name": "allaboard", "namespace": spec.pop("namespace", "allaboard-system"), "labels": labels}
    pod = {"containers": [container], **MOUNT, **spec}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def config_map(**data: str) -> Object:
    metadata = {"name": "allaboard", "namespace": "allaboard-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {"allaboard.yaml": FILE}}


Ask = Callable[..., tuple[Settings, list[str]]]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return a function that returns the settings in force on a cluster with the given objects, and the notes."""

    def ask(*objects: Object, **flags: object) -> tuple[Settings, list[str]]:
        notes: list[str] = []

        async def asked() -> Settings:
            async with Sandbox(controllers=False) as cluster:
                for each in (NAMESPACE, *objects):
                    cluster.apply(each)
                cluster.write_kubeconfig(tmp_path / "kubeconfig")
                return await asyncio.to_thread(settings_in_force, str(tmp_path / "kubeconfig"), flags, notes)

        return asyncio.run(asked()), notes

    return ask


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_settings_are_read_from_the_operators_config_map(ask: Ask, kind: str) -> None:
    settings, notes = ask(operator("--config=/etc/allaboard/allaboard.yaml", kind=kind), config_map())
    assert (settings.scheduler_names, settings.gpu.charged_by_label, notes) == (("batch",), False, [])


def test_flags_and_variables_of_the_operators_container_win_over_its_configuration_file(ask: Ask) -> None:
    container = {"env": [{"name": "ALLABOARD_OPENFAAS", "value": "true"}, {"name": "HOME", "value": "/"}]}
    args = "--config", "/etc/allaboard/allaboard.yaml", "--scheduler-name=one", "--scheduler-name", "two", "--verbose"
    settings, _ = ask(operator(*args, container=container), config_map())
    assert (settings.scheduler_names, settings.openfaas, settings.gpu.charged_by_label) == (("one", "two"), True, False)


def test_variables_may_come_from_config_maps(ask: Ask) -> None:
    reference = {"configMapKeyRef": {"name": "allaboard", "key": "strategy"}}
    container = {
        "env": [{"name": "ALLABOARD_STRATEGY", "valueFrom": reference}],
        "envFrom": [{"prefix": "ALLABOARD_", "configMapRef": {"name": "allaboard"}}],
    }
    settings, notes = ask(operator(container=container), config_map(strategy="exact", SCHEDULER_NAMES="mine"))
    assert (settings.strategy, settings.scheduler_names, notes) == ("exact", ("mine",), [])


def test_flags_of_the_command_win_over_those_of_the_operator(ask: Ask) -> None:
    settings, _ = ask(operator("--strategy=exact", "--objective=spread"), strategy="bestfit")
    assert (settings.strategy, settings.objective) == ("bestfit", "spread")


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_an_operator_of_another_namespace_is_not_trusted_unless_its_namespace_is_named(
    ask: Ask, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = operator("--scheduler-name=theirs", kind=kind, namespace="default")
    settings, [note] = ask(theirs)
    assert settings.scheduler_names == ("allaboard",)
    assert "what claims to be one in namespace default is not trusted" in note
    assert "set ALLABOARD_OPERATOR_NAMESPACE=default" in note
    settings, notes = ask(theirs, operator("--scheduler-name=ours", kind=kind))
    assert (settings.scheduler_names, notes) == (("ours",), [])
    monkeypatch.setenv("ALLABOARD_OPERATOR_NAMESPACE", "default")
    settings, notes = ask(theirs, operator("--scheduler-name=ours", kind=kind))
    assert (settings.scheduler_names, notes) == (("theirs",), [])


def test_variables_of_the_commands_are_no_settings(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API", "TOKEN", "OPERATOR_NAMESPACE"):
        monkeypatch.setenv(f"ALLABOARD_{name}", "x")
    settings, [note] = ask()
    assert settings.model_dump() == Settings().model_dump()
    assert "no operator of Allaboard was found in namespace x;" in note


def test_settings_of_the_environment_are_used_instead_of_the_operators_settings(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_STRATEGY", "firstfit")
    settings, notes = ask(operator("--scheduler-name=theirs"))
    assert (settings.strategy, settings.scheduler_names, notes) == ("firstfit", ("allaboard",), [])


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], "no operator of Allaboard was found in the cluster"),
        (
            [operator("--config=/etc/allaboard/allaboard.yaml")],
            'the settings of the running operator can\'t be read: configmaps "allaboard" not found',
        ),
        (
            [operator("--config=/elsewhere/x.yaml")],
            "the settings of the running operator can't be read: args: /elsewhere/x.yaml is no file of",
        ),
        ([operator("--unknown")], "the settings of the running operator can't be read: args: No such option"),
        (
            [operator("--config=/etc/allaboard/allaboard.yaml"), config_map(**{"allaboard.yaml": "strategy: learned"})],
            "Deployment allaboard-system/allaboard: allaboard.yaml of ConfigMap allaboard-system/allaboard: ",
        ),
    ],
)
def test_note_says_why_default_settings_are_assumed(ask: Ask, objects: list[Object], why: str) -> None:
    settings, [note] = ask(*objects)
    assert settings.model_dump() == Settings().model_dump()
    assert why in note
    assert note.endswith("; default settings are assumed (schedulerName allaboard); --config states others")
