"""The simple baselines of FGD's published comparison: first fit, best fit, random. Each picks a node, then devices on that node."""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.simulation.player import OneByOne, Setup
from allaboard.simulation.state import Assignment, ClusterState


class FirstFit(OneByOne):
    """Picks the first node of the list on which a pod fits, and its first devices that have enough free."""

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Assignment:
        """Implement ``OneByOne.pick``."""
        node = int(fitting[0])
        return Assignment(node, tuple(_sufficient_devices(state, position, node)[: state.classes[position].gpus].tolist()))


class BestFit(OneByOne):
    """Picks the node with the least free cpu and GPU, equally weighted, and its fullest devices that have enough free."""

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Assignment:
        """Implement ``OneByOne.pick``."""
        node = int(fitting[state.free_capacity[fitting].argmin()])
        return Assignment(node, fullest_devices(state, position, node))


class Random(OneByOne):
    """Picks a random node on which a pod fits, and random devices of that node that have enough free."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._rng = np.random.default_rng((setup.seed, 1))  # not the sequence that shuffles the workload

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Assignment:
        """Implement ``OneByOne.pick``."""
        node = int(fitting[self._rng.integers(fitting.size)])
        devices = self._rng.permutation(_sufficient_devices(state, position, node))
        return Assignment(node, tuple(devices[: state.classes[position].gpus].tolist()))


def fullest_devices(state: ClusterState, position: int, node: int) -> tuple[int, ...]:
    """Return the devices for a pod of a class: the fullest of the node's devices that have enough free for it."""
    sufficient = _sufficient_devices(state, position, node)
    order = state.devices[node, sufficient].argsort(kind="stable")
    return tuple(sufficient[order][: state.classes[position].gpus].tolist())


def _sufficient_devices(state: ClusterState, position: int, node: int) -> Integers:
    return np.flatnonzero(state.devices[node] >= max(1, state.classes[position].gpu_milli))
