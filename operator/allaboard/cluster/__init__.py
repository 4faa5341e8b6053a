"""The live state of the cluster: nodes, pods, used and assumed capacity, volumes and GPU devices."""
