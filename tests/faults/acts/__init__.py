"""What may happen to a cluster and its scheduler, by whom it happens to."""
