"""Which gang is next, what is decided about it, and what is remembered of it."""
