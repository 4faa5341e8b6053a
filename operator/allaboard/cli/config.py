"""``allaboard config``: show the settings in force with a configuration file, before the scheduler is started with it."""

import json
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from allaboard.cli.inputs import BadInputError
from allaboard.cli.tables import PlainTable, print_tables
from allaboard.model.packing import Packing
from allaboard.settings.options import CONFIG_VARIABLE, Settings, SettingsError, load_settings
from allaboard.settings.profiles import Profile

_COLUMNS = 78


def config(file: str, kubeconfig: str | None, output: str, *, all_options: bool) -> None:
    """Print the settings in force with ``file``. Raises ``BadInputError`` if the file can't be used."""
    try:
        with _configured_by(file):
            settings = load_settings({"kubeconfig": kubeconfig} if kubeconfig else None)
    except SettingsError as error:
        raise BadInputError(str(error)) from error
    found = in_force(settings)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found, {} if all_options else dict(_flat(Settings.model_construct().model_dump(mode="json"))))


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
    """Return the settings as a document: the scoring for each scheduler name, all options, and the warnings."""
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
            "InterPodAffinity": scoring.pods,
            "PodTopologySpread": scoring.spread,
            "genius": scoring.gpus,
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
    """Yield options by their dotted names, as docs/settings.md lists them."""
    for name, value in options.items():
        if isinstance(value, dict) and name in ("search", "packing", "gpu", "gpu_metrics"):
            yield from _flat(value, f"{name}.")
        else:
            yield f"{prefix}{name}", value


def _print(found: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Print tables of the settings. Options equal to ``defaults`` are left out; only the JSON document has what 80 columns can't show."""
    schedulers = _table("SCHEDULER", "OBJECTIVE", "SCORING", "ERA", "SHAPE", "RESOURCES")
    for each in found["schedulers"]:
        shape = ",".join(f"{point['utilization']}={point['score']}" for point in each["shape"])
        name, objective, scoring, era = (each[key] for key in ("schedulerName", "objective", "scoring", "era"))
        schedulers.add_row(name, objective, scoring, era or "-", shape or "-", _cell(each["resources"]))
    weights = _table("SCHEDULER", "WEIGHTS")
    for each in found["schedulers"]:
        if each["weights"]:
            weights.add_row(each["schedulerName"], ", ".join(f"{name}={weight}" for name, weight in each["weights"].items() if weight))
    warnings = _table("WARNINGS")
    for warning in found["warnings"]:
        for number, line in enumerate(textwrap.wrap(warning, _COLUMNS)):
            warnings.add_row(f"  {line}" if number else line)
    options = _table("OPTION", "VALUE")
    for name, value in found["options"].items():
        if name not in defaults or value != defaults[name]:
            options.add_row(name, _cell(value))
    print_tables(*(table for table in (schedulers, weights, warnings, options) if table.row_count))


def _table(*columns: str) -> PlainTable:
    table = PlainTable(padding=(0, 1), header_style="table.header")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        words = (
            (name, f"{{{_cell(each)}}}" if isinstance(each, Mapping) else _cell(each)) for name, each in value.items() if each is not None
        )
        return ",".join(f"{name}={word}" for name, word in words) or "-"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value)) or "-"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value) if value != "" else "-"
