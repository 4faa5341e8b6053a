"""What the scheduler would do: manifests to workloads to pods, and a plan for them on a cluster as it is."""
