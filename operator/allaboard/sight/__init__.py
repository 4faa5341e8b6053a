"""Shows what the scheduler knows: gangs, the queue, nodes and decisions, as immutable values that an API serves. Writes nothing."""
