"""Test that jobs return the same runs in this process, in other processes and on a Dask cluster."""

import socket
from collections.abc import Generator, Iterator
from dataclasses import replace
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings
from allaboard.simulation.sweep import Job, Run, SweepError, run_here, run_on_dask
from allaboard.simulation.trace import read_nodes, read_tasks
from allaboard.simulation.workload import workload_of
from tests.unit.simulation.making import write_trace

pytestmark = pytest.mark.processes


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    nodes, tasks = write_trace(tmp_path)
    workload = workload_of(read_nodes(nodes), read_tasks(tasks))
    return [Job(workload, name, seed, 1, 1.3, Objective.BINPACK, SearchSettings()) for name in ("fgd", "random") for seed in (42, 43)]


def without_times(runs: Iterator[Run]) -> list[Run]:
    """Return the runs without their times, sorted by strategy and seed."""
    return sorted((replace(run, seconds=0) for run in runs), key=lambda run: (run.strategy, run.seed))


def test_several_processes_return_the_runs_that_one_process_returns(jobs: list[Job]) -> None:
    here = without_times(run_here(jobs, workers=1))
    assert [(run.strategy, run.seed) for run in here] == [("fgd", 42), ("fgd", 43), ("random", 42), ("random", 43)]
    assert without_times(run_here(jobs, workers=2)) == here


def test_error_in_a_process_is_raised_in_the_caller(jobs: list[Job]) -> None:
    with pytest.raises(ValueError, match="there is no strategy 'none'"):
        list(run_here([replace(job, strategy="none") for job in jobs], workers=2))


@pytest.mark.filterwarnings("default")  # warnings of distributed itself
def test_dask_cluster_returns_the_runs_that_this_process_returns(jobs: list[Job]) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        found = without_times(run_on_dask(jobs, cluster.scheduler_address))
    assert found == without_times(run_here(jobs, workers=1))


@pytest.mark.filterwarnings("default")
def test_dask_cluster_without_workers_is_refused(jobs: list[Job]) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster, pytest.raises(SweepError, match="has no workers"):
        list(run_on_dask(jobs, cluster.scheduler_address))


@pytest.mark.filterwarnings("default")
def test_error_names_a_dask_scheduler_that_does_not_answer(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.simulation.sweep._CONNECT_SECONDS", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SweepError, match=f"no Dask scheduler answers at {address}"):
            list(run_on_dask(jobs, address))


@pytest.mark.parametrize("address", ["garbage", "tcp://scheduler", "carrier-pigeon://scheduler:8786"])
def test_invalid_dask_address_is_refused_before_a_client_is_created(jobs: list[Job], address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributed.Client", None)
    with pytest.raises(SweepError, match=f"'{address}' is not the address of a Dask scheduler"):
        list(run_on_dask(jobs, address))


def test_running_jobs_are_ended_if_the_caller_stops_waiting(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    before, ended = set(active_children()), []
    end = BaseProcess.terminate
    monkeypatch.setattr(BaseProcess, "terminate", lambda process: ended.append(process) or end(process))
    runs = run_here(jobs * 50, workers=2)
    next(runs)
    assert isinstance(runs, Generator)
    runs.close()
    assert ended
    assert not set(active_children()) - before
