"""Orders the gangs: which gang is next, and when a waiting gang is worth another attempt."""
