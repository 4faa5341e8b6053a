"""The simple baselines of the published comparison. Each picks a node, then devices on it."""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.simulation.player import OneByOne, Setup
from allaboard.simulation.state import ClusterState, Seat


class FirstFit(OneByOne):
    """The first node of the list that has room, and its first devices."""

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Seat:
        """As ``OneByOne.pick``."""
        node = int(fitting[0])
        return Seat(node, tuple(_able_devices(state, position, node)[: state.classes[position].gpus].tolist()))


class BestFit(OneByOne):
    """The node with least left, cpu and GPU weighing the same, and its fullest device that has room."""

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Seat:
        """As ``OneByOne.pick``."""
        node = int(fitting[state.room[fitting].argmin()])
        return Seat(node, fullest_devices(state, position, node))


class Random(OneByOne):
    """Any node that has room, and any of its devices that do."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._rng = np.random.default_rng((setup.seed, 1))  # not the numbers that shuffle the workload

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Seat:
        """As ``OneByOne.pick``."""
        node = int(fitting[self._rng.integers(fitting.size)])
        devices = self._rng.permutation(_able_devices(state, position, node))
        return Seat(node, tuple(devices[: state.classes[position].gpus].tolist()))


def fullest_devices(state: ClusterState, position: int, node: int) -> tuple[int, ...]:
    """The devices that have least left of those that have enough."""
    able = _able_devices(state, position, node)
    order = state.devices[node, able].argsort(kind="stable")
    return tuple(able[order][: state.classes[position].gpus].tolist())


def _able_devices(state: ClusterState, position: int, node: int) -> Integers:
    return np.flatnonzero(state.devices[node] >= max(1, state.classes[position].gpu_milli))
