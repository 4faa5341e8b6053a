"""Plans manifests without applying them: expands them into pods, and decides where the pods would go on a cluster as it is."""
