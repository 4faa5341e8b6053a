"""What the operator is set to: options by group, configuration files, kube-scheduler's profiles."""
