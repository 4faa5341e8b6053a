"""Runs many replays at once: one job for each strategy and seed, in processes of this machine or on a Dask cluster.

A job is a plain record that holds all it needs. Its result depends on nothing else, so it doesn't matter where the job runs.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import active_children
from threading import Lock
from typing import Any

from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings
from allaboard.planning.policy import POLICY, SKIP, Policy
from allaboard.runtime.processes import spawned
from allaboard.simulation.fragmentation import target_mix
from allaboard.simulation.player import Setup
from allaboard.simulation.players import make_player
from allaboard.simulation.replay import Replay, replay
from allaboard.simulation.workload import Workload, inflated

_CONNECT_SECONDS = 10

# A Dask worker may have several threads, and concurrent searches would draw from the same random numbers.
_ALONE = Lock()


class SweepError(Exception):
    """The jobs can't be run in these processes or on this Dask cluster; the message says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """One replay to be run.

    ``inflate``: tasks are added or removed at random until they request this multiple of all GPUs (``workload.inflated``); None replays
    the workload as it is. ``arguments`` are the strategy's own options. ``policy`` says which gangs may start before others.
    """

    workload: Workload
    strategy: str
    seed: int
    batch: int
    inflate: float | None
    objective: Objective
    search: SearchSettings
    arguments: Mapping[str, object] = field(default_factory=dict)
    policy: Policy = POLICY


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a job; ``seconds`` is how long the job took in the process that ran it."""

    strategy: str
    seed: int
    batch: int
    seconds: float
    replay: Replay


def run_job(job: Job) -> Run:
    """Run one job in this process."""
    with _ALONE:
        started = time.perf_counter()
        mix = target_mix(job.workload.classes, job.workload.popularity, sorted({node.model for node in job.workload.nodes}))
        # Tasks that are dropped if they don't fit don't wait for reserved capacity.
        policy = job.policy if job.workload.waits else SKIP
        strategy = make_player(job.strategy, Setup(mix, job.seed, job.objective, job.search, job.arguments, policy))
        workload = job.workload if job.inflate is None else inflated(job.workload, job.inflate, job.seed)
        found = replay(workload, strategy, mix, batch=job.batch)
        return Run(job.strategy, job.seed, job.batch, time.perf_counter() - started, found)


def run_here(jobs: Sequence[Job], workers: int) -> Iterator[Run]:
    """Yield runs as they end, from at most ``workers`` processes; from this process if one is enough.

    Processes are spawned, never forked. Raises ``SweepError``, and the exceptions of jobs.
    """
    if min(workers, len(jobs)) <= 1:
        yield from map(run_job, jobs)
        return
    others = set(active_children())
    pool = ProcessPoolExecutor(min(workers, len(jobs)), spawned())
    try:
        for future in as_completed([pool.submit(run_job, job) for job in jobs]):
            yield future.result()
    except BrokenProcessPool as error:
        raise SweepError("a process of the replay died, perhaps because memory ran out; use fewer --workers") from error
    except (KeyboardInterrupt, GeneratorExit):  # the caller no longer waits for the running jobs
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def run_on_dask(jobs: Sequence[Job], address: str) -> Iterator[Run]:
    """Yield runs as they end, from a Dask cluster whose workers have allaboard installed.

    Raises ``SweepError``, and the exceptions of jobs.
    """
    distributed = _distributed()
    try:
        # Checked before a client is created: a client that can't read its address takes 20 s to close, and logs errors.
        if distributed.comm.parse_address(address)[0] != "inproc":  # inproc addresses have neither host nor port
            distributed.comm.get_address_host_port(address)
    except ValueError as error:
        raise SweepError(f"{address!r} is not the address of a Dask scheduler, such as tcp://scheduler:8786: {error}") from error
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SweepError(f"no Dask scheduler answers at {address}: {' '.join(str(error).split())}") from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise SweepError(f"the Dask cluster at {address} has no workers; start some with `dask worker {address}`")
        futures = [client.submit(run_job, job, pure=False) for job in jobs]
        try:
            for future in distributed.as_completed(futures, loop=client.loop):
                yield future.result()
        finally:
            client.cancel(futures)


def _distributed() -> Any:
    # Imported only here: distributed is an extra, and takes a second to import.
    try:
        import distributed
    except ImportError as error:
        raise SweepError("a Dask cluster needs the extra: pip install 'allaboard[dask]'") from error
    return distributed
