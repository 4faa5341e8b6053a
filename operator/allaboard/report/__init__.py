"""Reports what was decided about gangs: in PodGroups, pods, events, metrics and the log."""
