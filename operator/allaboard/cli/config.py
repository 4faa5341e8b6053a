"""``allaboard config``: what a configuration file means, before the scheduler is started with it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.table import Table

from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import print_tables
from allaboard.configuration.profiles import Profile
from allaboard.model.packing import Packing
from allaboard.settings import CONFIG_VARIABLE, Settings, SettingsError, load_settings


@click.group()
def config() -> None:
    """Look at configuration files."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print it.")
def check(file: str, output: str) -> None:
    """Say what is in force with FILE as the --config file, and what of it isn't honoured.

    FILE is a KubeSchedulerConfiguration (kubescheduler.config.k8s.io v1, v1beta1 to v1beta3, v1alpha1 or v1alpha2), an
    AllaboardConfiguration (allaboard.dev/v1alpha1), both as documents of one file, or a mapping of options. The environment
    (ALLABOARD_...) wins over it here, too. A file that can't be used is told about in one line, and the exit code is 2.
    """
    try:
        with _configured_by(file):
            settings = load_settings()
    except SettingsError as error:
        raise BadInputError(str(error)) from error
    found = in_force(settings)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)


@contextmanager
def _configured_by(file: str) -> Iterator[None]:
    before = os.environ.get(CONFIG_VARIABLE)
    os.environ[CONFIG_VARIABLE] = file
    try:
        yield
    finally:
        os.environ.pop(CONFIG_VARIABLE)
        if before is not None:
            os.environ[CONFIG_VARIABLE] = before


def in_force(settings: Settings) -> dict[str, Any]:
    """The answer as a document: how pods of each scheduler name are placed, all options, and the warnings."""
    return {
        "schedulers": [
            _by_profile(name, settings.profiles[name]) if name in settings.profiles else _by_options(name, settings)
            for name in settings.scheduler_names
        ],
        "options": dict(_flat(settings.model_dump(mode="json"))),
        "warnings": list(settings.warnings),
    }


def _by_profile(name: str, profile: Profile) -> dict[str, Any]:
    scoring = profile.scoring
    return {
        "schedulerName": name,
        "objective": str(profile.objective),
        "scoring": str(scoring.strategy),
        "era": str(scoring.era),
        "shape": [{"utilization": place, "score": score} for place, score in scoring.shape],
        "resources": dict(scoring.resources),
        "weights": {
            "NodeResourcesFit": scoring.weight,
            "NodeAffinity": scoring.affinity,
            "TaintToleration": scoring.taints,
            "ImageLocality": scoring.images,
        },
        "from": profile.place,
    }


def _by_options(name: str, settings: Settings) -> dict[str, Any]:
    packing: Packing = settings.packing.parsed
    return {
        "schedulerName": name,
        "objective": str(settings.objective),
        "scoring": "packing",
        "era": "",
        "shape": [{"utilization": place, "score": score} for place, score in packing.shape],
        "resources": dict(packing.resources),
        "weights": {},
        "from": "options",
    }


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Options by their names as docs/settings.md has them."""
    for name, value in options.items():
        if isinstance(value, dict) and name in ("search", "packing"):
            yield from _flat(value, f"{name}.")
        else:
            yield f"{prefix}{name}", value


def _print(found: Mapping[str, Any]) -> None:
    schedulers = _table("SCHEDULER", "OBJECTIVE", "SCORING", "ERA", "SHAPE", "RESOURCES", "WEIGHTS", "FROM")
    for each in found["schedulers"]:
        shape = ",".join(f"{point['utilization']}={point['score']}" for point in each["shape"])
        name, objective, scoring, era = (each[key] for key in ("schedulerName", "objective", "scoring", "era"))
        schedulers.add_row(
            name, objective, scoring, era or "-", shape or "-", _told(each["resources"]), _told(each["weights"]), each["from"]
        )
    options = _table("OPTION", "VALUE")
    for name, value in found["options"].items():
        options.add_row(name, _told(value))
    warnings = _table("WARNINGS")
    for warning in found["warnings"]:
        warnings.add_row(warning)
    print_tables(schedulers, options, *([warnings] if found["warnings"] else []))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _told(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={each}" for name, each in value.items()) or "-"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value)) or "-"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value) if value != "" else "-"
