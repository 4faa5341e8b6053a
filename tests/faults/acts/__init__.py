"""Everything that may happen in a simulation, by what it happens to: gangs, the cluster, the wire, the scheduler's processes."""
