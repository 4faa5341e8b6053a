"""``make cluster``: start and stop a real control plane on this machine."""

import os
import shutil
import sys
from pathlib import Path

import click
import yaml
from rich.console import Console
from rich.table import Table

from . import binaries, modules
from .controlplane import NODE_ANNOTATION, ControlPlane, forget_data
from .processes import StartError, stop_noted

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "cluster"
CRDS = ROOT / "crds"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Run a real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, fake kubelets, training-operator.

    It needs no containers and no root. Programs that are not installed are built with Go at the first start, in about ten minutes.
    """


@cli.command()
@click.option(
    "--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="Folder of the cluster's files and logs."
)
@click.option("--nodes", default=2, show_default=True, help="Number of fake nodes at the start.")
@click.option("--cpu", default="8", show_default=True, help="Processors of each node.")
@click.option("--gpus", default=4, show_default=True, help="GPUs of each node.")
@click.option("--scheduler/--no-scheduler", default=True, show_default=True, help="Start kube-scheduler too.")
@click.option("--gang-scheduler-name", default="", help="training-operator's flag: makes it create a PodGroup for each job.")
@click.option("--bare", is_flag=True, help="Start no nodes, kubelets, kube-scheduler or training-operator: the tests start their own.")
def up(folder: Path, nodes: int, cpu: str, gpus: int, scheduler: bool, gang_scheduler_name: str, bare: bool) -> None:
    """Start a cluster, leave it running, and print the command that makes kubectl use it."""
    console = Console(stderr=True)
    if stop_noted(folder):
        console.print("the cluster that was running has been stopped")
    forget_data(folder)
    shutil.rmtree(folder, ignore_errors=True)
    plane = ControlPlane(folder, console=console)
    try:
        plane.start()
        for crd in sorted(CRDS.glob("*.yaml")):
            plane.api.apply(yaml.safe_load(crd.read_text()))
        if bare:
            plane.processes.stop("kwok")
        else:
            if scheduler:
                plane.start_scheduler()
            plane.start_training_operator(gang_scheduler_name)
        for number in range(1, 1 if bare else nodes + 1):
            plane.api.request("POST", "/api/v1/nodes", _node(f"node-{number}", cpu, gpus))
    except (binaries.MissingToolError, StartError) as error:
        plane.stop()
        raise click.ClickException(str(error)) from None
    console.print(f"running: {plane.describe()}", highlight=False, soft_wrap=True)
    has = "no nodes" if bare else f"{nodes} fake nodes with {cpu} cpu and {gpus} GPUs each"
    console.print(
        f"{has}; `make cluster-down` ends it; logs in {folder}",
        highlight=False,
        soft_wrap=True,
    )
    click.echo(f"export KUBECONFIG={plane.kubeconfig}")


@cli.command()
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="As given to `up`.")
def down(folder: Path) -> None:
    """Stop the cluster that `up` has started."""
    stopped = stop_noted(folder)
    forget_data(folder)
    shutil.rmtree(folder, ignore_errors=True)
    click.echo(f"stopped {', '.join(stopped)}" if stopped else "no cluster is running", err=True)


@cli.command()
@click.argument("names", nargs=-1, type=click.Choice([program.name for program in binaries.PROGRAMS]), metavar="[PROGRAM]...")
def build(names: tuple[str, ...]) -> None:
    """Build each PROGRAM that is not installed (all programs, if none is named), and print the paths."""
    console = Console(stderr=True)
    programs = [program for program in binaries.PROGRAMS if not names or program.name in names]
    try:
        paths = binaries.ensure(programs, console)
    except binaries.MissingToolError as error:
        raise click.ClickException(str(error)) from None
    table = Table("program", "version", "where")
    for program in programs:
        path = paths[program.name]
        table.add_row(program.name, binaries.version_of(program, path), str(path))
    Console().print(table)


@cli.command()
@click.argument("release", metavar="RELEASE")
def module(release: str) -> None:
    """Write the Go module in which the control plane of a Kubernetes RELEASE is built: 1.34.11, or 1.34 for its newest patch."""
    try:
        written = modules.write_module(release, sorted(program.package for program in binaries.OF_THE_RELEASE))
    except binaries.MissingToolError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"written: Kubernetes {written.version}, which K8S={written.minor} builds")


def _node(name: str, cpu: str, gpus: int) -> dict[str, object]:
    from allaboard_sandbox import NodeShape, node_object  # the same shape as the sandbox's nodes

    node = node_object(name, NodeShape(cpu, gpus=gpus))
    node["metadata"]["annotations"] = dict([NODE_ANNOTATION])
    return node


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(cli())
