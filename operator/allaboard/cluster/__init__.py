"""The state of the cluster: nodes, pods, what is used, assumed pods, volumes and GPU devices."""
