"""Builds small nodes, tasks and workloads for the tests, and writes CSV files of them."""

from collections.abc import Sequence
from pathlib import Path

from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings
from allaboard.simulation.fragmentation import TargetMix, target_mix
from allaboard.simulation.player import Setup
from allaboard.simulation.players import make_player
from allaboard.simulation.replay import Replay, replay
from allaboard.simulation.state import ClusterState
from allaboard.simulation.workload import Arrival, SimNode, TaskClass, Workload

GI = 1024**3
NODES = "sn,cpu_milli,memory_mib,gpu,model"
TASKS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def node(name: str, gpus: int = 0, *, cpu: int = 64, memory: int = 256, model: str = "") -> SimNode:
    return SimNode(name, cpu * 1000, memory * GI, gpus, model or ("V100" if gpus else ""))


def task(gpus: int = 0, gpu_milli: int = 1000, *, cpu: int = 1, memory: int = 1, models: tuple[str, ...] = ()) -> TaskClass:
    return TaskClass(cpu * 1000, memory * GI, gpus, gpu_milli if gpus else 0, models)


def mix_of(workload: Workload) -> TargetMix:
    return target_mix(workload.classes, workload.popularity, sorted({node.model for node in workload.nodes}))


def setup_of(workload: Workload, seed: int = 42) -> Setup:
    return Setup(mix_of(workload), seed, Objective.BINPACK, SearchSettings())


def played(workload: Workload, strategy: str = "fgd-firstfit", batch: int = 1) -> Replay:
    return replay(workload, make_player(strategy, setup_of(workload)), mix_of(workload), batch=batch)


def gangs(nodes: Sequence[SimNode], classes: Sequence[TaskClass], *arrivals: Arrival) -> Workload:
    """Return a workload whose gangs wait until they fit."""
    return Workload(tuple(nodes), tuple(classes), arrivals, waits=True)


def state_of(workload: Workload) -> ClusterState:
    return ClusterState(workload.nodes, workload.classes)


def write_trace(folder: Path, *, nodes: int = 6, tasks: int = 40) -> tuple[str, str]:
    """Write a node and a task list in openb's form, and return both paths. Some tasks share a GPU, and every fifth task has none."""
    rows = [f"node-{index},64000,262144,{(2, 8)[index % 2]},{('T4', 'G2')[index % 2]}" for index in range(nodes)]
    (folder / "nodes.csv").write_text("\n".join([NODES, *rows]) + "\n")
    rows = []
    for index in range(tasks):
        gpus, milli = (0, 0) if index % 5 == 4 else (1, 470) if index % 3 == 0 else ((1, 2, 4)[index % 3], 1000)
        rows.append(f"task-{index},{4000 + index % 4 * 1000},8192,{gpus},{milli},,LS,Running,0,10,0")
    (folder / "pods.csv").write_text("\n".join([TASKS, *rows]) + "\n")
    return str(folder / "nodes.csv"), str(folder / "pods.csv")
