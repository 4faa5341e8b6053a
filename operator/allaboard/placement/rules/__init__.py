"""What a pod asks of nodes, a file for each kind of rule; and the last check of a plan, which counts for itself."""
