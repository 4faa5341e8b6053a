"""Settings of the operator: options by group, configuration files, and kube-scheduler's profiles."""
