"""Read the settings of the operator that runs in a cluster, so that ``plan`` and ``gpus`` count as the operator does.

The settings are read as ``config/`` and the chart state them: flags and variables of the operator's container, and the ConfigMap with its
configuration file. If the command itself states settings (``--config``, ``ALLABOARD_…``), the operator's settings are not read.
"""

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import click

from allaboard.cli.commands import run
from allaboard.kube.client import ApiError, ApiServer, CredentialsError
from allaboard.kube.lists import listed
from allaboard.kube.paths import PODS, Resource
from allaboard.model.errors import MalformedError
from allaboard.model.raw_fields import items, labels, mapping, sequence, text
from allaboard.model.requests import RawObject
from allaboard.model.variables import NAMESPACE_VARIABLE, OF_COMMANDS
from allaboard.settings.options import CONFIG_VARIABLE, Settings, SettingsError, load_settings

_DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
_CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")

OF_OPERATORS = "app.kubernetes.io/name=allaboard"
"""The label selector of the objects that run an operator."""

_PREFIX = "ALLABOARD_"
# All users who may create pods can give them the operator's label. In these namespaces only administrators create pods; the second one is
# that of static pods.
_NAMESPACES = ("allaboard-system", "kube-system")
_FEW = 3  # namespaces that a note names
_KUBECONFIG = f"{_PREFIX}KUBECONFIG"
_CONTAINER = "operator"
_OTHER_FLAGS = ("config", "kubeconfig", "verbose")  # flags that are no settings, or are valid only where the operator runs


@dataclass(frozen=True, slots=True)
class Installed:
    """The settings of an operator in the cluster."""

    title: str
    """Kind, namespace and name of the object that runs the operator, such as its Deployment, for messages."""
    variables: Mapping[str, str]
    """The operator's variables ``ALLABOARD_…``; its flags are included."""
    file: str = ""
    """Content of the configuration file; empty without one."""
    place: str = ""
    """Key and ConfigMap of the file, for messages; empty without a file."""


def operator_namespaces() -> Sequence[str]:
    """Return the namespaces whose objects may be the operator's: the stated one, else the usual ones."""
    stated = os.environ.get(NAMESPACE_VARIABLE)
    return (stated,) if stated else _NAMESPACES


def no_operator(claiming: Collection[str], adjective: str = "") -> str:
    """Return the note that there is no operator, with the namespaces that have objects ``claiming`` to be one."""
    if not claiming and NAMESPACE_VARIABLE not in os.environ:
        return f"no {adjective}operator of Allaboard was found in the cluster"
    why = f"no {adjective}operator of Allaboard was found in namespace {' or '.join(operator_namespaces())}"
    if not claiming:
        return why
    few = sorted(claiming)[:_FEW]
    more = f" and {len(claiming) - _FEW} more" if len(claiming) > _FEW else ""
    return (
        f"{why}, and what claims to be one in namespace {', '.join(few)}{more} is not trusted; "
        f"if you installed it there, set {NAMESPACE_VARIABLE}={few[0]}"
    )


def settings_in_force(kubeconfig: str, flags: Mapping[str, object], notes: list[str]) -> Settings:
    """Return what ``find_settings`` finds, where no event loop runs. Raises ``SettingsError``."""
    return asyncio.run(find_settings(kubeconfig, flags, notes))


async def find_settings(kubeconfig: str, flags: Mapping[str, object], notes: list[str]) -> Settings:
    """Return the settings of ``--config`` or the environment, else of the cluster's operator, else the defaults.

    ``flags`` win over all of them. A note is added to ``notes`` if the defaults are assumed. Raises ``SettingsError``.
    """
    if any(name.startswith(_PREFIX) and name not in (_KUBECONFIG, *OF_COMMANDS) for name in os.environ):
        return load_settings(flags)
    try:
        async with ApiServer.connect(kubeconfig=kubeconfig) as server:
            installed, why = await read_installed(server)
        if installed is not None:
            return _loaded(installed, flags)
    except CredentialsError:
        return load_settings(flags)  # reading the cluster will raise this error again
    except (ApiError, MalformedError, SettingsError) as error:
        why = f"the settings of the running operator can't be read: {error}"
    settings = load_settings(flags)
    notes.append(f"{why}; default settings are assumed (schedulerName {', '.join(settings.scheduler_names)}); --config states others")
    return settings


async def read_installed(server: ApiServer) -> tuple[Installed | None, str]:
    """Return the settings of the cluster's operator: of its first Deployment, else of its first pod that hasn't ended. Or None, and why.

    Raises ``ApiError``, and ``MalformedError`` for flags that no operator of this version has.
    """
    claiming: set[str] = set()
    for resource in (_DEPLOYMENTS, PODS):
        for raw in await listed(server, resource.everywhere, {"labelSelector": OF_OPERATORS}):
            if resource is PODS and mapping(raw, "status").get("phase") in ("Succeeded", "Failed"):
                continue
            metadata = mapping(raw, "metadata")
            namespace, name = text(metadata, "namespace", path="metadata."), text(metadata, "name", path="metadata.")
            if namespace not in operator_namespaces():
                claiming.add(namespace)
                continue
            pod = raw if resource is PODS else mapping(mapping(raw, "spec"), "template", "spec.")
            for _, container in items(mapping(pod, "spec"), "containers", "spec."):
                if container.get("name") == _CONTAINER:
                    title = f"{resource.kind} {namespace}/{name}"
                    return await _started_with(server, title, namespace, mapping(pod, "spec"), container), ""
    return None, no_operator(claiming)


async def _started_with(server: ApiServer, title: str, namespace: str, spec: RawObject, container: RawObject) -> Installed:
    variables = dict(await _variables(server, namespace, container))
    flags = _flags(container)
    path = str(flags.get("config") or variables.pop(CONFIG_VARIABLE, ""))
    variables |= {
        f"{_PREFIX}{name.upper()}": ",".join(value) if isinstance(value, list) else str(value)
        for name, value in flags.items()
        if name not in _OTHER_FLAGS and value not in (None, [], ())
    }
    variables.pop(_KUBECONFIG, None)
    if not path:
        return Installed(title, variables)
    config_map, key = _mounted_at(PurePosixPath(path), spec, container)
    data = await _data(server, namespace, config_map)
    if key not in data:
        raise MalformedError(title, f"ConfigMap {namespace}/{config_map} has no {key}")
    return Installed(title, variables, data[key], f"{key} of ConfigMap {namespace}/{config_map}")


async def _variables(server: ApiServer, namespace: str, container: RawObject) -> Mapping[str, str]:
    """Return the variables of a container that are settings. Variables from Secrets are left out."""
    found: dict[str, str] = {}
    for path, source in items(container, "envFrom"):
        reference = mapping(source, "configMapRef", path)
        if reference:
            prefix = text(source, "prefix", path=path)
            data = await _data(server, namespace, text(reference, "name", path=path))
            found |= {f"{prefix}{key}": value for key, value in data.items()}
    for path, variable in items(container, "env"):
        name = text(variable, "name", path=path)
        reference = mapping(mapping(variable, "valueFrom", path), "configMapKeyRef", path)
        if reference:
            data = await _data(server, namespace, text(reference, "name", path=path))
            found[name] = data.get(text(reference, "key", path=path), "")
        elif variable.get("valueFrom") is None:
            found[name] = text(variable, "value", path=path)
    return {name: value for name, value in found.items() if name.startswith(_PREFIX)}


async def _data(server: ApiServer, namespace: str, name: str) -> Mapping[str, str]:
    return labels(await server.get(_CONFIG_MAPS.named(namespace, name)), "data")


def _flags(container: RawObject) -> Mapping[str, object]:
    """Return the flags of ``allaboard run``; none if the container runs ``kopf``. Raises ``MalformedError`` for unknown flags."""
    words = [str(word) for field in ("command", "args") for word in sequence(container, field)]
    if any(PurePosixPath(word).name == "kopf" for word in words):
        return {}
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    try:
        stated, _, _ = run.make_parser(click.Context(run)).parse_args(words[first:])
    except click.UsageError as error:
        raise MalformedError("args", error.format_message()) from error
    return stated


def _mounted_at(path: PurePosixPath, spec: RawObject, container: RawObject) -> tuple[str, str]:
    """Return the ConfigMap and its key that are mounted as the file at ``path``. Raises ``MalformedError``."""
    volumes = {volume.get("name"): (where, volume) for where, volume in items(spec, "volumes", "spec.")}
    for where, mount in items(container, "volumeMounts"):
        folder = PurePosixPath(text(mount, "mountPath", path=where) or "/")
        part = text(mount, "subPath", path=where)
        if path != folder and folder not in path.parents:
            continue
        place, volume = volumes.get(mount.get("name"), ("", {}))
        config_map = mapping(volume, "configMap", place)
        if config_map:
            within = PurePosixPath(part) if path == folder else PurePosixPath(part) / path.relative_to(folder)
            keys = {
                text(item, "path", path=at): text(item, "key", path=at) for at, item in items(config_map, "items", f"{place}configMap.")
            }
            return text(config_map, "name", path=f"{place}configMap."), keys.get(str(within), str(within))
    raise MalformedError("args", f"{path} is no file of a ConfigMap")


def _loaded(installed: Installed, flags: Mapping[str, object]) -> Settings:
    """Return the settings of ``installed``. Raises ``SettingsError``, also for strategies of plug-ins that aren't installed here."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "settings.yaml")
        file.write_text(installed.file, encoding="utf-8")
        with _environment({**installed.variables, **({CONFIG_VARIABLE: str(file)} if installed.place else {})}):
            try:
                return load_settings(flags)
            except SettingsError as error:
                raise SettingsError(f"{installed.title}: {str(error).replace(str(file), installed.place)}") from error


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            with suppress(KeyError):
                del os.environ[name]
            if value is not None:
                os.environ[name] = value
