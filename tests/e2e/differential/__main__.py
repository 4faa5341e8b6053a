"""Compare this scheduler with kube-scheduler on random small clusters, one pod at a time."""

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from .cases import RULES
from .compare import comparison


@click.command(help=__doc__)
@click.option("--cases", default=100, show_default=True, help="How many cases are played.")
@click.option("--first", default=0, show_default=True, help="The seed of the first case; the next cases have the next seeds.")
@click.option("--rule", default="", type=click.Choice(["", *RULES]), help="A kind of rules that each pod has; any kinds without it.")
def main(cases: int, first: int, rule: str) -> None:
    """Ask both schedulers about random pods on random clusters, and print each disagreement.

    Each case has five nodes, some bound pods, and one pod with one or two kinds of rules. The exit status is 1 if the schedulers disagree:
    on whether a pod fits, on kube-scheduler's node, or on the reasons of a refusal.
    """
    with tempfile.TemporaryDirectory() as folder, comparison(Path(folder)) as compared:
        for seed in track(range(first, first + cases), console=Console(stderr=True), description="cases", transient=True):
            compared.play(seed, rule)
    table = Table("rules of the pod", "cases", box=None)
    for kinds, number in sorted(compared.rules.items()):
        table.add_row(kinds, str(number))
    console = Console()
    console.print(table, *compared.disagreements, sep="\n", markup=False)
    console.print(f"{cases} cases: {compared.fits} pods fit, {len(compared.disagreements)} disagreements")
    sys.exit(1 if compared.disagreements else 0)


if __name__ == "__main__":
    main()
