"""The options and the help of each command.

Nothing here imports what a command does. Help and shell completion read this module only, so they answer at once; the command's own module
is imported when the command is called. A command ``NAME`` is the function ``NAME`` of the module ``allaboard.cli.NAME``.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from allaboard.cli.inputs import BadInputError, FiniteRange, ManyValues, Quantity, Seeds, uninterrupted

_OF_THE_SANDBOX = ("allaboard_sandbox", "jsonpatch", "jsonschema")
"""Packages that the extra `sandbox` installs; the operator does without them."""

# Values that live in modules whose import takes longer than help may. Tests compare them with those modules.
OBJECTIVES = ("binpack", "spread", "fragmentation")
STORIES = (
    "pack",
    "spread",
    "two-jobs",
    "nginx-3",
    "nginx-4",
    "room-kept",
    "room-lost",
    "one-by-one",
    "impossible",
    "order-trap",
    "tight",
    "gpu-model",
    "lstm-pipeline",
    "twenty",
)

_FILE = click.Path(exists=True, dir_okay=False)
_KUBECONFIG = click.option("--kubeconfig", type=_FILE, help="Cluster to look at, instead of what KUBECONFIG names.")


def _call(command: str, **stated: Any) -> None:
    """Import the module of ``command`` and call its function. Signals that arrive during the import take effect after the import.

    Raises ``BadInputError`` when a package that only the sandbox needs isn't installed.
    """
    try:
        with uninterrupted():
            module = import_module(f"allaboard.cli.{command}")
    except ModuleNotFoundError as error:
        if error.name not in _OF_THE_SANDBOX:
            raise
        raise BadInputError(f"`allaboard {command}` needs the extra: pip install 'allaboard[sandbox]'") from error
    getattr(module, command)(**stated)


@click.command(short_help="Run the scheduler on the cluster that KUBECONFIG or the pod's service account names.")
@click.option("--config", type=_FILE, help="YAML file of settings; environment and flags win over it.")
@click.option("--kubeconfig", type=_FILE, help="Cluster to schedule, instead of what KUBECONFIG names.")
@click.option("--scheduler-name", "scheduler_names", multiple=True, help="Pods with this schedulerName are ours (repeatable) [allaboard].")
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Schedule pods of this namespace only (repeatable) [all].")
@click.option("--objective", type=click.Choice(OBJECTIVES), help="What placements aim at unless a gang says otherwise [fragmentation].")
@click.option("--strategy", metavar="NAME", help="Who places gangs unless they say otherwise [genetic].")
@click.option("--workers", type=int, help="Processes that search [1].")
@click.option("--leader-elect/--no-leader-elect", default=None, help="Let one of several replicas decide [no].")
@click.option("--lease-namespace", help="Namespace of the replicas' Lease [the pod's own; `default` outside of a cluster].")
@click.option("--metrics-port", type=int, help="Port of /metrics; 0 for none [8080].")
@click.option("--health-port", type=int, help="Port of /healthz; 0 for none [8081].")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How log lines look [text].")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def run(**stated: Any) -> None:
    """Run the scheduler until interrupted.

    Every setting is also an environment variable, ALLABOARD_ and its name in capitals (ALLABOARD_BIND_CONCURRENCY=128), and a key
    of the --config file. Pods of all namespaces are watched in any case, since they take room on nodes.
    """
    _call("run", **stated)


@click.command(
    cls=ManyValues,
    short_help="Place gangs without binding anything, on a cluster or on a snapshot of one.",
    epilog="Exit code: 0 when every gang fits, or there is none, 1 when some don't, 2 for bad input, 130 when interrupted.",
)
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="MANIFEST...", help="YAML or JSON, a folder of it, or '-'."
)
@click.option(
    "--cluster",
    "snapshots",
    multiple=True,
    metavar="SNAPSHOT...",
    help="Files from `kubectl get nodes,pods -A -o json`, instead of the live cluster.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects that state none.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json", "yaml"]), default="table", help="A table unless said otherwise."
)
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    help="What placements aim at unless a gang says otherwise.",
)
@click.option("--strategy", metavar="NAME", help="Who places gangs unless they say otherwise: genetic, exact, bestfit, or a plug-in's.")
@click.option(
    "--config",
    type=_FILE,
    help="The scheduler's YAML file of settings [what ALLABOARD_CONFIG names, else those of the operator in the live cluster].",
)
@_KUBECONFIG
@click.option(
    "--gang-scheduler-name",
    metavar="NAME",
    help="That flag of training-operator, with which it makes PodGroups for jobs [what its pod in the cluster says].",
)
@click.option(
    "--gang-scheduling",
    "mpi_gang_scheduler_name",
    metavar="NAME",
    help="That flag of mpi-operator, with which it makes PodGroups for MPIJobs; None for none [what its pod in the cluster says].",
)
@click.option("--skip-unknown", is_flag=True, help="Leave out objects of kinds that aren't known, instead of exit code 2.")
def plan(**stated: Any) -> None:
    """Place gangs without binding anything, on the live cluster or on a snapshot of one.

    Workloads are expanded into the pods that their controllers would make: Pod, PodGroup, Deployment, ReplicaSet, ReplicationController,
    StatefulSet, Job, CronJob, TFJob, PyTorchJob, MPIJob, XGBoostJob, PaddleJob, JAXJob, and MLFlow with all its stages. Objects that
    create no pods are skipped. Gangs are placed as the scheduler would place them if all were due at once: in queue order, those that
    contend together. A gang is placed whole or not at all: when its minimum doesn't fit, none of its pods is assigned.
    """
    _call("plan", **stated)


@click.command(short_help="Show the GPUs of a cluster: which are free, and how they are.")
@_KUBECONFIG
@click.option(
    "--config", type=_FILE, help="The operator's configuration file, instead of what the operator in the cluster was started with."
)
@click.option("--url", default=None, help="Prometheus to ask (http://127.0.0.1:9090), instead of the one that is found.")
@click.option("--no-metrics", is_flag=True, help="What nodes and pods say is enough.")
@click.option("--cards", "each_card", is_flag=True, help="A row for each card instead of each node.")
@click.option("-w", "--watch", is_flag=True, help="Show it again and again, until interrupted.")
@click.option("--every", type=FiniteRange(min=0.1), default=10.0, show_default=True, metavar="SECONDS", help="Pause with --watch.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print it.")
def gpus(**stated: Any) -> None:
    """Show the GPUs of the cluster: which are free, and how they are.

    Pods are counted by the settings of the operator that runs in the cluster, unless --config or variables (ALLABOARD_...) state others.
    FREE counts what pods ask for; it needs no metrics. Where a driver hands out parts of cards, it is in cards (1.5/2). The rest comes
    from dcgm-exporter, ObserverWard or whatever the settings say (gpu_metrics), by way of Prometheus, read as the operator reads it; MODEL
    and MEM/GPU come from labels of the nodes where there is none. AGE is that of the metrics; HEALTH is the last XID error of a card, or
    rows of its memory that couldn't be remapped.

    \b
    From outside of the cluster, where names of Services mean nothing:
      kubectl -n monitoring port-forward svc/prometheus-operated 9090 &
      allaboard gpus --url http://127.0.0.1:9090
    """
    _call("gpus", **stated)


@click.group(short_help="Check a configuration file, and see what is in force with it.")
def config() -> None:
    """Look at configuration files."""


@config.command()
@click.argument("file", type=_FILE)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="The kubeconfig with which the operator will be started, which wins over the one that FILE names.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print it.")
@click.option("--all", "all_options", is_flag=True, help="Show all options in the table, not only those that differ from their defaults.")
def check(**stated: Any) -> None:
    """Say what is in force with FILE as the --config file, and what of it isn't honoured.

    FILE is a KubeSchedulerConfiguration (kubescheduler.config.k8s.io v1, v1beta1 to v1beta3, v1alpha1 or v1alpha2), an
    AllaboardConfiguration (allaboard.dev/v1alpha1), both as documents of one file, or a mapping of options. The environment
    (ALLABOARD_...) wins over it here, too. A file that can't be used is told about in one line, and the exit code is 2.
    """
    _call("config", **stated)


@click.command(
    short_help="Replay a workload on made-up nodes and see what is left unused.",
    epilog="""\b
Examples:
  allaboard simulate --nodes nodes.csv --pods pods.csv
  allaboard simulate --nodes nodes.csv --pods pods.csv --strategy fgd --strategy fgd-bestfit --plot curves.svg
  allaboard simulate -f scenario.yaml -o json

The form of the files, and what the figures mean: docs/simulate.md. Exit code: 0, 2 for bad input, or 130 when
interrupted.""",
)
@click.option("--nodes", "nodes_file", metavar="CSV", help="Nodes: sn, cpu_milli, memory_mib, gpu, model.")
@click.option("--pods", "pods_file", metavar="CSV", help="Tasks: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.")
@click.option(
    "-f", "--filename", metavar="YAML", help="Instead of both: nodes, and gangs with arrival and run times; '-' is standard input."
)
@click.option(
    "--inflate",
    type=FiniteRange(0.0, 100.0),
    default=1.3,
    show_default=True,
    help="Sample further tasks, or leave some out, until they ask for so many times all GPUs; 0 replays each once. Of CSV only.",
)
@click.option(
    "--seeds",
    type=Seeds(),
    metavar="SEEDS",
    help="One run for each: how tasks are shuffled and sampled, and what is drawn at random.  [default: 42-51; 42 with -f]",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="Who decides, may be repeated: genetic (default) is `allaboard run`'s, exact, bestfit, firstfit, random, fgd, or a plug-in.",
)
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    help="What genetic aims at [default: as `allaboard run`].",
)
@click.option("--batch", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Tasks of CSV files that arrive together.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="A table unless said otherwise.")
@click.option("--plot", metavar="FILE", help="Draw the curves, over hours or against arrived load, as .png or .svg.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes that replay [default: one for each processor].")
@click.option("--dask", metavar="ADDRESS", help="Replay on a Dask cluster instead, such as tcp://scheduler:8786.")
def simulate(**stated: Any) -> None:
    """Replay a workload on a list of nodes, and see what is left unused.

    Tasks of CSV files arrive one by one in random order and stay; what doesn't fit is dropped. Gangs of a YAML file arrive, wait until
    they fit whole, run, and finish. Without --strategy and --objective it decides as `allaboard run` would by default; the others are
    baselines to compare with. Nothing is read from or written to a cluster.
    """
    _call("simulate", **stated)


@click.command(short_help="Serve a sandbox cluster for kubectl until interrupted.")
@click.option("--nodes", type=click.IntRange(min=0), default=4, show_default=True, metavar="N", help="Nodes, named node-1 and so on.")
@click.option("--gpus", type=click.IntRange(min=0), default=4, show_default=True, metavar="N", help="GPUs of each node.")
@click.option("--cpu", type=Quantity(), metavar="QUANTITY", default="16", show_default=True, help="CPUs of each node.")
@click.option("--memory", type=Quantity(), metavar="QUANTITY", default="64Gi", show_default=True, help="Memory of each node.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="P", help="Port of the API server [any free one].")
@click.option(
    "--kubeconfig-out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the kubeconfig [a temporary file]. A file that isn't a sandbox's kubeconfig is never overwritten.",
)
@click.option(
    "--run",
    "is_scheduled",
    is_flag=True,
    help="Run the scheduler as well, in this process, with the settings of the environment. Its log goes to stderr.",
)
@click.option(
    "--gang-scheduler-name", default="", metavar="NAME", help="Make PodGroups for TFJobs, as training-operator does with this flag."
)
def sandbox(**stated: Any) -> None:
    """Serve a sandbox cluster for kubectl until interrupted.

    It is an API server with fake kubelets in one process: pods are admitted, run and end, but contain nothing. Those that name the
    scheduler (schedulerName: allaboard) are bound once one runs: that of --run, or an `allaboard run` with the KUBECONFIG that is printed.
    All others stay pending.

    \b
    A first try, in one terminal:
      allaboard sandbox --nodes 1 --gpus 4 --run
    In another one, after the line that the first has printed:
      kubectl apply -f examples/two-jobs.yaml
      kubectl get podgroups --watch
    """
    _call("sandbox", **stated)


@click.command(short_help="Watch real manifests being scheduled whole or not at all.")
@click.option("--keep", is_flag=True, help="Leave the sandbox and the scheduler up afterwards, for kubectl, until interrupted.")
@click.option("--story", "names", multiple=True, type=click.Choice(STORIES), help="Play this one only (repeatable).")
@click.option("--pace", type=FiniteRange(0.0, 60.0), help="Pause after each story, in seconds [1 on a terminal, else 0].")
@click.option("--picture", metavar="FILE", type=click.Path(dir_okay=False, writable=True), help="Save the last screen as an SVG picture.")
def demo(**stated: Any) -> None:
    """Watch real manifests being scheduled whole or not at all.

    Starts a sandbox cluster and the scheduler in this process, plays the stories of examples/, and checks how each one ends. Exits 1
    when any ends otherwise than told, 2 for bad input, 130 when interrupted. Needs no cluster, no kubectl and no Docker.
    """
    if sys.stdout.isatty():
        click.echo("Starting a sandbox cluster and the scheduler ...")  # which takes some seconds, and importing them one more
    _call("demo", **stated)
