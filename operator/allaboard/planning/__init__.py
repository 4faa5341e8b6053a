"""From a gang to a plan: what its members ask of nodes, the problem, and the processes that search."""
