"""Reports decisions on gangs in PodGroup statuses, pod conditions, events, metrics and the log."""
