"""Show in which parts of the operator its processor time went, from a profile that `throughput.py --profile FILE` has written with py-spy.

Each sample counts for the innermost function of Allaboard or Kopf that was running. Samples of the start, while modules are imported, are
left out.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

_AREAS = {
    "kopf/": "Kopf: events of PodGroups and labelled pods",
    "allaboard/model/": "reading pods and nodes",
    "allaboard/kube/reflector": "watches",
    "allaboard/kube/deep_json": "watches",
    "allaboard/kube/": "requests: binds, reports",
    "allaboard/cluster/": "the view and the gangs",
    "allaboard/gangs/": "the view and the gangs",
    "allaboard/placement/": "search",
    "allaboard/planning/": "rounds and plans",
    "allaboard/queueing/": "queue",
    "allaboard/records/": "queue",
    "allaboard/scheduling/": "attempts",
    "allaboard/binding/": "transactions",
    "allaboard/report/": "reports",
    "allaboard/": "other parts",
}
"""Areas by the beginning of the path of a source file; the first that matches counts."""

_LOOP = "event loop, TLS, HTTP"


def area_of(files: list[str]) -> str | None:
    """Return the area of a sample by the files of its functions, outermost first; None if modules were being imported."""
    if any("importlib" in file for file in files):
        return None
    for file in reversed(files):
        for start, area in _AREAS.items():
            if f"/{start}" in f"/{file}":
                return _LOOP if file.endswith(("reactor/running.py", "kopf/cli.py")) else area
    return None


@click.command(help=(__doc__ or "").partition("\n")[0], context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("profile", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--pods", type=click.IntRange(min=1), default=1000, show_default=True, help="Pods that were bound.")
def main(profile: Path, pods: int) -> None:
    """Print the table."""
    document = json.loads(profile.read_text())
    files = [frame.get("file") or "" for frame in document["shared"]["frames"]]
    seconds: Counter[str] = Counter()
    main_thread = max(document["profiles"], key=lambda each: len(each["samples"]))
    for sample, weight in zip(main_thread["samples"], main_thread["weights"], strict=True):
        if (area := area_of([files[frame] for frame in sample])) is not None:
            seconds[area] += weight
    total = sum(seconds.values())
    table = Table("part of the operator", "ms per pod", "share", title=f"{total:.1f} s of the main thread, {pods:,} pods")
    for area, spent in seconds.most_common():
        table.add_row(area, f"{1000 * spent / pods:.2f}", f"{spent / total:.0%}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    main()
