"""Which gang is next: the order, the active and backoff heaps, and what wakes a gang that waits."""
