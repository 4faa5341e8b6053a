"""What users are told: conditions, events, status, metrics, log lines."""
