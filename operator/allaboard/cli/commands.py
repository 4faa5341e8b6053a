"""The options and the help of each command.

This module imports none of the modules that do the work. Help and shell completion need only this module, so they answer at once. A command
``NAME`` imports its module ``allaboard.cli.NAME`` when it is called, and calls the function ``NAME`` there.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import get_completion_class

from allaboard.cli.inputs import OPERATOR, BadInputError, FiniteRange, ManyValues, Quantity, Seeds, uninterrupted

_SANDBOX_PACKAGES = ("allaboard_sandbox", "jsonpatch", "jsonschema")
"""Packages that the extra ``sandbox`` installs. The operator doesn't need them."""

# Copies of values from modules that take too long to import for help. A test compares them with those modules.
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
    "priority",
    "backfill",
    "preemption",
    "fair",
    "one-per-host",
    "spread-zones",
    "volumes",
    "gpu-model",
    "lstm-pipeline",
    "twenty",
)

_Command = TypeVar("_Command", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False)
_API = click.option("--api", metavar="URL", help="Address of the operator's API [ALLABOARD_API, else found in the cluster].")
_SNAPSHOTS = click.option(
    "--cluster", "snapshots", multiple=True, type=_FILE, metavar="FILE", help="Read a snapshot of a cluster instead (repeatable)."
)


def _choose_context(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value:
        client = import_module("allaboard.kube.client")  # it takes long to import, and help doesn't need it
        client.choose_context(value)


def _cluster(command: _Command) -> _Command:
    """Add the options that say which cluster is read."""
    kubeconfig = click.option("--kubeconfig", type=_FILE, help="Kubeconfig of the cluster to read, instead of that of KUBECONFIG.")
    help_text = "Context of the kubeconfig [its current one]."
    context = click.option("--context", metavar="NAME", expose_value=False, callback=_choose_context, help=help_text)
    return kubeconfig(context(command))


def _board(command: _Command) -> _Command:
    """Add the options that say where a board is read: a snapshot, an operator, or the operator of a cluster."""
    return _SNAPSHOTS(_API(_cluster(command)))


def _watch(seconds: float) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options to repeat the output, by default every so many ``seconds``."""
    every = click.option(
        "--every",
        type=FiniteRange(min=0.1),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="Pause between two outputs of --watch.",
    )
    return lambda command: click.option("-w", "--watch", is_flag=True, help="Repeat until interrupted.")(every(command))


def _output(*formats: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the option of the output's format. The first of ``formats`` is the default."""
    return click.option("-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True, help="Format of the output.")


def _call(command: str, **stated: Any) -> None:
    """Import the module of ``command`` and call its function. Signals that arrive during the import take effect after the import.

    Raises ``BadInputError`` when a package that only the sandbox needs isn't installed.
    """
    try:
        with uninterrupted():
            module = import_module(f"allaboard.cli.{command}")
    except ModuleNotFoundError as error:
        if error.name not in _SANDBOX_PACKAGES:
            raise
        raise BadInputError(f"`allaboard {command}` needs the extra: pip install 'allaboard[sandbox]'") from error
    getattr(module, command)(**stated)


@click.command(short_help="Run the scheduler on the cluster that KUBECONFIG or the pod's service account names.")
@click.option("--config", type=_FILE, help="YAML file of settings; the environment and flags win over it.")
@click.option("--kubeconfig", type=_FILE, help="Kubeconfig of the cluster to schedule, instead of that of KUBECONFIG.")
@click.option("--scheduler-name", "scheduler_names", multiple=True, help="Schedule pods with this schedulerName (repeatable) [allaboard].")
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Schedule pods of this namespace only (repeatable) [all].")
@click.option("--objective", type=click.Choice(OBJECTIVES), help="Aim of placements, unless a gang chooses another one [fragmentation].")
@click.option("--strategy", metavar="NAME", help="Strategy that places gangs, unless a gang chooses another one [genetic].")
@click.option("--workers", type=int, help="Processes for short searches [1].")
@click.option("--leader-elect/--no-leader-elect", default=None, help="Elect a leader among replicas, which alone schedules [no].")
@click.option("--lease-namespace", help="Namespace of the Lease for leader election [the pod's own; `default` outside of a cluster].")
@click.option("--metrics-port", type=int, help="Port of /metrics; 0 for none [8080].")
@click.option("--health-port", type=int, help="Port of /healthz; 0 for none [8081].")
@click.option("--api-port", type=int, help="Port of the read-only API on 127.0.0.1; 0 for none [8082].")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Format of the log [text].")
@click.option("-v", "--verbose", is_flag=True, help="Log debug messages, too.")
def run(**stated: Any) -> None:
    """Run the scheduler until interrupted.

    Every setting is also an environment variable, ALLABOARD_ and its name in capitals (ALLABOARD_BIND_CONCURRENCY=128), and a key
    of the --config file. Pods of all namespaces are watched in any case, since they take capacity of nodes.
    """
    _call("run", **stated)


@click.command(
    cls=ManyValues,
    short_help="Show where gangs would be placed, on a cluster or on a snapshot of one.",
    epilog="Exit code: 0 if every gang fits or there is none, 1 if a gang doesn't fit, 2 for bad input, 130 if interrupted.",
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="MANIFEST...",
    help="Files of YAML or JSON, folders of them, or '-' for stdin.",
)
@click.option(
    "--cluster",
    "snapshots",
    multiple=True,
    metavar="SNAPSHOT...",
    help="Files from `allaboard snapshot` or `kubectl get nodes,pods -A -o json`, instead of the live cluster.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects without one.")
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "yaml"]), default="table", help="Format of the output [table].")
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    help="Aim of placements, unless a gang chooses another one.",
)
@click.option(
    "--strategy",
    metavar="NAME",
    help="Strategy that places gangs, unless a gang chooses another one: genetic, exact, bestfit, or a plug-in's.",
)
@click.option(
    "--config",
    type=_FILE,
    help="YAML file of the scheduler's settings [the file of ALLABOARD_CONFIG, else the settings of the operator in the live cluster].",
)
@_cluster
@click.option(
    "--gang-scheduler-name",
    metavar="NAME",
    help="The flag of this name of training-operator, which makes it create PodGroups for jobs [the flag of its pod in the cluster].",
)
@click.option(
    "--gang-scheduling",
    "mpi_gang_scheduler_name",
    metavar="NAME",
    help="The flag of this name of mpi-operator, which makes it create PodGroups for MPIJobs; None for none [the flag of its pod in the"
    " cluster].",
)
@click.option("--skip-unknown", is_flag=True, help="Skip objects of unknown kinds, instead of exit code 2.")
def plan(**stated: Any) -> None:
    """Show where gangs would be placed, on the live cluster or on a snapshot of one. Nothing is bound.

    Workloads are expanded into the pods that their controllers would create. Known kinds: Pod, PodGroup, Deployment, ReplicaSet,
    ReplicationController, StatefulSet, Job, CronJob, TFJob, PyTorchJob, MPIJob, XGBoostJob, PaddleJob, JAXJob, and MLFlow with all its
    stages. Objects that create no pods are skipped. Gangs are placed as the scheduler would place them if all were due at once: in queue
    order, and gangs that contend for nodes together. If the minimum of a gang doesn't fit, none of its pods is assigned.
    """
    _call("plan", **stated)


@click.command(
    short_help="Show the gangs that wait, in the order in which they are attempted, and why.",
    epilog="""\b
Which gang waits, for how long, and why:
  allaboard queue -n team-a
The same of a snapshot:
  allaboard snapshot cluster.json
  allaboard queue --cluster cluster.json""",
)
@click.option("-n", "--namespace", help="Show gangs of this namespace only [all]. The positions stay those among all gangs.")
@click.option("-A", "--all-namespaces", is_flag=True, expose_value=False, help="Show gangs of all namespaces, as without -n.")
@_board
@_watch(2.0)
@_output("table", "wide", "json", "yaml")
def queue(**stated: Any) -> None:
    """Show the gangs that wait, in the order in which they are attempted, and why each of them waits.

    The running operator is asked. Without one, the objects of the cluster are read: these show reasons and expected starts as well, but
    not always the latest.
    """
    _call("queue", **stated)


@click.command(short_help="Show how full the nodes are and by which gangs, and how many jobs of each size could start.")
@click.option("--by", default="", metavar="LABEL", help="Group nodes by this label [that of racks].")
@_board
@_watch(2.0)
@_output("table", "json", "yaml")
def top(**stated: Any) -> None:
    """Show how full the nodes are and by which gangs, and how many jobs of each size could start.

    Each letter stands for a GPU that the gang of this letter uses, and each dot for a free GPU. Free GPUs are stranded as far as the pods
    with GPUs can't use them: for lack of cpu, or since they ask for more GPUs than are left. The number is the mean over all pods with
    GPUs, so it needn't be whole. The second table counts GPUs alone.
    """
    _call("top", **stated)


@click.command(short_help="Show why a gang waits, what it asks for, and where its members are.")
@click.argument("gang")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the gang.")
@_board
@_output("table", "json", "yaml")
def explain(**stated: Any) -> None:
    """Show why a gang waits, what it asks for, where its members are, and the last decisions about it.

    GANG is the name of a PodGroup, the name in the gang's labels, or the name of a pod that is in no gang.
    """
    _call("explain", **stated)


@click.command(
    short_help="Show the departure board in a browser: nodes, gangs that wait, and why.",
    epilog="""\b
The board of a cluster's operator, through a port-forward:
  allaboard ui
The board of a snapshot:
  allaboard ui --cluster cluster.json""",
)
@_board
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="P", help="Port on this machine [any free one].")
@click.option("--open/--no-open", "is_opened", default=True, help="Open a browser, if a terminal is attached [--open].")
def ui(**stated: Any) -> None:
    """Show the departure board in a browser: the nodes and who uses them, the gangs that wait, and why.

    The page is served on 127.0.0.1 until interrupted, and its address is printed. The running operator is asked through a port-forward;
    without one, the objects of the cluster are read once. The page can ask `allaboard plan` about manifests, except with --api.
    """
    _call("ui", **stated)


@click.command(
    short_help="Write the cluster and the operator's state into a file, for other commands and for reports of problems.",
    epilog="""\b
Look at a cluster later, or elsewhere:
  allaboard snapshot cluster.json
  allaboard explain bert --cluster cluster.json
  allaboard plan -f job.yaml --cluster cluster.json""",
)
@click.argument("output", metavar="FILE", default="-")
@click.option("--anonymize", "is_anonymous", is_flag=True, help="Replace all names, and leave out the operator's messages and decisions.")
@_API
@_cluster
def snapshot(**stated: Any) -> None:
    """Write the cluster and the operator's state into FILE, or to stdout, as JSON.

    FILE can be given as --cluster to `plan`, `queue`, `explain`, `top`, `history` and `ui`. It has nodes, pods, PodGroups and other objects
    that a plan reads, without what containers run: no commands, no environment. Secrets and ConfigMaps are never read.
    """
    _call("snapshot", **stated)


@click.command(short_help="Show the last decisions about gangs: placed, refused, evicted, and for which gang.")
@click.argument("gang", required=False)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the gangs.")
@click.option("-A", "--all-namespaces", "every_namespace", is_flag=True, help="Show gangs of all namespaces.")
@_board
@_output("table", "json", "yaml")
def history(**stated: Any) -> None:
    """Show the last decisions about gangs, the oldest first: placed, refused, evicted, and for which gang.

    The operator that leads remembers the last 500 decisions about all gangs since its start.
    """
    _call("history", **stated)


@click.command(
    short_help="Show the GPUs of a cluster: how many are free, their load and their health.",
    epilog="""\b
Outside of the cluster, where names of Services can't be resolved:
  kubectl -n monitoring port-forward svc/prometheus-operated 9090 &
  allaboard gpus --url http://127.0.0.1:9090""",
)
@_cluster
@click.option("--config", type=_FILE, help="The operator's configuration file, instead of the settings of the operator in the cluster.")
@click.option("--url", default=None, help="URL of Prometheus (http://127.0.0.1:9090), instead of the one that is found in the cluster.")
@click.option("--no-metrics", is_flag=True, help="Show only what nodes and pods state, without metrics.")
@click.option("--cards", "each_card", is_flag=True, help="Show a row for each card instead of each node.")
@_watch(10.0)
@_output("table", "json")
def gpus(**stated: Any) -> None:
    """Show the GPUs of the cluster: how many are free, their load and their health.

    The settings are those of the operator that runs in the cluster, unless --config or variables (ALLABOARD_...) state others. FREE is
    computed from the requests of pods, without metrics. If a driver shares cards between pods, FREE counts cards (1.5/2). The other columns
    are metrics of dcgm-exporter, ObserverWard or the exporters in the settings (gpu_metrics), read from Prometheus. Without metrics, MODEL
    and MEM/GPU come from labels of the nodes. AGE is the age of the metrics. HEALTH is the last XID error of a card, or says that rows of
    its memory couldn't be remapped.
    """
    _call("gpus", **stated)


@click.group(short_help="Check a configuration file, and show the settings in force with it.")
def config() -> None:
    """Check configuration files."""


@config.command()
@click.argument("file", type=_FILE)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="Kubeconfig with which the operator will be started; it wins over the one in FILE.",
)
@_output("table", "json")
@click.option("--all", "all_options", is_flag=True, help="Show all options in the table, not only those that differ from the defaults.")
def check(**stated: Any) -> None:
    """Show the settings in force with FILE as the --config file, and the fields of FILE that aren't honoured.

    FILE is a KubeSchedulerConfiguration (kubescheduler.config.k8s.io v1, v1beta1 to v1beta3, v1alpha1 or v1alpha2), an
    AllaboardConfiguration (allaboard.dev/v1alpha1), both as documents of one file, or a mapping of options. The environment
    (ALLABOARD_...) wins over FILE, as with `allaboard run`. For a file that can't be used, one line names the mistake, and the exit code is
    2.
    """
    _call("config", **stated)


@click.command(
    short_help="Replay a workload on simulated nodes, and show what stays unused.",
    epilog="""\b
Examples:
  allaboard simulate --nodes nodes.csv --pods pods.csv
  allaboard simulate --nodes nodes.csv --pods pods.csv --strategy fgd --strategy fgd-bestfit --plot curves.svg
  allaboard simulate -f scenario.yaml -o json

docs/simulate.md describes the files and the figures. Exit code: 0, 2 for bad input, or 130 if interrupted.""",
)
@click.option("--nodes", "nodes_file", metavar="CSV", help="Nodes; columns: sn, cpu_milli, memory_mib, gpu, model.")
@click.option("--pods", "pods_file", metavar="CSV", help="Tasks; columns: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.")
@click.option(
    "-f", "--filename", metavar="YAML", help="Nodes, and gangs with arrival and run times, instead of the CSV files; '-' for stdin."
)
@click.option(
    "--inflate",
    type=FiniteRange(0.0, 100.0),
    default=1.3,
    show_default=True,
    help="GPUs that all tasks together request, as a multiple of the nodes' GPUs: tasks are repeated or left out at random. 0 replays each"
    " task once. For CSV files only.",
)
@click.option(
    "--seeds",
    type=Seeds(),
    metavar="SEEDS",
    help="Seeds of random numbers, one run for each: they decide the order and choice of tasks.  [default: 42-51; 42 with -f]",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help="Strategy that places tasks (repeatable): genetic (default, as `allaboard run`), exact, bestfit, firstfit, random, fgd, or a"
    " plug-in.",
)
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    help="Aim of the strategy genetic [default: as `allaboard run`].",
)
@click.option(
    "--batch", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Number of tasks of CSV files that arrive together."
)
@click.option(
    "--policy",
    type=click.Choice(["skip", "strict", "easy"]),
    help="Gangs that may start before a gang ahead of them that doesn't fit: all that fit (skip), none (strict), or those that don't delay"
    " the reserved capacity (easy) [default: as `allaboard run`]. For -f only.",
)
@click.option("--preemption", is_flag=True, help="Evict gangs of lower priority for a gang that fits in no other way. For -f only.")
@click.option(
    "--fair-share", is_flag=True, help="Order gangs of equal priority by what their namespaces have used of the cluster. For -f only."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Format of the output [table].")
@click.option("--plot", metavar="FILE", help="Draw the figures over time or over the arrived load, into a .png or .svg file.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes for the runs [default: one for each processor].")
@click.option("--dask", metavar="ADDRESS", help="Run on this Dask cluster instead, such as tcp://scheduler:8786.")
def simulate(**stated: Any) -> None:
    """Replay a workload on a list of nodes, and show what stays unused.

    Tasks of CSV files arrive one by one in random order and never end; tasks that don't fit are dropped. Gangs of a YAML file arrive, wait
    until they fit whole, run, and finish. Without --strategy and --objective, pods are placed as by `allaboard run` with its defaults. The
    other strategies are baselines to compare with. No cluster is read or changed.
    """
    _call("simulate", **stated)


@click.command(
    short_help="Serve a sandbox cluster for kubectl until interrupted.",
    epilog="""\b
A first try, in one terminal:
  allaboard sandbox --nodes 1 --gpus 4 --run
In another terminal, after running the line that the first one prints:
  kubectl apply -f examples/two-jobs.yaml
  kubectl get podgroups --watch""",
)
@click.option("--nodes", type=click.IntRange(min=0), default=4, show_default=True, metavar="N", help="Nodes, named node-1 and so on.")
@click.option("--gpus", type=click.IntRange(min=0), default=4, show_default=True, metavar="N", help="GPUs of each node.")
@click.option("--cpu", type=Quantity(), metavar="QUANTITY", default="16", show_default=True, help="CPUs of each node.")
@click.option("--memory", type=Quantity(), metavar="QUANTITY", default="64Gi", show_default=True, help="Memory of each node.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="P", help="Port of the API server [any free one].")
@click.option(
    "--kubeconfig-out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the kubeconfig [a temporary file]. A file that isn't a sandbox's kubeconfig is never overwritten.",
)
@click.option(
    "--run",
    "is_scheduled",
    is_flag=True,
    help="Also run the scheduler in this process, with the settings of the environment. Its log goes to stderr.",
)
@click.option("--ui", "is_shown", is_flag=True, help="Also run the scheduler, and serve the departure board; its address goes to stderr.")
@click.option(
    "--gang-scheduler-name", default="", metavar="NAME", help="Create PodGroups for TFJobs, as training-operator does with this flag."
)
def sandbox(**stated: Any) -> None:
    """Serve a sandbox cluster for kubectl until interrupted.

    The cluster is an API server with simulated kubelets, in one process: pods are admitted, run and end, but no containers are started.
    Pods with schedulerName: allaboard are bound as soon as a scheduler runs: start it with --run, or run `allaboard run` with the
    KUBECONFIG that is printed. All other pods stay pending.
    """
    _call("sandbox", **stated)


@click.command(short_help="Show how example jobs are scheduled, on a sandbox cluster.")
@click.option("--keep", is_flag=True, help="Keep the sandbox, the scheduler and the departure board running afterwards, until interrupted.")
@click.option("--story", "names", multiple=True, type=click.Choice(STORIES), help="Play only this story (repeatable).")
@click.option("--pace", type=FiniteRange(0.0, 60.0), help="Pause after each story, in seconds [1 on a terminal, else 0].")
@click.option("--picture", metavar="FILE", type=click.Path(dir_okay=False, writable=True), help="Save the last screen as an SVG picture.")
def demo(**stated: Any) -> None:
    """Show how example jobs are scheduled: all members of a gang are bound, or none.

    Starts a sandbox cluster and the scheduler in this process, plays the stories of examples/, and checks the end of each story. Exit code:
    0 if all end as expected, 1 if a story doesn't, 2 for bad input, 130 if interrupted. Needs no cluster, no kubectl and no Docker.
    """
    if sys.stdout.isatty():
        click.echo("Starting a sandbox cluster and the scheduler ...")  # printed first, since importing them takes a second
    _call("demo", **stated)


@click.command(
    short_help="Print a script that completes this command's words in a shell.",
    epilog="""\b
For the present shell:
  source <(allaboard completion bash)
For all later ones, fish:
  allaboard completion fish > ~/.config/fish/completions/allaboard.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and files in a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion is known for {shell}")
    root = click.get_current_context().find_root()
    click.echo(kind(root.command, {}, "allaboard", "_ALLABOARD_COMPLETE").source())


for _reader in (plan, queue, top, explain, ui, snapshot, history, gpus):
    _reader.epilog = f"{_reader.epilog or ''}\n\n{OPERATOR}"
