"""First fit, best fit and random: the simple baselines that FGD's authors compare with it (fragmentation gradient descent, ``fgd``).

Each baseline picks a node for a pod, and then devices of that node.
"""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.simulation.player import OneByOne, Setup
from allaboard.simulation.state import Assignment, ClusterState


class FirstFit(OneByOne):
    """Picks the first node on which a pod fits, and the first devices of that node that have enough free."""

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Assignment:
        """Return an assignment to the first node of ``fitting``."""
        node = int(fitting[0])
        return Assignment(node, tuple(_sufficient_devices(state, position, node)[: state.classes[position].gpus].tolist()))


class BestFit(OneByOne):
    """Picks the node with the least free cpu and GPU, equally weighted, and the fullest devices of that node that have enough free."""

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Assignment:
        """Return an assignment to the node of ``fitting`` with the least free capacity."""
        node = int(fitting[state.free_capacity[fitting].argmin()])
        return Assignment(node, fullest_devices(state, position, node))


class Random(OneByOne):
    """Picks a random node on which a pod fits, and random devices of that node that have enough free."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._rng = np.random.default_rng((setup.seed, 1))  # other random numbers than those that shuffle the workload

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Assignment:
        """Return an assignment to a random node of ``fitting``."""
        node = int(fitting[self._rng.integers(fitting.size)])
        devices = self._rng.permutation(_sufficient_devices(state, position, node))
        return Assignment(node, tuple(devices[: state.classes[position].gpus].tolist()))


def fullest_devices(state: ClusterState, position: int, node: int) -> tuple[int, ...]:
    """Return the devices of ``node`` for a pod of the task class at ``position``: the fullest devices that have enough free for the pod."""
    sufficient = _sufficient_devices(state, position, node)
    order = state.devices[node, sufficient].argsort(kind="stable")
    return tuple(sufficient[order][: state.classes[position].gpus].tolist())


def _sufficient_devices(state: ClusterState, position: int, node: int) -> Integers:
    return np.flatnonzero(state.devices[node] >= max(1, state.classes[position].gpu_milli))
