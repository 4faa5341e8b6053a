"""Records and arithmetic of what Kubernetes schedules. No I/O, no clock."""
