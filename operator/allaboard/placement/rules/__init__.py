"""Rules about the nodes that a pod may use, one file for each kind, and the last check of a plan, which counts independently."""
